"""The parts of the ZooKeeper store that decide without asking: belief, names of nodes, the line, settings."""

from __future__ import annotations

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from kazoo.security import CREATOR_ALL_ACL, OPEN_ACL_UNSAFE

from leasehold.backends.zookeeper.belief import Belief, session_timeout
from leasehold.backends.zookeeper.line import Line, is_admitted, split
from leasehold.backends.zookeeper.nodes import Facts, Paths, Sibling, key_of, node_id, node_prefix, parse_node
from leasehold.backends.zookeeper.pool import rounded
from leasehold.backends.zookeeper.settings import Settings
from leasehold.errors import BackendRejected, ConfigurationError
from leasehold.store_url import StoreURL
from leasehold.testing.contract.names import hostile_names
from leasehold.values import Claim, Holder, Mode

# --- belief


def test_a_session_is_believed_for_two_thirds_of_its_timeout_after_the_send() -> None:
    belief = Belief(12.0, opened=100.0)
    belief.answered(102.0)
    assert belief.until == 110.0
    assert belief.ttl == 8.0


def test_an_answer_after_a_pause_counts_from_what_was_sent_before_it() -> None:
    """The leader may not have heard of the session since: what it was told last is what counts."""
    belief = Belief(12.0, opened=100.0)
    belief.answered(102.0)
    belief.answered(112.5)  # nothing was sent for 10.5 s
    assert belief.until == 102.0 + 3.0 + 8.0
    assert belief.until <= 102.0 + 12.0
    belief.answered(112.6)
    assert belief.until == 120.6


def test_answers_out_of_order_do_not_take_belief_away() -> None:
    belief = Belief(12.0, opened=100.0)
    belief.answered(103.0)
    belief.answered(101.0)
    assert belief.until == 111.0


def test_a_new_connection_was_asked_for_after_the_old_one_was_lost() -> None:
    belief = Belief(12.0, opened=100.0)
    belief.answered(101.0)
    belief.reconnected(108.0)
    belief.answered(109.0)
    assert belief.until == 117.0


@given(st.lists(st.floats(0, 100), min_size=2, max_size=20))
def test_belief_never_outlives_a_timeout_after_the_send_before_the_last(sends: list[float]) -> None:
    """What a leader certainly counts is any send but the last one; it waits for the whole timeout after that."""
    belief = Belief(12.0, opened=0.0)
    sends = sorted(sends)
    for sent in sends:
        belief.answered(sent)
    assert belief.until <= max(sends[-2] + 12.0, 8.0)


@given(st.floats(0.1, 10_000))
def test_a_grant_is_believed_for_at_least_its_ttl(ttl: float) -> None:
    assert Belief(session_timeout(rounded(ttl)), 0.0).ttl >= ttl * (1 - 1e-6)


@given(st.floats(0.001, 1e6))
def test_ttls_are_rounded_up_to_two_digits(ttl: float) -> None:
    up = rounded(ttl)
    assert ttl * (1 - 1e-6) <= up <= ttl * 1.1 + 1e-6
    assert rounded(up) == pytest.approx(up)


# --- names


def claim(mode: Mode = Mode.EXCLUSIVE, capacity: int = 1, owner: str = "owner") -> Claim:
    return Claim("k", owner, 30.0, mode, capacity, 0.0, Holder("h", 1))


def test_hostile_names_stay_below_the_root_and_apart() -> None:
    paths = Paths("/base")
    names = hostile_names()
    made = {paths.lock(f"ns:{name}") for name in names}
    assert len(made) == len(names)
    for path in made:
        assert path.startswith("/base/locks/")
        child = path.removeprefix("/base/locks/")
        assert child.isascii()
        assert child.isprintable()
        assert "/" not in child
        assert child not in (".", "..")
    assert [key_of(paths.lock(f"ns:{name}").rpartition("/")[2]) for name in names] == [f"ns:{name}" for name in names]


def test_a_node_says_its_kind_and_not_its_owner() -> None:
    for mode, capacity, letter in ((Mode.EXCLUSIVE, 1, "x"), (Mode.SHARED, 1, "s"), (Mode.PERMIT, 12, "p12")):
        prefix = node_prefix(claim(mode, capacity, "secret"))
        assert prefix == f"{letter}-{node_id('secret')}-"
        assert "secret" not in prefix
        sibling = parse_node(f"{prefix}0000000042")
        assert (sibling.mode, sibling.capacity, sibling.sequence) == (mode, capacity, 42)
        assert not sibling.is_used_up


def test_numbers_that_would_repeat_are_refused() -> None:
    prefix = node_prefix(claim())
    assert parse_node(f"{prefix}2147483647").is_used_up
    assert parse_node(f"{prefix}-2147483648").is_used_up


@pytest.mark.parametrize(
    "name", ["", "lock", "x-1", "y-00-0000000001", "x-00-one", "p-00-0000000001", "-", "__lock__-1"]
)
def test_a_foreign_node_is_never_ignored(name: str) -> None:
    with pytest.raises(BackendRejected):
        parse_node(name)


def test_facts_survive_the_way_to_the_store_and_foreign_content_is_refused() -> None:
    facts = Facts(Holder("host", 7, "label", "reason"), 45.0, 2**40, granted=True, broken="stuck")
    assert Facts.decode(facts.encode()) == facts
    plain = Facts(Holder("host", 7), 45.0, 0)
    assert Facts.decode(plain.encode()) == plain
    for foreign in (b"", b"[]", b"127.0.0.1", b"\xff", b'{"timeout": "x"}'):
        with pytest.raises(BackendRejected):
            Facts.decode(foreign)


# --- the line


def siblings(text: str) -> list[Sibling]:
    """`x1 s2 p3`: kinds in order; permits are of two."""
    found = []
    for number, word in enumerate(text.split()):
        letter = "p2" if word[0] == "p" else word[0]
        found.append(parse_node(f"{letter}-{word}-{number:010d}"))
    return found


def names(found: list[Sibling]) -> list[str]:
    return [sibling.id for sibling in found]


def line(mode: Mode, text: str, capacity: int = 1) -> Line:
    standing = Line(mode, capacity)
    standing.see(siblings(text), 1000)
    return standing


def watched(standing: Line) -> list[str]:
    return [name.split("-")[1] for name in standing.to_watch()]


def full(standing: Line, short: str) -> str:
    return next(sibling.name for sibling in standing.earlier if sibling.id == short)


def test_holders_and_waiters_are_told_apart_by_their_order() -> None:
    for text, holders, waiters in (
        ("x1 x2", "x1", "x2"),
        ("s1 s2 x3 s4", "s1 s2", "x3 s4"),
        ("x1 s2 s3", "x1", "s2 s3"),
        ("p1 p2 p3 p4", "p1 p2", "p3 p4"),
    ):
        holding, waiting = split(siblings(text))
        assert (names(holding), names(waiting)) == (holders.split(), waiters.split())


@given(st.lists(st.sampled_from(["x", "s"]), max_size=8), st.sampled_from([Mode.EXCLUSIVE, Mode.SHARED]))
def test_those_who_wait_ahead_are_counted_as_they_are_told_apart(kinds: list[str], mode: Mode) -> None:
    standing = line(mode, " ".join(f"{kind}{place}" for place, kind in enumerate(kinds)))
    assert standing.ahead == len(split(standing.earlier)[1])


@given(st.integers(0, 8), st.integers(1, 4))
def test_those_who_wait_for_a_permit_are_counted_too(number: int, capacity: int) -> None:
    everybody = [parse_node(f"p{capacity}-{place}-{place:010d}") for place in range(number)]
    standing = Line(Mode.PERMIT, capacity)
    standing.see(everybody, 1000)
    assert standing.ahead == len(split(everybody)[1])


def test_an_exclusive_claim_watches_only_the_last_one_ahead() -> None:
    standing = line(Mode.EXCLUSIVE, "x1 x2 x3")
    assert not standing.is_mine
    assert standing.ahead == 2
    assert watched(standing) == ["x3"]
    standing.watched.update(standing.to_watch())
    assert watched(standing) == []


def test_when_the_one_ahead_is_granted_everybody_before_it_is_gone() -> None:
    standing = line(Mode.EXCLUSIVE, "x1 x2 x3")
    standing.granted(full(standing, "x3"))
    assert names(standing.earlier) == ["x3"]
    assert not standing.blind
    standing.gone(full(standing, "x3"))
    assert standing.is_mine


def test_when_the_one_ahead_vanishes_the_others_may_have_gone_unseen() -> None:
    standing = line(Mode.EXCLUSIVE, "x1 x2 x3")
    standing.gone(full(standing, "x3"))
    assert standing.blind
    standing.see(siblings("x1 x2"), 1000)
    assert watched(standing) == ["x2"]
    standing.gone(full(standing, "x2"))
    assert watched(standing) == ["x1"], "one that is left is simply watched"


def test_a_reader_watches_the_last_writer_ahead_and_no_reader() -> None:
    standing = line(Mode.SHARED, "x1 s2 x3 s4")
    assert watched(standing) == ["x3"]
    standing.granted(full(standing, "x3"))
    assert names(standing.earlier) == ["x3", "s4"]
    standing.gone(full(standing, "x3"))
    assert standing.is_mine
    assert line(Mode.SHARED, "s1 s2").is_mine


def test_a_writer_waits_for_every_reader() -> None:
    standing = line(Mode.EXCLUSIVE, "s1 s2")
    assert watched(standing) == ["s2"]
    standing.gone(full(standing, "s2"))
    assert not standing.is_mine
    assert watched(standing) == ["s1"]
    standing.gone(full(standing, "s1"))
    assert standing.is_mine


def test_a_granted_reader_tells_that_no_writer_is_ahead_of_it() -> None:
    standing = line(Mode.EXCLUSIVE, "x1 s2 s3")
    standing.granted(full(standing, "s3"))
    assert names(standing.earlier) == ["s2", "s3"]


def test_the_first_waiter_for_a_permit_watches_all_holders_and_the_next_only_the_one_ahead() -> None:
    first = line(Mode.PERMIT, "p1 p2", 2)
    assert watched(first) == ["p1", "p2"]
    first.gone(full(first, "p1"))
    assert first.is_mine, "whichever holder leaves first"
    second = line(Mode.PERMIT, "p1 p2 p3", 2)
    assert watched(second) == ["p3"]
    second.granted(full(second, "p3"))
    assert second.blind, "now it is the first waiter, and has to learn who holds"
    second.see(siblings("p2 p3"), 1000)
    assert watched(second) == ["p2", "p3"]


def test_a_lost_connection_takes_every_watch_away() -> None:
    standing = line(Mode.EXCLUSIVE, "x1 x2")
    standing.watched.update(standing.to_watch())
    standing.forget_watches()
    assert standing.blind
    assert not standing.is_mine
    standing.see(siblings("x1 x2"), 1000)
    assert watched(standing) == ["x2"]


@given(st.lists(st.sampled_from(["x", "s"]), max_size=8), st.sampled_from([Mode.EXCLUSIVE, Mode.SHARED]))
def test_whoever_is_watched_is_always_in_the_way(kinds: list[str], mode: Mode) -> None:
    """A claim that is not admitted watches somebody, and nobody else's going could admit it earlier."""
    standing = line(mode, " ".join(f"{kind}{place}" for place, kind in enumerate(kinds)))
    assume(not standing.is_mine)
    assert standing.to_watch()
    others = [sibling for sibling in standing.earlier if sibling.name in standing.to_watch()]
    assert not is_admitted(mode, 1, others), "if only the watched are left, it must still wait"


# --- settings


def settings(url: str) -> Settings:
    return Settings.from_url(StoreURL.parse(url))


def test_hosts_root_and_ports_come_from_the_url() -> None:
    found = settings("zk://h1,h2:2190,[::1]:7/a/b")
    assert found.address == "h1:2181,h2:2190,[::1]:7"
    assert found.root == "/a/b"
    assert settings("zk://h").root == "/leasehold"
    assert settings("zks://h").address == "h:2281"


def test_tls_checks_the_host_name_unless_told_otherwise() -> None:
    assert settings("zks://h?ca=/ca.pem").kazoo_options == {"ca": "/ca.pem", "use_ssl": True, "check_hostname": True}
    assert settings("zk://h?tls=1").uses_tls
    assert settings("zk://h?use_ssl=true").uses_tls
    assert "check_hostname" not in settings("zks://h?verify_certs=no").kazoo_options


def test_who_is_known_keeps_others_out() -> None:
    assert list(settings("zk://h").acl) == OPEN_ACL_UNSAFE
    known = settings("zk://user:pass@h")
    assert known.auth == (("digest", "user:pass"),)
    assert list(known.acl) == CREATOR_ALL_ACL
    assert "pass" not in known.label
    assert "pass" not in repr(known)
    (first, second) = settings("zk://h?acl=digest:user:hash=:cdrwa,world:anyone:r").acl
    assert (first.perms, first.id.scheme, first.id.id) == (31, "digest", "user:hash=")
    assert (second.perms, second.id.scheme, second.id.id) == (1, "world", "anyone")


@pytest.mark.parametrize(
    "url",
    [
        "zk://h/zookeeper/quota",
        "zk://h/a/../b",
        "zk://h/./b",
        "zk://h/a%00b",
        "zk://h?acl=creator",
        "zk://h?acl=world",
        "zk://h?acl=world:anyone:xyz",
        "zk://user@h",
        "zk://h?ca=/ca.pem",
        "zk://h?tls=perhaps",
        "zk://h?fence_floor=-1",
        "zk://h?nonsense=1",
        "zk://h?timeout=5",
    ],
)
def test_what_cannot_be_right_is_refused_before_any_io(url: str) -> None:
    with pytest.raises(ConfigurationError):
        settings(url)
