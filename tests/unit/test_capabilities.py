"""What a store does not promise is refused in the words of a user, with the stores that have it."""

from __future__ import annotations

from typing import Any

import pytest

import leasehold
from leasehold import UnsupportedCapability
from leasehold._core.capabilities import HAD_AT, inspecting, operating, pausing
from leasehold.testing.contract import REQUIRED
from leasehold.values import Capability

SCHEMES = {
    "local:": "sqlite", "redis://": "redis", "postgresql://": "postgresql", "mysql://": "mysql", "nats://": "nats",
    "etcd://": "etcd",
}  # fmt: skip


@pytest.mark.parametrize("capability", [Capability.RECORD, Capability.MIN_HOLD, Capability.RANGES, Capability.PAUSE])
def test_the_stores_that_are_named_are_those_that_have_it(capability: Capability) -> None:
    _, where = HAD_AT[capability]
    assert {SCHEMES[word.strip(",")] for word in where.split() if word != "or"} == {
        store for store, promised in REQUIRED.items() if capability in promised and store != "memory"
    }


@pytest.mark.parametrize("capability", [Capability.SHARED, Capability.PERMITS, Capability.FIFO])
def test_the_stores_that_are_excepted_are_those_without_it(capability: Capability) -> None:
    lacking = {store for store, promised in REQUIRED.items() if capability not in promised}
    sessions = {store for store in REQUIRED if "session" in store}
    excepted = {"redlock"} | (sessions if "session" in HAD_AT[capability][1] else set())
    assert lacking == excepted


def test_a_job_that_runs_once_is_refused_before_any_io_with_the_stores_that_can() -> None:
    client = leasehold.connect("redlock://127.0.0.1:1,127.0.0.1:2,127.0.0.1:3")
    with pytest.raises(leasehold.UnsupportedCapability, match=r"jobs that run once.* use local:, redis://"):
        client.once("job", every="1d")
    client.close()


class Bare:
    """A store with these capabilities, and no methods for operators."""

    label = "bare"

    def __init__(self, *capabilities: Capability) -> None:
        self.capabilities = frozenset(capabilities)


@pytest.mark.parametrize(
    ("port", "needed"),
    [(inspecting, Capability.INSPECT), (operating, Capability.INSPECT), (pausing, Capability.PAUSE)],
    ids=["inspecting", "operating", "pausing"],
)
def test_a_port_is_had_only_from_a_store_that_promises_it(port: Any, needed: Capability) -> None:
    others = [capability for capability in Capability if capability is not needed]
    with pytest.raises(UnsupportedCapability) as refused:
        port(Bare(*others))
    assert refused.value.backend == "bare"
    promised: Any = Bare(needed)
    if port is operating:  # the promise alone breaks no lock
        with pytest.raises(UnsupportedCapability):
            port(promised)
    else:
        assert port(promised) is promised


@pytest.mark.parametrize(
    ("option", "value", "missing"),
    [("min_hold", "5s", r"has no min_hold \(min_hold\); use local:"), ("linger", "20ms", r"has no linger.*use local:")],
)
def test_an_option_that_a_store_cannot_keep_is_refused_before_any_io_and_nothing_else_is(
    option: str, value: str, missing: str
) -> None:
    client = leasehold.connect("redlock://127.0.0.1:1,127.0.0.1:2,127.0.0.1:3")
    with pytest.raises(leasehold.UnsupportedCapability, match=missing):
        client.lock("x", **{option: value})  # type: ignore[arg-type]
    assert client.lock("x", **{option: 0}).name == "x"  # type: ignore[arg-type]
    client.close()
