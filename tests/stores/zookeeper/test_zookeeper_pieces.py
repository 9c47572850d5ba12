"""The parts of the ZooKeeper store that need no server: validity, names and data of nodes, the queue, options."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from kazoo.security import CREATOR_ALL_ACL, OPEN_ACL_UNSAFE

from leasehold._backends.zookeeper.claim_node import Registry
from leasehold._backends.zookeeper.fences import Fences
from leasehold._backends.zookeeper.keys import NodeData, Paths, Sibling, key_of, node_id, node_prefix, parse_node
from leasehold._backends.zookeeper.options import Options
from leasehold._backends.zookeeper.pool import MOST_SESSIONS, Pool, rounded
from leasehold._backends.zookeeper.queue import QueueView, is_admitted, split
from leasehold._backends.zookeeper.validity import Validity, session_timeout
from leasehold._runtimes.threads import ThreadRuntime, run
from leasehold.errors import BackendRejected, ConfigurationError
from leasehold.store_url import StoreURL
from leasehold.testing.contract.names import hostile_names
from leasehold.values import Claim, Holder, Mode

# --- validity


def test_a_session_is_valid_for_two_thirds_of_its_timeout_after_the_send() -> None:
    validity = Validity(12.0, opened=100.0)
    validity.answered(102.0)
    assert validity.until == 110.0
    assert validity.ttl == 8.0


def test_an_answer_after_a_pause_counts_from_what_was_sent_before_it() -> None:
    """The leader may not have seen the session during the pause: the send before it is what counts."""
    validity = Validity(12.0, opened=100.0)
    validity.answered(102.0)
    validity.answered(112.5)  # nothing was sent for 10.5 s
    assert validity.until == pytest.approx(102.0 + 3.96 + 8.0)
    assert validity.until <= 102.0 + 12.0


def test_an_answer_right_behind_a_pause_proves_no_more_than_the_first_one() -> None:
    """The server answered both, and may be cut off from its leader before it has reported either."""
    validity = Validity(12.0, opened=100.0)
    validity.answered(102.0)
    validity.answered(112.5)  # nothing was sent for 10.5 s
    validity.answered(112.6)
    assert validity.until <= 102.0 + 12.0
    assert validity.next_probe() == 113.6, "as soon as what was sent after the pause is reported, an answer proves more"
    validity.answered(113.7)
    assert validity.until == 121.7
    assert validity.next_probe() == 116.7


def test_answers_out_of_order_do_not_shorten_validity() -> None:
    validity = Validity(12.0, opened=100.0)
    validity.answered(103.0)
    validity.answered(101.0)
    assert validity.until == 111.0


def test_a_new_connection_counts_from_the_loss_of_the_old_one() -> None:
    validity = Validity(12.0, opened=100.0)
    validity.answered(101.0)
    validity.reconnected(108.0)
    validity.answered(109.0)
    assert validity.until == 117.0


def test_a_new_session_counts_from_its_opening() -> None:
    validity = Validity(12.0, opened=100.0)
    assert validity.until == 100.0, "nothing has confirmed it"
    assert validity.next_probe() == 103.0
    validity.answered(100.5)
    assert validity.until == 108.5


def test_an_answer_out_of_order_brings_no_probe_forward() -> None:
    validity = Validity(12.0, opened=100.0)
    validity.answered(103.0)
    validity.answered(101.0)
    assert validity.next_probe() == 106.0


@pytest.mark.parametrize(("answered", "since", "touched"), [(101.0, 108.0, 108.0), (105.0, 103.0, 105.0)])
def test_the_next_probe_on_a_new_connection_counts_from_the_later_of_loss_and_answer(
    answered: float, since: float, touched: float
) -> None:
    validity = Validity(12.0, opened=100.0)
    validity.answered(answered)
    until = validity.until
    validity.reconnected(since)
    assert validity.next_probe() == touched + 3.0, "there is no gap to close"
    assert validity.until == until, "a connection proves nothing"


@pytest.mark.parametrize(("ttl", "timeout"), [(10.0, 15.0), (10.0001, 15.001), (0.1, 0.15), (1.3, 1.95), (7.0, 10.5)])
def test_a_session_timeout_is_half_a_ttl_more_in_whole_milliseconds_and_never_less(ttl: float, timeout: float) -> None:
    assert session_timeout(ttl) == timeout
    assert Validity(timeout, 0.0).ttl == round(timeout * 2 / 3, 6) >= ttl


@given(st.lists(st.floats(0, 100), min_size=2, max_size=20))
def test_validity_never_outlives_a_timeout_after_the_last_send_that_is_reported(sends: list[float]) -> None:
    """What a leader certainly counts was sent half a tick before the last; it waits the whole timeout after that."""
    validity = Validity(12.0, opened=0.0)
    sends = sorted(sends)
    for sent in sends:
        validity.answered(sent)
    assert validity.until <= max(sent for sent in [0.0, *sends] if sent <= max(sends[-1] - 1.0, 0.0)) + 12.0


@given(st.lists(st.floats(0, 3), min_size=2, max_size=20))
def test_a_session_that_sends_often_enough_is_always_valid_for_its_whole_ttl(pauses: list[float]) -> None:
    validity, sent = Validity(12.0, opened=0.0), 0.0
    for pause in pauses:
        sent += pause
        validity.answered(sent)
        assert validity.until >= sent + 8.0 - 0.05


@given(st.floats(0.1, 10_000))
def test_a_grant_is_valid_for_at_least_its_ttl(ttl: float) -> None:
    assert Validity(session_timeout(rounded(ttl)), 0.0).ttl >= ttl * (1 - 1e-6)


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


def test_the_name_of_a_node_shows_its_kind_and_not_its_owner() -> None:
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


def test_node_data_survives_the_way_to_the_store_and_foreign_data_is_refused() -> None:
    data = NodeData(Holder("host", 7, "label", "reason"), 45.0, 2**40, granted=True, broken="stuck")
    assert NodeData.decode(data.encode()) == data
    plain = NodeData(Holder("host", 7), 45.0, 0)
    assert NodeData.decode(plain.encode()) == plain
    assert json.loads(plain.encode()) == {"v": 1, "host": "host", "pid": 7, "timeout": 45.0}, (
        "the kit's form of a holder"
    )
    for foreign in (b"", b"[]", b"127.0.0.1", b"\xff", b'{"timeout": "x"}'):
        with pytest.raises(BackendRejected):
            NodeData.decode(foreign)


def test_node_data_of_an_older_and_of_a_newer_version_is_read() -> None:
    older = b'{"host":"h","pid":7,"label":"l","reason":"r","timeout":45.0,"floor":9,"granted":true,"broken":"stuck"}'
    assert NodeData.decode(older) == NodeData(Holder("h", 7, "l", "r"), 45.0, 9, granted=True, broken="stuck")
    newer = b'{"v":2,"host":"h","pid":7,"region":"north","timeout":45.0}'
    assert NodeData.decode(newer) == NodeData(Holder("h", 7), 45.0, 0)
    assert NodeData.decode(b"{}") == NodeData(Holder("", 0), 0.0, 0), "fields without a value were left out"


# --- the queue


def siblings(text: str) -> list[Sibling]:
    """`x1 s2 p3`: kinds in order; permits are of two."""
    found = []
    for number, word in enumerate(text.split()):
        letter = "p2" if word[0] == "p" else word[0]
        found.append(parse_node(f"{letter}-{word}-{number:010d}"))
    return found


def names(found: list[Sibling]) -> list[str]:
    return [sibling.id for sibling in found]


def queue(mode: Mode, text: str, capacity: int = 1) -> QueueView:
    view = QueueView(mode, capacity)
    view.listed(siblings(text), 1000)
    return view


def watched(view: QueueView) -> list[str]:
    return [name.split("-")[1] for name in view.to_watch()]


def full(view: QueueView, short: str) -> str:
    return next(sibling.name for sibling in view.ahead if sibling.id == short)


def test_holders_and_waiters_are_separated_by_their_order() -> None:
    for text, holders, waiters in (
        ("x1 x2", "x1", "x2"),
        ("s1 s2 x3 s4", "s1 s2", "x3 s4"),
        ("x1 s2 s3", "x1", "s2 s3"),
        ("p1 p2 p3 p4", "p1 p2", "p3 p4"),
    ):
        holding, waiting = split(siblings(text))
        assert (names(holding), names(waiting)) == (holders.split(), waiters.split())


@given(st.lists(st.sampled_from(["x", "s"]), max_size=8), st.sampled_from([Mode.EXCLUSIVE, Mode.SHARED]))
def test_waiters_ahead_are_counted(kinds: list[str], mode: Mode) -> None:
    view = queue(mode, " ".join(f"{kind}{place}" for place, kind in enumerate(kinds)))
    assert view.waiters_ahead == len(split(view.ahead)[1])


@given(st.integers(0, 8), st.integers(1, 4))
def test_waiters_for_a_permit_are_counted_too(number: int, capacity: int) -> None:
    siblings_ahead = [parse_node(f"p{capacity}-{place}-{place:010d}") for place in range(number)]
    view = QueueView(Mode.PERMIT, capacity)
    view.listed(siblings_ahead, 1000)
    assert view.waiters_ahead == len(split(siblings_ahead)[1])


def test_an_exclusive_claim_watches_only_the_last_one_ahead() -> None:
    view = queue(Mode.EXCLUSIVE, "x1 x2 x3")
    assert not view.is_turn
    assert view.waiters_ahead == 2
    assert watched(view) == ["x3"]
    view.watched.update(view.to_watch())
    assert watched(view) == []


def test_when_the_claim_ahead_is_granted_all_before_it_are_gone() -> None:
    view = queue(Mode.EXCLUSIVE, "x1 x2 x3")
    view.granted(full(view, "x3"))
    assert names(view.ahead) == ["x3"]
    assert not view.is_stale
    view.gone(full(view, "x3"))
    assert view.is_turn


def test_when_the_one_ahead_vanishes_the_others_may_have_gone_unseen() -> None:
    view = queue(Mode.EXCLUSIVE, "x1 x2 x3")
    view.gone(full(view, "x3"))
    assert view.is_stale
    view.listed(siblings("x1 x2"), 1000)
    assert watched(view) == ["x2"]
    view.gone(full(view, "x2"))
    assert watched(view) == ["x1"], "one that is left is simply watched"


def test_a_reader_watches_the_last_writer_ahead_and_no_reader() -> None:
    view = queue(Mode.SHARED, "x1 s2 x3 s4")
    assert watched(view) == ["x3"]
    view.granted(full(view, "x3"))
    assert names(view.ahead) == ["x3", "s4"]
    view.gone(full(view, "x3"))
    assert view.is_turn
    assert queue(Mode.SHARED, "s1 s2").is_turn


def test_a_writer_waits_for_every_reader() -> None:
    view = queue(Mode.EXCLUSIVE, "s1 s2")
    assert watched(view) == ["s2"]
    view.gone(full(view, "s2"))
    assert not view.is_turn
    assert watched(view) == ["s1"]
    view.gone(full(view, "s1"))
    assert view.is_turn


def test_a_granted_reader_shows_that_no_writer_is_ahead_of_it() -> None:
    view = queue(Mode.EXCLUSIVE, "x1 s2 s3")
    view.granted(full(view, "s3"))
    assert names(view.ahead) == ["s2", "s3"]


def test_the_first_waiter_for_a_permit_watches_all_holders_and_the_next_only_the_one_ahead() -> None:
    first = queue(Mode.PERMIT, "p1 p2", 2)
    assert watched(first) == ["p1", "p2"]
    first.gone(full(first, "p1"))
    assert first.is_turn, "whichever holder leaves first"
    second = queue(Mode.PERMIT, "p1 p2 p3", 2)
    assert watched(second) == ["p3"]
    second.granted(full(second, "p3"))
    assert second.is_stale, "now it is the first waiter, and has to learn who holds"
    second.listed(siblings("p2 p3"), 1000)
    assert watched(second) == ["p2", "p3"]


def test_a_lost_connection_takes_every_watch_away() -> None:
    view = queue(Mode.EXCLUSIVE, "x1 x2")
    view.watched.update(view.to_watch())
    view.watches_lost()
    assert view.is_stale
    assert not view.is_turn
    view.listed(siblings("x1 x2"), 1000)
    assert watched(view) == ["x2"]


@given(st.lists(st.sampled_from(["x", "s"]), max_size=8), st.sampled_from([Mode.EXCLUSIVE, Mode.SHARED]))
def test_a_watched_node_is_always_in_the_way(kinds: list[str], mode: Mode) -> None:
    """A claim that is not admitted watches a node, and without that node's end it could not be admitted earlier."""
    view = queue(mode, " ".join(f"{kind}{place}" for place, kind in enumerate(kinds)))
    assume(not view.is_turn)
    assert view.to_watch()
    others = [sibling for sibling in view.ahead if sibling.name in view.to_watch()]
    assert not is_admitted(mode, 1, others), "if only the watched are left, it must still wait"


# --- options


def options(url: str) -> Options:
    return Options.from_url(StoreURL.parse(url))


def test_hosts_root_and_ports_come_from_the_url() -> None:
    found = options("zk://h1,h2:2190,[::1]:7/a/b")
    assert found.address == "h1:2181,h2:2190,[::1]:7"
    assert found.root == "/a/b"
    assert options("zk://h").root == "/leasehold"
    assert options("zks://h").address == "h:2281"


def test_tls_checks_certificate_and_host_name_by_default() -> None:
    checked = {"use_ssl": True, "verify_certs": True, "check_hostname": True, "randomize_hosts": True}
    assert options("zks://h").kazoo_options == checked
    assert options("zks://h?tls_ca=/ca.pem").kazoo_options == {**checked, "ca": "/ca.pem"}
    assert options("zks://h?check_hostname=no").kazoo_options == {**checked, "check_hostname": False}
    careless = options("zks://h?tls_verify=no").kazoo_options
    assert careless == {**checked, "verify_certs": False, "check_hostname": False}
    assert options("zks://h").uses_tls
    assert not options("zk://h").uses_tls


def test_a_client_certificate_is_an_identity() -> None:
    shown = options("zks://h?tls_cert=/c.pem&tls_key=/k.pem&tls_key_password=p")
    names = ("certfile", "keyfile", "keyfile_password")
    assert [shown.kazoo_options[name] for name in names] == ["/c.pem", "/k.pem", "p"]
    assert list(shown.acl) == CREATOR_ALL_ACL


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("ca=/ca.pem", "tls_ca"),
        ("certfile=/c.pem", "tls_cert"),
        ("keyfile=/k.pem", "tls_key"),
        ("keyfile_password=p", "tls_key_password"),
        ("verify_certs=no", "tls_verify"),
        ("use_ssl=1", "zks://"),
        ("tls=1", "zks://"),
    ],
)
def test_an_option_of_an_older_version_is_refused_with_its_new_name(old: str, new: str) -> None:
    with pytest.raises(ConfigurationError, match=f"no option '{old.partition('=')[0]}'; it is called {new}"):
        options(f"zks://h?{old}")


def test_an_account_keeps_others_out() -> None:
    assert list(options("zk://h").acl) == OPEN_ACL_UNSAFE
    known = options("zk://user:pass@h")
    assert known.auth == (("digest", "user:pass"),)
    assert list(known.acl) == CREATOR_ALL_ACL
    assert "pass" not in known.label
    assert "pass" not in repr(known)
    (first, second) = options("zk://h?acl=digest:user:hash=:cdrwa,world:anyone:r").acl
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
        "zk://h?tls_ca=/ca.pem",
        "zk://h?check_hostname=no",
        "zks://h?tls_verify=perhaps",
        "zks://h?tls_cert=/c.pem",
        "zk://h?fence_floor=-1",
        "zk://h?nonsense=1",
        "zk://h?timeout=5",
    ],
)
def test_what_cannot_be_right_is_refused_before_any_io(url: str) -> None:
    with pytest.raises(ConfigurationError):
        options(url)


def test_without_room_for_another_session_a_claim_lives_on_the_next_longer_one() -> None:
    """A lock is taken for as long as its session after a crash, so not on any longer one."""
    options = Options((("127.0.0.1", 1),), "/pool", "zookeeper://x")
    pool = Pool(options, Paths("/pool"), Registry(), ThreadRuntime())
    for number in range(MOST_SESSIONS):
        session: Any = SimpleNamespace(is_over=lambda: False, is_idle=False, reserved={})
        pool._sessions[float(10 * number + 10)] = session
    assert pool.session_for(25.0, "owner") is pool._sessions[30.0]
    with pytest.raises(BackendRejected, match="different ttls"):
        pool.session_for(1000.0, "owner")


@pytest.mark.parametrize(
    ("floor", "lowest", "fence", "answer", "raised"),
    [
        (0, 100, 100, 100, None),
        (0, 100, 101, 101, 101),
        (1000, 100, 1050, 1100, None),  # neither alone is enough
        (1000, 100, 1100, 1100, None),
        (1000, 100, 1101, 1101, 1101),
        (1000, 5, 7, 1005, None),
    ],
)
def test_a_floor_is_raised_only_where_later_fences_would_be_too_low(
    floor: int, lowest: int, fence: int, answer: int, raised: int | None
) -> None:
    written: list[int] = []

    class Known(Fences):
        def __init__(self) -> None:
            """Nothing is asked of a server."""

        async def known(self, *_: object) -> int:
            return floor

        async def _raise(self, _: object, fence: int, __: float) -> int:
            written.append(fence)
            return fence

    session: Any = None
    assert run(Known().raise_above(session, fence, lowest)) == answer
    assert written == ([] if raised is None else [raised])
