"""Known bugs that named tests must see: the dashboard and what protects it."""

from __future__ import annotations

from verification.mutants.catalogue import Mutant

__all__ = ["DASHBOARD_MUTANTS"]

_PROTECTION = "tests/web/test_dashboard_protection.py::"
_FACTS = "tests/web/test_dashboard_facts.py::"
_BROWSER = "tests/web/test_dashboard_browser.py::"
_QUESTIONS = "tests/web/test_dashboard_questions.py::"

DASHBOARD_MUTANTS: tuple[Mutant, ...] = (
    Mutant(
        "dashboard-reader-writes",
        "a viewer who may only look breaks a lock",
        "web/actions.py",
        "    if not viewer.may_write:\n",
        "    if False:\n",
        (f"{_PROTECTION}test_a_role_that_was_taken_away_counts_although_the_token_is_right",),
    ),
    Mutant(
        "dashboard-foreign-form",
        "a form on another site breaks locks in the name of whoever opens it",
        "web/protection.py",
        '    if site in (None, "same-origin") and (',
        "    if True or (",
        (f"{_PROTECTION}test_a_write_from_another_site_is_refused",),
    ),
    Mutant(
        "dashboard-token-of-anybody",
        "the token of one viewer is good for another",
        "web/protection.py",
        'f"{session}\\0{viewer.name}".encode()',
        "session.encode()",
        (f"{_PROTECTION}test_a_write_needs_the_token_of_its_own_browser_and_viewer",),
    ),
    Mutant(
        "dashboard-any-host",
        "a page of another site reads the dashboard under a name that it points here",
        "web/protection.py",
        "self._hosts is None or name in self._hosts or _is_address(name)",
        "self._hosts is None or name.endswith(tuple(self._hosts)) or name",
        (f"{_PROTECTION}test_only_own_names_and_addresses_are_answered",),
    ),
    Mutant(
        "dashboard-proxy-from-anywhere",
        "everybody can name themselves in the header of the proxy",
        "web/auth.py",
        "        if not any(address in network for network in self._networks):\n",
        "        if False:\n",
        (f"{_PROTECTION}test_a_proxys_header_is_believed_only_from_the_proxy",),
    ),
    Mutant(
        "dashboard-unconfirmed",
        "a lock is broken although another name was typed",
        "web/actions.py",
        '    if "confirm" in action.fields and ',
        '    if "confirmed" in action.fields and ',
        (f"{_PROTECTION}test_a_break_without_the_right_fence_name_and_reason_does_nothing",),
    ),
    Mutant(
        "dashboard-without-a-trace",
        "a lock is broken although the audit could not be written",
        "web/actions.py",
        '        return Outcome(\n            500, done=False, message=f"Nothing was done',
        '        del error\n        Outcome(\n            500, done=False, message=f"Nothing was done',
        (f"{_PROTECTION}test_an_order_that_cannot_be_written_down_is_not_carried_out",),
    ),
    Mutant(
        "dashboard-markup-runs",
        "the name of a lock runs as script in the browser of an operator",
        "web/drawing.py",
        "autoescape=True",
        "autoescape=False",
        (f"{_BROWSER}test_names_and_reasons_of_others_are_shown_and_never_run",),
    ),
    Mutant(
        "dashboard-reads-for-each-viewer",
        "every viewer has the store read once more",
        "fleet.py",
        "            if self.latest is not None and self._is_fresh(self.latest, now):\n",
        "            if False:\n",
        (f"{_FACTS}test_however_many_look_the_store_is_read_by_one_reader",),
    ),
    Mutant(
        "dashboard-tells-payloads",
        "what a job of a queue carries is sent to every viewer",
        "web/pages.py",
        'if field != "payload"',
        'if field != "pay"',
        (f"{_FACTS}test_a_dead_job_is_retried_or_deleted_and_its_payload_is_not_told",),
    ),
    Mutant(
        "dashboard-hash-of-another-kind",
        "after an upgrade no password of the file of users is right any more",
        "web/auth.py",
        "n=COST, r=8, p=1)",
        "n=COST, r=8, p=2)",
        ("tests/web/test_dashboard_doors.py::test_a_hash_that_was_made_once_is_good_for_ever",),
    ),
    Mutant(
        "dashboard-streams-without-viewers",
        "a stream of the dashboard that its viewer left is counted for ever: after a hundred nobody sees changes",
        "web/site.py",
        "            self._streams -= 1\n",
        "            pass\n",
        (f"{_QUESTIONS}test_a_stream_sends_the_page_again_and_again_and_ends_so_that_its_viewer_is_asked_for_anew",),
    ),
)
