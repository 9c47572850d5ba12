"""The SQL of the store; `schema.sql` says what the tables mean.

Values are always bound, never written into a statement. Instants are seconds of the host's boot clock.
"""

from __future__ import annotations

__all__: list[str] = []

# --- the common case, each a transaction of its own: nothing is remembered of the name but its fence

# key, wall time in microseconds, owner, ttl, now, expires, host, pid, label, reason -> one row changed if the name is
# not in use and the wall clock is above its last fence, which makes it the next one. Otherwise MINT has to decide: that
# is rare, and to have no result row is worth a tenth of the whole pair.
GRANT_PLAIN = """
INSERT INTO lock (key, fence, shape, owner, ttl, since, expires, host, pid, label, reason)
VALUES (?, ?, 1, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (key) DO UPDATE SET
  fence = excluded.fence, shape = 1, owner = excluded.owner, ttl = excluded.ttl,
  since = excluded.since, expires = excluded.expires,
  host = excluded.host, pid = excluded.pid, label = excluded.label, reason = excluded.reason
WHERE shape = 0 AND fence < excluded.fence
"""

# key, owner, fence, now -> one row changed if this owner held the name and no other claim was there
RELEASE_PLAIN = (
    "UPDATE lock SET shape = 0, owner = NULL WHERE key = ? AND shape = 1 AND owner = ? AND fence = ? AND expires > ?"
)

# expires, key, owner, fence, now -> one row changed if this owner holds the name in the plain way
RENEW_PLAIN = "UPDATE lock SET expires = ? WHERE key = ? AND shape = 1 AND owner = ? AND fence = ? AND expires > ?"

# --- one name, inside a transaction

# key, limit -> what is known of the name, and behind it one of its claims in each row. Without claims there is one row,
# which ends in nulls.
NAME = """
SELECT shape, abandoned_until, lock.fence,
       number, claim.owner, state, mode, capacity, claim.ttl, min_hold,
       claim.host, claim.pid, claim.label, claim.reason,
       claim.fence, claim.since, claim.expires, abandoned, broken, bell
FROM lock LEFT JOIN claim ON claim.key = lock.key WHERE lock.key = ? LIMIT ?
"""

# key: the plain holder becomes a row of `claim`
UNFOLD = """
INSERT INTO claim (key, owner, state, mode, capacity, ttl, min_hold, host, pid, label, reason, fence, since, expires)
SELECT key, owner, 1, 'exclusive', 1, ttl, 0, host, pid, label, reason, fence, since, expires FROM lock WHERE key = ?
"""

# key, shape, abandoned_until: the owner moves to `claim`, or is gone
REMEMBER = """
INSERT INTO lock (key, fence, shape, abandoned_until) VALUES (?, 0, ?, ?)
ON CONFLICT (key) DO UPDATE SET shape = excluded.shape, abandoned_until = excluded.abandoned_until, owner = NULL
"""

# key, the last of the fences that are given out
MINT = """
INSERT INTO lock (key, fence, shape) VALUES (?, ?, 2)
ON CONFLICT (key) DO UPDATE SET fence = excluded.fence
"""

# key, fence -> the fence that the next one will be above; the row stays until wall time is a day past it
LIFT_FENCE = """
INSERT INTO lock (key, fence, shape) VALUES (?, ?, 0)
ON CONFLICT (key) DO UPDATE SET fence = max(fence, excluded.fence)
RETURNING fence
"""

EXPIRE = "DELETE FROM claim WHERE key = ? AND expires <= ? RETURNING state"

ANY_CLAIM = "SELECT EXISTS (SELECT 1 FROM claim WHERE key = ?)"

OF_NAME = """
SELECT number, owner, state, mode, capacity, ttl, min_hold, host, pid, label, reason,
       fence, since, expires, abandoned, broken, bell FROM claim
WHERE key = ?
"""

OF_OWNER = """
SELECT number, owner, state, mode, capacity, ttl, min_hold, host, pid, label, reason,
       fence, since, expires, abandoned, broken, bell FROM claim
WHERE key = ? AND owner = ?
"""

# key, owner -> the grant that was made for a waiter, and not broken since, with the fences that are kept free behind it
HANDED_OVER = """
SELECT claim.fence, claim.since, claim.expires, abandoned, lock.fence - claim.fence FROM claim JOIN lock USING (key)
WHERE key = ? AND claim.owner = ? AND state = 1 AND broken IS NULL AND bell IS NOT NULL
"""

HAND_OVER = "UPDATE claim SET state = ?, since = ?, expires = ?, fence = ?, abandoned = ? WHERE number = ?"

WAITING = """
SELECT number, owner, state, mode, capacity, ttl, min_hold, host, pid, label, reason,
       fence, since, expires, abandoned, broken, bell FROM claim
WHERE key = ? AND state = 3 AND expires > ? ORDER BY number
"""

# Holders, and who is kept for a min_hold.
HELD = """
SELECT number, owner, state, mode, capacity, ttl, min_hold, host, pid, label, reason,
       fence, since, expires, abandoned, broken, bell FROM claim
WHERE key = ? AND state IN (1, 2) AND expires > ? ORDER BY number
"""

# key, first state, last state, number -> how many come before that number, and whether one wants the name alone. The
# first is counted in the index alone, the second ends with the first row as a rule.
CROWD = """
SELECT (SELECT count(*) FROM claim WHERE key = ?1 AND state BETWEEN ?2 AND ?3 AND number < ?4),
       EXISTS (SELECT 1 FROM claim WHERE key = ?1 AND state BETWEEN ?2 AND ?3 AND number < ?4 AND mode = 'exclusive')
"""

SOONEST_END = "SELECT min(expires) FROM claim WHERE key = ? AND state IN (1, 2)"

ADD_CLAIM = """
INSERT INTO claim (key, owner, state, mode, capacity, ttl, min_hold, host, pid, label, reason,
                   fence, since, expires, abandoned, bell)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
"""

UPDATE_CLAIM = "UPDATE claim SET state = ?, expires = ?, fence = ?, broken = ?, bell = ? WHERE number = ?"

REMOVE = "DELETE FROM claim WHERE number = ?"

# first key -> the names from there on that may be in use
USED = """
SELECT key, shape, fence, since, expires, host, pid, label, reason FROM lock
WHERE key >= ? AND shape > 0 ORDER BY key
"""

# --- records

READ_RECORD = "SELECT value, fence, expires FROM record WHERE key = ?"

# key, fence: from now on no lower fence writes here. A row without a record is one that has run out.
RAISE_FENCE = """
INSERT INTO record (key, value, fence, expires, expires_wall, ttl) VALUES (?, x'', ?, 0, 0, 0)
ON CONFLICT (key) DO UPDATE SET fence = excluded.fence WHERE excluded.fence > fence
"""

# key, value, fence, expires, expires_wall, ttl -> one row changed, unless a higher fence was seen
WRITE_RECORD = """
INSERT INTO record (key, value, fence, expires, expires_wall, ttl) VALUES (?, ?, ?, ?, ?, ?)
ON CONFLICT (key) DO UPDATE SET
  value = excluded.value, fence = excluded.fence, expires = excluded.expires, expires_wall = excluded.expires_wall,
  ttl = excluded.ttl
WHERE excluded.fence >= fence
"""

# --- cleaning, a slice of the keys at a time

# after this key, limit -> how many rows the slice has, and its last key
SLICE_OF_LOCKS = "SELECT count(*), max(key) FROM (SELECT key FROM lock WHERE key > ? ORDER BY key LIMIT ?)"

SLICE_OF_RECORDS = "SELECT count(*), max(key) FROM (SELECT key FROM record WHERE key > ? ORDER BY key LIMIT ?)"

# after this key, up to this key, now, now, now
EXPIRED_KEYS = """
SELECT key FROM lock WHERE key > ? AND key <= ? AND (
  (shape = 1 AND expires <= ?)
  OR (shape = 2 AND (EXISTS (SELECT 1 FROM claim WHERE claim.key = lock.key AND expires <= ?)
      OR abandoned_until BETWEEN 0.000001 AND ?)))
"""

# after this key, up to this key, fence: a row may go once the wall clock alone gives higher fences, with a day to spare
CLEAN_LOCKS = "DELETE FROM lock WHERE key > ? AND key <= ? AND shape = 0 AND fence < ?"

# after this key, up to this key, now, fence: what has run out, once its fence is a day old as well
CLEAN_RECORDS = "DELETE FROM record WHERE key > ? AND key <= ? AND expires <= ? AND fence < ?"
