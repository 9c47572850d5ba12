"""The SQL of the store, and how values become literals and columns become values; `tables.sql` says what they mean.

A value is written as a hexadecimal literal or as a number, by functions of this module and of `packets` alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from leasehold._backends.mysql.packets import binary, optional_binary
from leasehold.kit.holder import holder_from_json, holder_to_json
from leasehold.values import MAX_FENCE, Holder

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from leasehold.values import Claim, Grant, Record

__all__ = [
    "NOW",
    "NO_SESSION",
    "SESSION",
    "grant_plain",
    "holder_from",
    "keep_place",
    "key_range",
    "listed",
    "micros",
    "read_name",
    "read_names",
    "read_record",
    "release_plain",
    "renew_all",
    "renew_plain",
    "seconds",
    "write_record",
]

MICRO = 1_000_000
KEPT_PER_LIFETIME = 6  # a place is kept alive no more often than this in the time that it lives

# The session of the connection that executes a statement, as it is stored in grants that end with it; or none.
SESSION, NO_SESSION = b"@leasehold_session", b"NULL"

# The server's clock. It is one instant for all of a statement, and no time zone takes part.
NOW = b"TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))"

# --- the common case, each a transaction of its own: nothing is remembered of the name but its fence

# The number of changed rows is not 0 if the name was not in use; then the fence is the "insert id" of the answer.
# Columns are assigned from left to right, so `shape`, which all conditions look at, comes last.
_GRANT_PLAIN = (
    (
        b"INSERT INTO leasehold_lock (name, version, fence, owner, ttl, since, expires, holder, session, shape) VALUES "
        b"(%b, "
        + NOW
        + b", LAST_INSERT_ID(GREATEST("
        + NOW
        + b", %d)), %b, %d, "
        + NOW
        + b", "
        + NOW
        + b" + %d, %b, %b, 1) "
        b"ON DUPLICATE KEY UPDATE "
        b"version = IF(shape = 0 AND fence < %d, version + 1, version), "
        b"owner = IF(shape = 0 AND fence < %d, VALUES(owner), owner), "
        b"ttl = IF(shape = 0 AND fence < %d, VALUES(ttl), ttl), "
        b"since = IF(shape = 0 AND fence < %d, VALUES(since), since), "
        b"expires = IF(shape = 0 AND fence < %d, VALUES(expires), expires), "
        b"holder = IF(shape = 0 AND fence < %d, VALUES(holder), holder), "
        b"session = IF(shape = 0 AND fence < %d, VALUES(session), session), "
        b"fence = IF(shape = 0 AND fence < %d, LAST_INSERT_ID(GREATEST(fence + 1, VALUES(fence))), fence), "
        b"shape = IF(shape = 0 AND owner = VALUES(owner), 1, shape)"
    )
    .replace(b"@now", NOW)
    .replace(b"fence < %d", b"fence < %d" % MAX_FENCE)
)


def grant_plain(claim: Claim, first_fence: int, session: bytes) -> bytes:
    """An exclusive claim on a name that is not in use."""
    ttl = micros(claim.ttl)
    name, owner = binary(claim.key.encode()), binary(claim.owner.encode())
    return _GRANT_PLAIN % (name, first_fence, owner, ttl, ttl, _holder(claim.holder), session)


def release_plain(grant: Grant) -> bytes:
    """One row changed if this owner held the name and no other claim was there."""
    return (
        b"UPDATE leasehold_lock SET version = version + 1, shape = 0, owner = NULL, holder = NULL, session = NULL "
        b"WHERE name = %b AND shape = 1 AND owner = %b AND fence = %d AND expires > " + NOW
    ) % (binary(grant.claim.key.encode()), binary(grant.claim.owner.encode()), grant.fence)


def renew_plain(grants: Sequence[Grant], session: bytes) -> bytes:
    """A statement for each ttl: as many rows changed as owners held their names in the plain way."""
    return b";".join(_renew_folded(ttl, same, NOW, session) for ttl, same in _by_ttl(grants).items())


def renew_all(grants: Sequence[Grant], session: bytes) -> bytes:
    """The same for holders of every kind, in one transaction; the last result but one has the owners that hold."""
    names = listed(grant.claim.key.encode() for grant in grants)
    parts = [
        b"BEGIN",
        b"SET @leasehold_now = " + NOW,
        b"UPDATE leasehold_lock SET version = version + 1 WHERE name IN (%b)" % names,
    ]
    for ttl, same in _by_ttl(grants).items():
        parts.append(_renew_folded(ttl, same, b"@leasehold_now", session))
        parts.append(
            b"UPDATE leasehold_claim SET expires = @leasehold_now + %d WHERE %b" % (ttl, _claims_of(same, session))
        )
    parts.append(
        b"SELECT owner FROM leasehold_lock WHERE %b UNION ALL SELECT owner FROM leasehold_claim WHERE %b"
        % (_folded_of(grants, b"@leasehold_now", session), _claims_of(grants, session))
    )
    return b";".join([*parts, b"COMMIT"])


def _by_ttl(grants: Sequence[Grant]) -> dict[int, list[Grant]]:
    groups: dict[int, list[Grant]] = {}
    for grant in grants:
        groups.setdefault(micros(grant.claim.ttl), []).append(grant)
    return groups


def _renew_folded(ttl: int, grants: Sequence[Grant], now: bytes, session: bytes) -> bytes:
    return b"UPDATE leasehold_lock SET version = version + 1, expires = %b + %d WHERE %b" % (
        now,
        ttl,
        _folded_of(grants, now, session),
    )


def _folded_of(grants: Sequence[Grant], now: bytes, session: bytes) -> bytes:
    return b"shape = 1 AND expires > %b AND %b" % (now, _of_grants(grants, session))


def _claims_of(grants: Sequence[Grant], session: bytes) -> bytes:
    return b"state = 1 AND broken IS NULL AND expires > @leasehold_now AND " + _of_grants(grants, session)


def _of_grants(grants: Sequence[Grant], session: bytes) -> bytes:
    """Names are the index; owner and fence tell a grant from every other."""
    names = listed(grant.claim.key.encode() for grant in grants)
    pairs = b",".join(b"(%b,%d)" % (binary(grant.claim.owner.encode()), grant.fence) for grant in grants)
    lives = b" AND (session IS NULL OR IS_FREE_LOCK(session) = 0)" if session == SESSION else b""
    return b"name IN (%b) AND (owner, fence) IN (%b)%b" % (names, pairs, lives)


# --- one name, or several

_COLUMNS = (
    b"SELECT "
    + NOW
    + b", l.name, l.version, l.fence, l.shape, l.abandoned_until, l.owner, l.ttl, l.since, l.expires, l.holder, "
    b"l.session, l.session IS NOT NULL AND IS_FREE_LOCK(l.session), "
    b"c.number, c.owner, c.state, c.mode, c.capacity, c.ttl, c.min_hold, c.holder, c.fence, c.since, c.expires, "
    b"c.abandoned, c.broken, c.listener, c.session, c.session IS NOT NULL AND IS_FREE_LOCK(c.session) "
)


def read_name(name: bytes) -> bytes:
    """All about one name in one snapshot: a row for each claim, and at least one, which has the time."""
    return (
        _COLUMNS + b"FROM (SELECT 1) AS one LEFT JOIN leasehold_lock AS l ON l.name = %b "
        b"LEFT JOIN leasehold_claim AS c ON c.name = l.name ORDER BY c.number"
    ) % binary(name)


def read_names(first: bytes, behind: bytes) -> bytes:
    """The names in use from `first` on, before `behind`, in order."""
    return (
        _COLUMNS + b"FROM leasehold_lock AS l LEFT JOIN leasehold_claim AS c ON c.name = l.name "
        b"WHERE l.name >= %b AND l.name < %b AND l.shape > 0 ORDER BY l.name, c.number"
    ) % (binary(first), binary(behind))


def keep_place(name: bytes, number: int, owner: bytes, lifetime: float, listener: bytes | None) -> bytes:
    """A waiter lives on. It changes nothing that another client decides upon, so the version stays.

    Nothing is written for a waiter that was kept alive a moment ago, and is woken: mostly it holds the lock by then.
    """
    life = micros(lifetime)
    return (
        b"UPDATE leasehold_claim SET expires = " + NOW + b" + %d, listener = %b WHERE name = %b AND number = %d "
        b"AND owner = %b AND state = 3 AND expires > " + NOW + b" AND expires < " + NOW + b" + %d"
    ) % (life, optional_binary(listener), binary(name), number, binary(owner), life - life // KEPT_PER_LIFETIME)


# --- records


def read_record(name: bytes, fence: int) -> bytes:
    """The last result: value, fence, expires, now. With a fence, no lower one writes here from now on."""
    read = (
        b"SELECT r.value, r.fence, r.expires, " + NOW + b" FROM (SELECT 1) AS one "
        b"LEFT JOIN leasehold_record AS r ON r.name = %b"
    ) % binary(name)
    if not fence:
        return read
    return (
        b"INSERT INTO leasehold_record (name, value, fence, expires) VALUES (%b, '', %d, 0) "
        b"ON DUPLICATE KEY UPDATE fence = GREATEST(fence, VALUES(fence));%b"
    ) % (binary(name), fence, read)


def write_record(record: Record) -> bytes:
    """One or two rows changed, unless a higher fence was seen."""
    return (
        b"INSERT INTO leasehold_record (name, value, fence, expires) VALUES (%b, %b, %d, " + NOW + b" + %d) "
        b"ON DUPLICATE KEY UPDATE "
        b"changes = IF(VALUES(fence) >= fence, changes + 1, changes), "
        b"value = IF(VALUES(fence) >= fence, VALUES(value), value), "
        b"expires = IF(VALUES(fence) >= fence, VALUES(expires), expires), "
        b"fence = GREATEST(fence, VALUES(fence))"
    ) % (binary(record.key.encode()), binary(record.value), record.fence, micros(record.ttl))


# --- values


def micros(value: float) -> int:
    """Seconds, as they are stored."""
    return round(value * MICRO)


def seconds(value: bytes | None) -> float:
    """Back; 0 for what is not there."""
    return 0.0 if value is None else int(value) / MICRO


def listed(values: Iterable[bytes]) -> bytes:
    """Literals, for an IN."""
    return b",".join(binary(value) for value in values)


def key_range(prefix: str) -> tuple[bytes, bytes]:
    """All keys that start with a prefix: from the first one to the first behind. A byte of UTF-8 is never 255."""
    first = prefix.encode()
    return first, first[:-1] + bytes([first[-1] + 1])


def _holder(holder: Holder) -> bytes:
    return binary(holder_to_json(holder).encode())


def holder_from(text: bytes | None) -> Holder:
    """The holder that is stored; a text of another program is shown as it is."""
    return holder_from_json(text or b"") or Holder((text or b"").decode(errors="replace"), 0)
