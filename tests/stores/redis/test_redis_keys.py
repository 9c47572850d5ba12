from __future__ import annotations

import fnmatch

import pytest
from hypothesis import given
from hypothesis import strategies as st
from redis.crc import key_slot

from leasehold._backends.redis.keys import Names, glob_escaped
from leasehold._backends.redis.scripts import script
from leasehold.kit.pauses import OWNER as PAUSED

names = st.text(min_size=1, max_size=40).map(lambda name: f"app:{name}")


@given(names)
def test_every_key_comes_back_from_its_redis_key(key: str) -> None:
    plain = Names("leasehold:", compat=False)
    assert plain.key_of(plain.keys(key).slot_key.decode(), "app:") == key


@given(names)
def test_every_key_comes_back_in_compat_mode_too(key: str) -> None:
    compat = Names("lock:", compat=True)
    assert compat.key_of(f"{compat.keys(key).base}:s", "app:") == key
    assert compat.key_of(compat.keys(key).base, "app:") is None


@given(names, names)
def test_distinct_names_share_no_key_in_compat_mode(one: str, other: str) -> None:
    compat = Names("lock:", compat=True)
    assert (compat.keys(one).base == compat.keys(other).base) == (one == other)


@given(names, names)
def test_distinct_names_never_share_a_key(one: str, other: str) -> None:
    plain = Names("leasehold:", compat=False)
    assert (plain.keys(one).packed == plain.keys(other).packed) == (one == other)


@pytest.mark.parametrize(
    ("name", "compat"),
    [
        *((name, False) for name in ("a", "}", "{}", "}{", "a}b", "{a}", "%7D", "é", "a b\n")),
        *(
            (name, True) for name in ("a", "%7D", "é", "a b\n")
        ),  # with braces it has a slot of the other program's choice
    ],
)
def test_all_keys_of_a_lock_lie_in_one_slot(name: str, compat: bool) -> None:
    keys = Names("lock:" if compat else "leasehold:", compat=compat).keys(f"app:{name}")
    packed = keys.packed.split(b"\r\n")
    whole = [*packed[1::2], keys.mark, keys.record]
    assert len({key_slot(key) for key in whole if key}) == 1


def test_no_name_can_choose_its_slot() -> None:
    plain = Names("leasehold:", compat=False)
    slots = {key_slot(plain.keys(f"app:{name}").slot_key) for name in ("{x}1", "{x}2", "{x}3", "}a", "}b", "}c")}
    assert len(slots) > 1


def test_a_pattern_matches_only_what_starts_like_it() -> None:
    plain = Names("leasehold:", compat=False)
    pattern = plain.pattern("app:a*[b]?")
    assert fnmatch.fnmatchcase(
        "leasehold:{app:a*[b]?}",
        pattern.replace("\\[", "[[]").replace("\\*", "[*]").replace("\\?", "[?]").replace("\\]", "]"),
    )
    assert "\\*\\[b\\]\\?" in pattern
    assert glob_escaped("a-b^c") == "a\\-b\\^c"


@pytest.mark.parametrize("name", ["acquire", "release", "renew", "withdraw", "break", "inspect", "raise_fence"])
def test_a_script_is_whole_and_documents_what_it_takes(name: str) -> None:
    from pathlib import Path

    import leasehold._backends.redis.scripts as package

    source = (Path(package.__file__).parent / f"{name}.lua").read_text()
    header = source.split("\nlocal", 1)[0]
    for word in ("KEYS", "ARGV", "Reply"):
        assert word in header
    assert len(script(name).digest) == 40


NAMES = ["a", "50%", "a%7Db", "a%257Db", "{x}", "}a{", "a}b"]


@pytest.mark.parametrize("name", NAMES)
def test_a_list_finds_the_name_behind_holders_waiters_and_a_pause_and_behind_nothing_else(name: str) -> None:
    names = Names("app:", compat=False)
    base = names.keys(f"ns:{name}").base
    assert [names.key_of(base + part, "ns:") for part in ("", ":q", f":x:{PAUSED}")] == [f"ns:{name}"] * 3
    assert {names.key_of(base + part, "ns:") for part in (":s", ":w", ":z", ":d", ":r", ":x:someone")} == {None}


@pytest.mark.parametrize("name", NAMES)
def test_a_list_in_compat_mode_finds_the_name_behind_our_own_keys_only(name: str) -> None:
    names = Names("app:", compat=True)
    keys = names.keys(f"ns:{name}")
    assert keys.slot_key == f"app:{name}".encode()
    for part in (":s", ":q", f":x:{PAUSED}"):
        assert names.key_of(keys.base + part, f"ns:{name}") == f"ns:{name}"
        assert names.key_of(keys.base + part, "ns:another") is None
    assert {names.key_of(keys.base + part, "ns:") for part in ("", ":w", ":z", ":d", ":x:someone")} == {None}
    assert names.pattern("ns:anything") == r"leasehold:{*"
