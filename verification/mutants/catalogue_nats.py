"""Known bugs that named tests must see: NATS, and what it added to the kit's documents."""

from __future__ import annotations

from verification.mutants.catalogue import Mutant

__all__ = ["NATS_MUTANTS"]

_HERE = "_backends/nats/"
_FAULTS = "tests/stores/nats/test_nats_faults.py::"
_ACCESS = "tests/stores/nats/test_nats_access.py::"
_PIECES = "tests/stores/nats/test_nats_pieces.py::"
_CONNECTIONS = "tests/stores/nats/test_nats_connections.py::"

NATS_MUTANTS: tuple[Mutant, ...] = (
    Mutant(
        "nats-swap-without-condition",
        "a change is stored whatever the document has become meanwhile",
        f"{_HERE}documents.py",
        'f"{EXPECTED}: {seen}\\r\\n{mark}"',
        'f"X: {seen}\\r\\n{mark}"',
        (f"{_FAULTS}test_a_swap_on_an_old_version_is_refused_and_changes_nothing",),
    ),
    Mutant(
        "nats-conflict-is-success",
        "a swap that the stream refused is taken for applied",
        f"{_HERE}documents.py",
        "in errors.CONFLICTS:\n            return False\n",
        "in errors.CONFLICTS:\n            return True\n",
        (f"{_FAULTS}test_a_swap_on_an_old_version_is_refused_and_changes_nothing",),
    ),
    Mutant(
        "nats-lost-answer-is-no",
        "a change whose answer got lost is reported as surely not applied",
        f"{_HERE}errors.py",
        '    return OutcomeUnknown(f"{label}: {why}; the request',
        '    return BackendUnavailable(f"{label}: {why}; the request',
        (f"{_FAULTS}test_a_lost_answer_to_a_swap_is_answered_by_the_same_grant",),
    ),
    Mutant(
        "nats-deletion-read-as-document",
        "the mark of a deletion that stayed is read as an empty document",
        f"{_HERE}documents.py",
        "        return None if is_deleted else base64",
        "        return base64",
        (f"{_FAULTS}test_where_messages_cannot_be_removed_a_deleted_document_is_none",),
    ),
    Mutant(
        "nats-mark-of-deletion-stays",
        "every name that was ever used leaves a message for good",
        f"{_HERE}documents.py",
        "        if value is None:\n            await self._remove(",
        "        if value == b'':\n            await self._remove(",
        (f"{_FAULTS}test_a_deleted_document_leaves_no_message",),
    ),
    Mutant(
        "nats-numbers-used-again",
        "a bucket that is made anew counts from 1, and a version of the old one fits a document of the new one",
        f"{_HERE}documents.py",
        '"first_seq": int(time.time() * 1e6),',
        '"first_seq": 1,',
        (f"{_FAULTS}test_a_deleted_bucket_is_a_loss_and_fences_go_on_rising",),
    ),
    Mutant(
        "nats-bucket-expires",
        "a bucket whose messages expire is accepted",
        f"{_HERE}documents.py",
        '        if config.get("max_age"):',
        '        if config.get("never"):',
        (f"{_ACCESS}test_a_bucket_in_which_locks_would_vanish_is_refused",),
    ),
    Mutant(
        "nats-listener-forgets-threads",
        "a listener that connects again subscribes to nothing",
        f"{_HERE}blocking_wire.py",
        "            self._send(self._watches.subscriptions() + pings,",
        "            self._send(pings,",
        (f"{_FAULTS}test_a_listener_that_was_cut_off_subscribes_again",),
    ),
    Mutant(
        "nats-listener-forgets-asyncio",
        "waiters of an event loop are not woken any more after their connection broke",
        f"{_HERE}asyncio_wire.py",
        "        self._servers.failed(connection.host)\n        self._keep_open()\n",
        "        self._servers.failed(connection.host)\n",
        (f"{_FAULTS}test_a_listener_that_was_cut_off_subscribes_again",),
    ),
    Mutant(
        "nats-silent-connection-kept",
        "a connection that fell silent is used again and again",
        f"{_HERE}asyncio_wire.py",
        "            self._servers.failed(connection.host)\n            connection.close()\n",
        "            self._servers.failed(connection.host)\n",
        (f"{_FAULTS}test_a_connection_that_fell_silent_is_replaced",),
    ),
    Mutant(
        "nats-login-without-tls",
        "a URL that wants TLS sends its password in the clear to a server without",
        f"{_HERE}connection.py",
        "        if self._options.tls is not None and not offers_tls:",
        "        if self._options.tls is not None and not self.info:",
        (f"{_ACCESS}test_a_server_without_tls_gets_no_login",),
    ),
    Mutant(
        "nats-token-shown",
        "the token of the URL is part of every message",
        f"{_HERE}options.py",
        '        f"{url.scheme}://{address}" if has_token else str(url),',
        "        str(url),",
        (f"{_ACCESS}test_a_token_logs_in_and_is_not_shown",),
    ),
    Mutant(
        "nats-half-a-message",
        "a message is delivered before its last bytes have arrived",
        f"{_HERE}wire.py",
        "        if len(rest) < size + 2:",
        "        if len(rest) < size:",
        (f"{_PIECES}test_frames_are_the_same_however_the_bytes_arrive",),
    ),
    Mutant(
        "nats-missing-right-waits",
        "a request that this user may not send waits for an answer that never comes",
        f"{_HERE}errors.py",
        "    if _NO_RIGHT in text.lower():",
        "    if _NO_RIGHT in text:",
        (f"{_ACCESS}test_a_missing_right_is_refused_at_once_and_named",),
    ),
    Mutant(
        "documents-all-at-once",
        "calls of one client on one document conflict with each other until their patience is over",
        "kit/documents.py",
        "        self._turns = Turns(runtime) if pause else None",
        "        self._turns: Turns | None = None",
        ("tests/unit/test_kit_documents.py::test_calls_of_one_client_take_turns_instead_of_conflicting",),
    ),
    Mutant(
        "documents-turn-never-ends",
        "a call that was interrupted in its turn stops all others on its document",
        "kit/turns.py",
        "                self.leave(document, first)\n",
        "                pass\n",
        ("tests/unit/test_kit_documents.py::test_a_turn_that_is_never_ended_does_not_stop_the_others",),
    ),
    Mutant(
        "nats-hurried-task",
        "a task that had little time takes the connection from all others",
        f"{_HERE}asyncio_wire.py",
        "        if until >= sent + self._options.answer_timeout and connection.answered_at < sent:",
        "        if connection.answered_at < sent:",
        (f"{_CONNECTIONS}test_a_task_with_little_time_does_not_take_the_connection_from_the_others",),
    ),
    Mutant(
        "nats-dropped-and-listening",
        "a client that is dropped unclosed keeps its listener, with a thread and a connection, for ever",
        f"{_HERE}blocking_wire.py",
        "        self._wire = weakref.ref(wire)  #",
        "        self._wire = lambda: wire  #",
        (f"{_CONNECTIONS}test_a_client_that_is_dropped_unclosed_ends_its_listener",),
    ),
)
