"""Where several permits, grants, ttls or options meet, each has its own answer. On a simulated cluster."""

from __future__ import annotations

from typing import Any

import pytest

from leasehold._backends.etcd import backend as backend_module
from leasehold._backends.etcd.backend import EtcdBackend
from leasehold._backends.etcd.errors import CallFailed, to_backend_error
from leasehold._backends.etcd.options import read_url
from leasehold._backends.etcd.rpc import Method
from leasehold._runtimes.threads import ThreadRuntime
from leasehold.errors import BackendUnavailable
from leasehold.store_url import StoreURL
from leasehold.values import Mode
from tests.stores.etcd.etcd_bench import LABEL, REFUSED, Bench, granted, waiting
from tests.stores.etcd.etcd_histories import simulated


@simulated
@pytest.mark.parametrize("capacity", [2, 3])
async def test_holders_of_permits_are_not_counted_among_those_before_a_waiter(bench: Bench, capacity: int) -> None:
    holder, client = bench.client(), bench.client()

    def permit() -> Any:
        return bench.claim(mode=Mode.PERMIT, capacity=capacity)

    held = [granted(await holder.join(permit())) for _ in range(capacity)]
    places = [waiting(await client.join(permit())) for _ in range(4)]
    assert [place.ahead for place in places] == [0, 1, 2, 3]
    assert {place.holder for place in places} == {held[0].claim.holder}, "the one that holds for longest"
    assert await holder.release(held[1]) is True
    granted(await client.turn(places[0]))
    assert waiting(await client.turn(places[3])).ahead == 2


@simulated
async def test_renewal_of_several_grants_that_all_fail_is_an_error_also_when_they_share_a_session(bench: Bench) -> None:
    client = bench.client()
    grants = [granted(await client.join(bench.claim(f"ns:{name}"))) for name in "abc"]
    bench.plans[Method.LEASE_KEEP_ALIVE] = [REFUSED] * 9
    with pytest.raises(BackendUnavailable):
        await client.renew(grants)


@simulated
async def test_renewal_answers_the_grants_of_a_session_that_failed_with_its_error_and_renews_the_others(
    bench: Bench,
) -> None:
    client = bench.client()
    grants = [
        granted(await client.join(bench.claim(f"ns:{name}", ttl=ttl)))
        for name, ttl in (("a", 10.0), ("b", 20.0), ("c", 10.0), ("d", 20.0))
    ]
    bench.plans[Method.LEASE_KEEP_ALIVE] = [REFUSED] * 3
    answers = await client.renew(grants)
    assert [isinstance(answer, BackendUnavailable) for answer in answers] == [True, False, True, False]
    assert [granted(answers[place]).claim.key for place in (1, 3)] == ["ns:b", "ns:d"]


@simulated
async def test_opener_of_a_session_is_waited_for_three_seconds(bench: Bench) -> None:
    client = bench.client()
    until: list[float] = []
    openings = client._claims.sessions._opening
    bench.before[Method.LEASE_GRANT] = lambda: until.extend(each.until for each in openings.values())
    asked = client._claims.runtime.now()
    granted(await client.join(bench.claim()))
    assert until == [pytest.approx(asked + 3.0, abs=0.1)]
    assert openings == {}


def test_options_of_a_url_reach_every_part_of_the_store(monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[tuple[Any, float]] = []

    def open_wires(targets: Any, _: Any, longest_call: float) -> list[Any]:
        opened.append((targets, longest_call))
        return [object() for _ in targets]

    monkeypatch.setattr(backend_module, "open_wires", open_wires)
    url = "etcd://ana:pw@m1:1001,m2:1002/locks/deep?answer_timeout=7s&fence_floor=9"
    store: Any = EtcdBackend(read_url(StoreURL.parse(url)), ThreadRuntime())
    ((targets, longest_call),) = opened
    assert [(target.host, target.port, target.http_port) for target in targets] == [
        ("m1", 1001, 1001), ("m2", 1002, 1002)
    ]  # fmt: skip
    connection = store._connection
    assert (longest_call, connection.answer_timeout) == (7.0, 7.0)
    assert (connection.members, connection._user, connection._password) == (2, "ana", "pw")
    assert (store._claims.keys.root, store._claims.fences._least) == ("locks/deep/1/", 9)
    assert store.label == connection.label
    assert "pw" not in store.label


@pytest.mark.parametrize(
    ("details", "shown"),
    [
        ("", "no details"),
        ("broken\nand the way there", "broken"),
        ("x" * 300, "x" * 200),
        ("\nhidden", "no details"),
    ],
)
@pytest.mark.parametrize("code", ["INTERNAL", "PERMISSION_DENIED"])
def test_details_of_an_error_are_its_first_line_and_not_too_long(code: str, details: str, shown: str) -> None:
    assert f": {shown}; " in str(to_backend_error(CallFailed(code, details), LABEL, reads=False))
