"""Jobs in the simulation: no slot that was recorded runs again, and the account of jobs notices what would be wrong."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import pytest

from leasehold._patterns import once, once_run
from leasehold._patterns.job_records import finished_facts
from leasehold.kit.records import KeptRecord
from leasehold.values import Skipped
from tests.forms import sized
from verification.simulation import Outcome, simulate
from verification.simulation.__main__ import main
from verification.simulation.campaign import replay_command
from verification.simulation.checkers import Beliefs
from verification.simulation.jobs import Jobs
from verification.simulation.run import RECORDING, STORES

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.timeout(600)  # seconds of work, on a core that others may want as well

SEEDS = {  # `make sim` runs thousands
    "memory": sized(100, 2_000),
    "sqlite": sized(20, 300),
    "redis": sized(15, 300),
    "etcd": sized(10, 200),
    "mysql": sized(5, 200),
    "nats": sized(8, 200),
}


@functools.cache
def outcomes(store: str) -> tuple[Outcome, ...]:
    return tuple(simulate(seed, store=store, program="jobs") for seed in range(SEEDS[store]))


def told(outcome: Outcome, store: str) -> str:
    found = [f"seed {outcome.seed} violates: {each.check}: {each.detail}" for each in outcome.violations]
    return "\n".join([*outcome.trace, *found, f"replay: {replay_command(outcome.seed, store, 'jobs')}"])


@pytest.mark.parametrize("store", sorted(RECORDING))
def test_no_seed_violates_a_check(store: str) -> None:
    failed = [told(outcome, store) for outcome in outcomes(store) if outcome.violations]
    assert not failed, failed[0]


@pytest.mark.parametrize("store", sorted(RECORDING))
def test_jobs_run_and_are_recorded_skipped_and_repeated(store: str) -> None:
    seeds, some = SEEDS[store], outcomes(store)
    assert sum(outcome.runs for outcome in some) > 5 * seeds
    assert sum(outcome.recorded_runs for outcome in some) > 3 * seeds
    assert sum(outcome.skips for outcome in some) > 5 * seeds
    assert sum(outcome.repeated_runs for outcome in some) > 0, "no holder vanished before its record"
    assert sum(outcome.losses for outcome in some) > seeds


def test_a_register_without_fencing_loses_what_runs_write() -> None:
    assert sum(outcome.unfenced_losses for outcome in outcomes("memory")) > 0


def test_the_same_seed_gives_the_same_trace() -> None:
    assert [simulate(seed, program="jobs") for seed in range(3)] == list(outcomes("memory")[:3])


@pytest.mark.parametrize("store", sorted(set(STORES) - RECORDING))
def test_a_store_without_records_is_refused(store: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ValueError, match="has no records"):
        simulate(0, store=store, program="jobs")
    with pytest.raises(SystemExit):
        main(["--store", store, "--program", "jobs", "--seed", "0"])
    assert "has no records, so that no job can run there" in capsys.readouterr().err


def test_the_lease_of_every_run_is_watched(monkeypatch: pytest.MonkeyPatch) -> None:
    admitted, begun = set(), set()
    admit, begin = Beliefs.admitted, Jobs.begun

    def note_admitted(self: Beliefs, link: Any, tenure: Any) -> None:
        admitted.add((tenure.name, tenure.grant.fence))
        admit(self, link, tenure)

    def note_begun(self: Jobs, asked: Any, run: Any) -> None:
        begun.add((run.name, run.fence))
        begin(self, asked, run)

    monkeypatch.setattr(Beliefs, "admitted", note_admitted)
    monkeypatch.setattr(Jobs, "begun", note_begun)
    assert simulate(1, program="jobs").runs == len(begun) > 0
    assert begun <= admitted


def with_facts(**changed: Callable[[Any], Any]) -> Callable[..., dict[str, Any]]:
    true_facts = finished_facts

    def facts(*words: Any, **options: Any) -> dict[str, Any]:
        made = true_facts(*words, **options)
        return made | {name: change(made[name]) for name, change in changed.items()}

    return facts


def skipped_by_nobody(name: str, _: object, slot: Any) -> Skipped:
    return Skipped(name, slot.label, None, 1.0)


@pytest.mark.parametrize(
    ("where", "what", "fault", "check"),
    [
        (once_run, "finished_facts", with_facts(fence=lambda fence: fence + 1), "a record of no run"),
        (once_run, "finished_facts", with_facts(failed=lambda failed: not failed), "a record says what is not so"),
        (once, "skipped_by", skipped_by_nobody, "skipped because of a record that is not there"),
        (KeptRecord, "write", lambda *_: True, "a confirmed record is not in the store"),
    ],
    ids=["of-nobody", "untrue", "made-up", "not-kept"],
)
def test_what_the_store_has_is_compared_with_what_happened(
    monkeypatch: pytest.MonkeyPatch, where: Any, what: str, fault: Any, check: str
) -> None:
    monkeypatch.setattr(where, what, fault)
    seen = next(outcome.violations for seed in range(20) if (outcome := simulate(seed, program="jobs")).violations)
    assert seen[0].check == check
