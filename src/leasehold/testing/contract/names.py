"""Any text of up to 512 bytes is a name, and no two names meet, however hostile."""

from __future__ import annotations

import unicodedata
from typing import TYPE_CHECKING

from leasehold.testing.contract.registry import store_case
from leasehold.values import Capability

if TYPE_CHECKING:
    from leasehold.testing.contract.lab import Lab

_PIECES = (
    "a", "A", "ä", unicodedata.normalize("NFD", "ä"), "a ", " a", "a\t", "\x00", "a\x00b", "\n", "\r\n", "\x1b[31m",
    "*", "?", "[a]", "{", "}", "{}", "{a}", "}a{", "a{b}c", "/", "//", "a/b", "../a", "..", ".", "/zookeeper", "a//b",
    ":", "a:b", "::", "%", "%25", "%3A", "%00", "\\", "a\\b", "'", '"', "';--", "$$", "`", ";", "a;b", "#", "&", "=",
    "🔒", "🔒🔒", "\u202e", "\u200b", "\ufeff", "Ω", "\u2126", "\u017f", "s", "ß", "ss", "İ", "i", "0", "00", "1e3",
    "-1", "NULL", "null", "None", "True", "lock", "queue", "fence", "__proto__", "CON", "a.", "a..", "~", "~root",
    "$HOME",
)  # fmt: skip


def hostile_names() -> list[str]:
    """300 names that a careless store would mix up."""
    names = list(_PIECES)
    names += [piece * 2 for piece in _PIECES]
    names += [f"x{piece}" for piece in _PIECES]
    names += [f"{piece}x" for piece in _PIECES]
    names += ["n" * length for length in (63, 64, 65, 191, 192, 193, 255, 256, 257, 511, 512)]
    names += ["n" * 511 + "m", "ä" * 256, "🔒" * 128, "n" * 64 + "A", "n" * 64 + "a"]
    return list(dict.fromkeys(names))[:300]


@store_case()
async def three_hundred_hostile_names_are_independent(lab: Lab) -> None:
    names = hostile_names()
    assert len(names) == 300
    client = lab.client(ttl=max(60.0, lab.ttl * 10))
    leases = {name: await client.lock(name).try_acquire() for name in names}
    refused = [name for name, lease in leases.items() if lease is None]
    assert not refused, f"these met another name: {refused!r}"
    for name in names[::7]:
        assert await client.lock(name).try_acquire() is None, f"{name!r} could be had twice"
    if Capability.INSPECT in lab.capabilities:
        assert sorted(state.name for state in await client.locks()) == sorted(names)
    for lease in leases.values():
        assert lease is not None
        assert await lease.release() is True


@store_case()
async def namespaces_keep_applications_apart(lab: Lab) -> None:
    pairs = [("a", "b:c"), ("a:b", "c"), ("a%3Ab", "c"), ("A", "b:c")]
    leases = []
    for namespace, name in pairs:
        client = lab.client(namespace=f"{lab.namespace}{namespace}")
        lease = await client.lock(name).try_acquire()
        assert lease is not None, f"{name!r} in {namespace!r} met another one"
        leases.append(lease)
    for lease in leases:
        await lease.release()
