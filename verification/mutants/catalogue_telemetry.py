"""Known bugs that named tests must see: metrics, spans and the exporter."""

from __future__ import annotations

from verification.mutants.catalogue import Mutant

__all__ = ["TELEMETRY_MUTANTS"]

_RECORDER = "telemetry/recorder.py"
_METRICS = "tests/telemetry/test_telemetry_metrics.py::"
_BATCHES = "tests/telemetry/test_telemetry_batches.py::"
_FLEET = "tests/telemetry/test_fleet_state.py::"
_PIECES = "tests/telemetry/test_telemetry_pieces.py::"

TELEMETRY_MUTANTS: tuple[Mutant, ...] = (
    Mutant(
        "telemetry-groups-without-bound",
        "every group becomes a label, however many there are",
        "telemetry/labels.py",
        "        if len(self.known) <= self._most:\n",
        "        if len(self.known) <= 10_000:\n",
        (f"{_METRICS}test_names_are_in_no_label_and_groups_are_bounded",),
    ),
    Mutant(
        "telemetry-waiter-for-ever",
        "a call that ends without the lock is still counted as a waiter",
        _RECORDER,
        "        if event.call:\n            self._stop_waiting(event.call)\n        self._sink.observe(",
        "        self._sink.observe(",
        (f"{_METRICS}test_a_call_that_waits_is_a_waiter_until_it_ends",),
    ),
    Mutant(
        "telemetry-release-failure-without-fence",
        "a release that failed does not say which grant it was, so that it counts as held for ever",
        "_core/release.py",
        "happened.ReleaseFailed(tenure.name, text, fence=tenure.grant.fence)",
        "happened.ReleaseFailed(tenure.name, text)",
        (f"{_METRICS}test_a_release_without_an_answer_ends_the_hold",),
    ),
    Mutant(
        "telemetry-child-holds",
        "a forked child shows what its parent holds",
        _RECORDER,
        "        self._held.clear()\n        self._holds",
        "        self._holds",
        ("tests/telemetry/test_telemetry_processes.py::test_a_forked_child_holds_nothing_of_its_parents",),
    ),
    Mutant(
        "telemetry-counted-twice",
        "a client that is switched on twice is counted twice",
        _RECORDER,
        "    if recorders.setdefault(place, recorder) is not recorder:\n",
        "    if recorders.setdefault(place, recorder) is None:\n",
        (f"{_METRICS}test_a_client_is_reported_once_and_two_clients_share_the_metrics",),
    ),
    Mutant(
        "telemetry-loss-is-no-event",
        "the span of a hold does not say that it was lost",
        _RECORDER,
        "        self._during(event.name, event.fence, event)\n        self._end(",
        "        self._end(",
        ("tests/telemetry/test_telemetry_spans.py::test_a_failed_renewal_and_the_loss_are_events_of_the_span",),
    ),
    Mutant(
        "telemetry-bounds-belong-above",
        "a value that is the bound of a bucket is counted in the next one",
        "telemetry/durations.py",
        "            upto = bisect_right(taken, bound, before)\n",
        "            upto = bisect_right(taken, bound - 1e-9, before)\n",
        (f"{_BATCHES}test_a_histogram_shows_what_the_librarys_own_would",),
    ),
    Mutant(
        "telemetry-files-are-late",
        "in Prometheus' mode for several processes values are kept in memory",
        "telemetry/prometheus_sink.py",
        "kind = PrometheusSink if SEVERAL_PROCESSES in os.environ else CollectingPrometheusSink",
        "kind = CollectingPrometheusSink",
        (f"{_BATCHES}test_in_the_mode_for_several_processes_each_value_is_written_at_once",),
    ),
    Mutant(
        "telemetry-counted-again",
        "a batch that was counted is counted again at the next collection",
        "telemetry/durations.py",
        "        del values[:number]\n",
        "",
        (f"{_BATCHES}test_a_histogram_shows_what_the_librarys_own_would",),
    ),
    Mutant(
        "exporter-shows-the-past",
        "while the store is away, the exporter says that it is up",
        "cli/exporter.py",
        "[(None, float(state.error is None))]",
        "[(None, 1.0)]",
        (f"{_FLEET}test_a_store_that_is_away_shows_no_figures_and_comes_back",),
    ),
    Mutant(
        "exporter-asks-for-each-scrape",
        "the store is asked again although the last answer is young",
        "fleet.py",
        "now - state.read_at < self._max_age",
        "now - state.read_at < 0",
        (f"{_FLEET}test_the_store_is_asked_once_by_many_and_again_only_when_the_answer_is_old",),
    ),
    Mutant(
        "telemetry-holds-of-several-processes",
        "where several processes report to Prometheus, how long locks were held is not counted",
        "telemetry/prometheus_sink.py",
        "                note_hold(seconds)\n",
        "                pass\n",
        (f"{_PIECES}test_in_the_mode_for_several_processes_each_value_is_counted_at_once_and_as_otherwise",),
    ),
)
