"""What operators order: confirmations, fences, queues, schemas, and where the store of an order comes from."""

from __future__ import annotations

import gc
import io
import json
import os
import shutil
import signal
import sqlite3
import sys
from contextlib import closing
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

import leasehold
from leasehold.cli import break_lock as break_module
from leasehold.cli import candidates as candidates_module
from leasehold.cli import connection as connection_module
from leasehold.cli import fence as fence_module
from leasehold.cli import fence_move as move_module
from leasehold.cli import queue as queue_module
from leasehold.cli.candidates import candidates, complete
from leasehold.cli.completion import _SCRIPTS
from leasehold.cli.main import main
from leasehold.cli.parser import read
from leasehold.errors import ConfigurationError
from leasehold.sql import (
    Queue,
    fence_schema,
    guard_schema,
    idempotency_schema,
    queue_schema,
    reservations_schema,
    store_schema,
)
from leasehold.sql.queue.job import JobInfo
from leasehold.values import Holder, Holding, LockState, Mode

if TYPE_CHECKING:
    from pathlib import Path


class Terminal(io.StringIO):
    """A keyboard with an answer typed already."""

    def isatty(self) -> bool:
        return True


@pytest.fixture
def url(tmp_path: Path) -> str:
    url = f"sqlite:///{tmp_path}/locks.db"
    with leasehold.connect(url) as client:
        client.lock("first").acquire().release()
    return url


# --- the store of an order


def test_a_client_is_opened_as_the_arguments_say(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []
    monkeypatch.setattr(connection_module, "connect", lambda *words, **options: asked.append((words, options)))
    monkeypatch.setenv("LEASEHOLD_URL", "local:")
    arguments: Any = read(["run", "x", "--url", "u", "--namespace", "n", "--ttl", "9s", "--", "c"])
    gc.disable()
    try:
        connection_module.open_client(arguments, label="c")
        assert gc.isenabled()
    finally:
        gc.enable()
    connection_module.open_client(read(["ls"]))  # type: ignore[arg-type]
    assert asked == [
        (("u",), {"namespace": "n", "label": "c", "ttl": 9.0}),
        ((None,), {"namespace": None, "label": None}),
    ]


@pytest.mark.parametrize(
    ("variable", "is_enough"), [("LEASEHOLD_URL", True), ("LEASEHOLD_URL_FILE", True), ("X", False)]
)
def test_without_a_url_the_environment_decides_and_there_is_no_default(
    variable: str, is_enough: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("LEASEHOLD_URL", "LEASEHOLD_URL_FILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv(variable, "memory://x")
    monkeypatch.setattr(connection_module, "connect", lambda *_, **__: "client")
    arguments: Any = read(["ls", "--url", ""])
    if is_enough:
        assert connection_module.open_client(arguments) == "client"  # type: ignore[comparison-overlap]
        return
    with pytest.raises(ConfigurationError, match=r"no store given\. Add `--url local:`"):
        connection_module.open_client(arguments)


@pytest.mark.parametrize(
    ("exists", "private", "said"),
    [
        (True, False, []),
        (False, False, ["this store does not exist: nothing has ever been locked in it"]),
        (True, True, ["this store is inside this process alone: the locks of other processes are not in it"]),
    ],
)
def test_the_store_that_is_shown_is_named_with_what_is_odd_about_it(
    exists: bool, private: bool, said: list[str]
) -> None:
    notes: list[str] = []
    client: Any = SimpleNamespace(store="redis://h", exists=lambda: exists, is_private=private)
    console: Any = SimpleNamespace(note=notes.append)
    connection_module.announce(client, console)
    assert notes == ["store: redis://h", *said]


@pytest.mark.parametrize(
    "words",
    [
        ["pause", "x", "--reason", "r"],
        ["resume", "x"],
        ["forget", "x", "--slot", "s", "--reason", "r"],
        ["break", "x", "--fence", "1", "--reason", "r", "--yes"],
        ["fence", "raise", "x", "1", "--reason", "r", "--yes"],
    ],
)
def test_an_order_to_a_store_that_does_not_exist_makes_none(
    words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*words, "--url", f"sqlite:///{tmp_path}/typo.db"]) == 78
    assert "does not exist; nothing was changed" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


# --- confirmations


@pytest.mark.parametrize(("typed", "confirmed"), [("yes\n", True), (" YES \n", True), ("y\n", False), ("", False)])
@pytest.mark.parametrize("what", ["break", "fence"])
def test_only_the_whole_word_confirms(
    what: str,
    typed: str,
    confirmed: bool,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    url: str,
) -> None:
    with leasehold.connect(url) as client, client.semaphore("job", 2).hold() as other:
        lease = client.semaphore("job", 2).acquire()
        if what == "break":
            words = ["break", "job", "--fence", str(lease.fence), "--reason", "stuck", "--url", url]
        else:
            words = ["fence", "raise", "job", str(2**52), "--reason", "restored", "--url", url]
        monkeypatch.setattr(sys, "stdin", Terminal(typed))
        assert main(words) == (0 if confirmed else 1)
        said = capsys.readouterr()
        assert "Type yes: " in said.err
        assert ("nothing was" in said.err) is not confirmed
        state = client.inspect("job")
        assert state is not None
        broken = [holding.fence for holding in state.holdings if holding.broken is not None]
        assert broken == ([lease.fence] if confirmed and what == "break" else [])
        assert (client.highest_fence("job") >= 2**52) is (confirmed and what == "fence")
        if what == "break":
            assert "about to break 'job'; the holder may still be running:\n  holder   " in said.err
            assert str(other.fence) not in said.err
        lease.release()


@pytest.mark.parametrize(
    "words", [["break", "job", "--fence", "1", "--reason", "r"], ["fence", "raise", "job", "7", "--reason", "r"]]
)
def test_without_a_terminal_an_order_needs_yes(
    words: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], url: str
) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("yes\n"))
    assert main([*words, "--url", url]) == 64
    assert "run it on a terminal, or add --yes" in capsys.readouterr().err


def test_break_says_who_gets_the_lock_when(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    with leasehold.connect(url) as client:
        lease = client.lock("job").acquire()
        words = ["break", "job", "--fence", str(lease.fence), "--reason", "stuck", "--yes", "--url", url]
        assert main(words) == 0
        said = capsys.readouterr()
        assert said.out.startswith(f"broke 'job' with fence {lease.fence} (by {break_module.operator()}); its holder")
        assert said.out.endswith("the next one gets the lock when the ttl of the broken lease is over\n")
        assert said.err == f"leasehold: store: {url}\n"
        assert client.lock("job").try_acquire() is None
        assert main([*words, "--now"]) == 0
        client.lock("job").acquire(0).release()
        lease.release()


def test_an_operator_without_a_name_is_a_number(monkeypatch: pytest.MonkeyPatch) -> None:
    import pwd

    def unknown(_: int) -> Any:
        raise KeyError

    monkeypatch.delenv("SUDO_USER", raising=False)
    monkeypatch.setattr(pwd, "getpwuid", unknown)
    assert break_module.operator() == f"uid {os.getuid()}@{os.uname().nodename}"


# --- fences


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        ("raise job", "raise needs NAME, F and --reason TEXT"),
        ("raise job 7", "raise needs NAME, F and --reason TEXT"),
        ("raise job 7 8 --reason r", "raise needs NAME, F and --reason TEXT"),
        ("raise job 0 --reason r", "F must be a whole number from 1 to 9007199254740991, not '0'"),
        (f"raise job {2**53} --reason r", "F must be a whole number"),
        ("raise job x --reason r", "F must be a whole number"),
        ("raise job 7 --reason r --from a", "belong to `leasehold fence move`"),
        ("raise job 7 --reason r --to a", "belong to `leasehold fence move`"),
        ("raise job 7 --reason r --all", "belong to `leasehold fence move`"),
        ("raise job 7 --reason r --dry-run", "belong to `leasehold fence move`"),
        ("move job --to b", "move needs --from URL"),
        ("move job --from a", "move needs --from URL"),
    ],
)
def test_words_that_a_fence_cannot_follow_are_refused(
    words: str, problem: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["fence", *words.split()]) == 64
    said = capsys.readouterr().err
    assert problem in said
    assert "see leasehold fence --help" in said


def test_a_raised_fence_is_reported_with_its_reason(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    high = str(2**52)
    words = ["fence", "raise", "job", high, "--reason", "restored", "--yes", "--url", url]
    assert main([*words, "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {
        "schema": 1, "name": "job", "fence": int(high), "reason": "restored", "by": break_module.operator(),
    }  # fmt: skip
    assert main(words) == 0
    assert capsys.readouterr().out == (
        f"every later grant of 'job' has a fence above {high} (by {break_module.operator()})\n"
    )
    assert fence_module._number(str(2**53 - 1)) == 2**53 - 1


ANA = Holder("db-3", 7)


@pytest.mark.parametrize(("count", "lines"), [(0, 0), (5, 5), (7, 6)])
def test_a_move_shows_some_of_the_names_that_are_in_the_way(count: int, lines: int) -> None:
    said: list[str] = []
    holding = Holding(ANA, 41, 1.0, 2.0)
    states = [LockState(f"n{number}", Mode.EXCLUSIVE, 1, (holding,), ()) for number in range(count)]
    states.append(LockState("free", Mode.EXCLUSIVE, 1, (), ()))
    old: Any = SimpleNamespace(store="old:", locks=lambda: states)
    console: Any = SimpleNamespace(error=said.append)
    arguments: Any = read(["fence", "move", "--all", "--from", "old:", "--to", "new:"])
    move = move_module._Move(arguments, console, old, SimpleNamespace(store="new:"))  # type: ignore[arg-type]
    assert move._is_refused("stop them") is (count > 0)
    assert len(said) == lines
    if count:
        assert said[0] == f"'n0' is in use at old:: held by {ANA}, fence 41; stop them"
    if count == 7:
        assert said[-1] == "and 2 more names are in use"


def test_names_that_are_only_waited_for_are_in_the_way_too() -> None:
    waited = LockState("job", Mode.EXCLUSIVE, 1, (), (ANA, ANA))
    assert move_module._users(waited) == "2 wait for it"
    said: list[str] = []
    found = {"job": waited, "free": None}
    old: Any = SimpleNamespace(store="old:", inspect=found.get)
    console: Any = SimpleNamespace(error=said.append)
    arguments: Any = read(["fence", "move", "free", "job", "--from", "old:", "--to", "new:"])
    move = move_module._Move(arguments, console, old, SimpleNamespace(store="new:"))  # type: ignore[arg-type]
    assert move._is_refused("stop them")
    assert len(said) == 1


def test_a_plan_and_a_move_are_data_for_programs(tmp_path: Path, url: str, capsys: pytest.CaptureFixture[str]) -> None:
    new = f"sqlite:///{tmp_path}/new.db"
    with leasehold.connect(new) as client, leasehold.connect(url) as before:
        client.lock("x").acquire().release()
        high = before.raise_fence("a", 2**52, reason="test")
        words = ["fence", "move", "a", "b", "--from", url, "--to", new, "--json"]
        assert main([*words, "--dry-run"]) == 0
        assert json.loads(capsys.readouterr().out) == {
            "schema": 1, "name": None, "from": url, "to": new, "names": ["a", "b"], "all": False, "dry_run": True,
        }  # fmt: skip
        assert client.highest_fence("a") < high
        assert main([*words, "--yes", "--reason", "we move"]) == 0
        first, second = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
        assert (first["name"], second["name"], first["reason"]) == ("a", "b", "we move")
        assert first["given"] == first["fence"] == high
        assert first["by"] == break_module.operator()
        assert client.highest_fence("a") >= high
        assert main(["fence", "move", "a", "--from", url, "--to", new, "--yes"]) == 0
        said = capsys.readouterr()
        assert said.out == f"'a': {url} has given fences up to {high}; every later one of {new} is above {high}\n"
        assert said.err == f"leasehold: from {url} to {new}\n"


# --- queues


def job(**facts: Any) -> JobInfo:
    plain: dict[str, Any] = {
        "id": 7, "queue": "q", "key": None, "payload": {"a": "ä"}, "state": "ready", "fence": 0, "attempts": 0,
        "worker": None, "last_error": None, "due_in": None, "age": 61.0, "changed": 5.0,
    }  # fmt: skip
    return JobInfo(**plain | facts)


@pytest.mark.parametrize(("due_in", "shown"), [(None, "-"), (0.0, "now"), (-3.0, "now"), (12.0, "in 12s")])
def test_a_job_is_due_now_later_or_never(due_in: float | None, shown: str) -> None:
    assert queue_module._due(job(due_in=due_in)) == shown


def test_a_row_of_a_job_has_every_fact_and_a_short_error() -> None:
    assert queue_module._row(job(fence=3, attempts=2)) == (7, "q", "ready", "-", 2, 3, "1m01s", "-", "")
    *_, key, error = queue_module._row(job(key="k", last_error="x" * 60))
    assert (key, error) == ("k", "x" * 60)
    assert queue_module._row(job(last_error="y" * 61))[-1] == "y" * 57 + "..."


def test_what_is_done_in_thousands_is_done_until_nothing_is_left() -> None:
    counts = [1000, 1000, 999, 99]
    assert queue_module._all(lambda: counts.pop(0)) == 2999
    assert counts == [99]


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A dead job and one that waits in `q`, and one in `other`."""
    path = tmp_path_factory.mktemp("queue") / "data.db"
    with closing(sqlite3.connect(path)) as database:
        database.executescript(queue_schema("sqlite"))
        dying = Queue("q", max_attempts=1)
        dying.enqueue(database, {"n": 1}, key="first")
        (claimed,) = dying.claim(database)
        dying.fail(database, claimed, ValueError("broken"))
        dying.enqueue(database, {"n": 2})
        Queue("other").enqueue(database, {"n": 3})
        database.commit()
    return path


@pytest.fixture
def jobs(database: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.delenv("LEASEHOLD_DATABASE", raising=False)
    return str(shutil.copy(database, tmp_path / "data.db"))


def asked(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, list[dict[str, Any]]]:
    code = main(["queue", *words, "--json"])
    return code, [json.loads(line) for line in capsys.readouterr().out.splitlines()]


@pytest.mark.parametrize(
    ("words", "numbers"),
    [
        ("ls q", [1, 2]),
        ("ls --dead", [1]),
        ("ls --state ready", [2, 3]),
        ("ls q --state done", []),
        ("ls q --dead", [1]),
    ],
)
def test_jobs_are_listed_by_queue_and_state(
    words: str, numbers: list[int], jobs: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code, found = asked(capsys, *words.split(), "--url", jobs)
    assert (code, sorted(each["payload"]["n"] for each in found)) == (0, numbers)


def test_queues_are_listed_with_their_counts(jobs: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, found = asked(capsys, "ls", "--url", jobs)
    assert code == 0
    assert {each["queue"]: (each["ready"], each["dead"]) for each in found} == {"q": (1, 1), "other": (1, 0)}
    assert main(["queue", "ls", "--url", jobs]) == 0
    said = capsys.readouterr()
    assert said.out.splitlines()[0].split() == ["QUEUE", "READY", "DELAYED", "CLAIMED", "DEAD", "DONE", "LAG"]
    assert said.err == f"leasehold: database: sqlite {jobs}\n"


def test_a_job_is_shown_with_how_to_try_it_again(jobs: str, capsys: pytest.CaptureFixture[str]) -> None:
    (dead,) = asked(capsys, "ls", "--dead", "--url", jobs)[1]
    number = str(dead["id"])
    assert main(["queue", "info", number, "--url", jobs]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == f"job {number} of 'q' is dead"
    shown = {line.split()[0]: line.split(None, 1)[1] for line in lines[1:] if line.startswith("  ")}
    assert (shown["key"], shown["payload"], shown["due"], shown["attempts"]) == ("first", '{"n": 1}', "-", "1")
    assert "ValueError: broken" in shown["error"]
    assert set(shown) == {"key", "payload", "due", "attempts", "fence", "worker", "enqueued", "changed", "error"}
    assert lines[-1] == f"To try it again: leasehold queue retry {number}"
    assert asked(capsys, "info", number, "--url", jobs)[1][0]["found"] is True
    assert asked(capsys, "info", "9999", "--url", jobs) == (1, [{"schema": 1, "found": False, "id": 9999}])


def test_dead_jobs_are_retried_one_by_one_or_all(jobs: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, found = asked(capsys, "retry", "other", "--dead", "--url", jobs)
    assert (code, found) == (1, [{"schema": 1, "queue_action": "retry", "retried": 0}])
    code, found = asked(capsys, "retry", "q", "--dead", "--url", jobs)
    assert (code, found[0]["retried"]) == (0, 1)
    assert asked(capsys, "ls", "--dead", "--url", jobs)[1] == []
    assert main(["queue", "retry", "9999", "--url", jobs]) == 1
    assert capsys.readouterr().out == "retried 0 jobs\n"


def test_a_purge_keeps_what_is_younger_than_was_said_or_than_the_queue_keeps(
    jobs: str, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["purge", "q", "--dead", "--url", jobs]
    assert asked(capsys, *words)[1][0]["removed"] == 0
    assert asked(capsys, *words, "--older-than", "1h")[1][0]["removed"] == 0
    assert asked(capsys, "purge", "q", "--older-than", "0s", "--url", jobs)[1][0]["removed"] == 0, "not the dead"
    assert asked(capsys, *words, "--older-than", "0s")[1][0]["removed"] == 1
    assert asked(capsys, "ls", "--dead", "--url", jobs)[1] == []


def test_a_database_comes_from_the_option_before_the_variable(
    jobs: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("LEASEHOLD_DATABASE", jobs)
    assert len(asked(capsys, "ls")[1]) == 2
    assert main(["queue", "ls", "--url", f"{jobs}.absent"]) == 78
    monkeypatch.delenv("LEASEHOLD_DATABASE")
    capsys.readouterr()
    assert main(["queue", "ls"]) == 78
    assert "no database given" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "text"),
    [
        ("info", "queue info needs the number of a job"),
        ("retry x", "queue retry needs the number of a job"),
        ("retry --dead", "queue retry needs the name of a queue here"),
        ("purge", "queue purge needs the name of a queue here"),
    ],
)
def test_an_order_to_a_queue_needs_its_target(
    words: str, text: str, jobs: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["queue", *words.split(), "--url", jobs]) == 78
    assert text in capsys.readouterr().err


# --- schemas


@pytest.mark.parametrize(
    ("words", "text"),
    [
        ("postgresql", store_schema("postgresql")),
        ("postgresql --schema s --role r", store_schema("postgresql", schema="s", role="r")),
        ("mysql --role r", store_schema("mysql", role="r")),
        ("guard", guard_schema("postgresql").rstrip() + ";"),
        ("guard --dialect mysql", guard_schema("mysql").rstrip() + ";"),
        ("idempotency", idempotency_schema("postgresql")),
        ("idempotency --schema s", idempotency_schema("postgresql", schema="s")),
        ("idempotency --dialect sqlite", idempotency_schema("sqlite")),
        ("reservations", reservations_schema("postgresql")),
        ("reservations --schema s", reservations_schema("postgresql", schema="s")),
        ("reservations --dialect mysql", reservations_schema("mysql")),
        ("queue", queue_schema("postgresql")),
        ("queue --schema s", queue_schema("postgresql", schema="s")),
        ("fence --table t --key k", fence_schema("t", "k", strict=True)),
        ("fence --table t --key k --lenient", fence_schema("t", "k", strict=False)),
        ("fence --table t --key k --dialect mysql", fence_schema("t", "k", dialect="mysql")),
        (
            "fence --table t --key k --schema s --guard-schema g --lock t:{k} --lock-namespace n",
            fence_schema("t", "k", schema="s", guard_schema="g", lock="t:{k}", namespace="n"),
        ),
    ],
)
def test_the_statements_of_a_schema_are_those_of_the_library(
    words: str, text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["schema", *words.split()]) == 0
    assert capsys.readouterr() == (f"{text.rstrip()}\n", "")


@pytest.mark.parametrize("words", ["fence", "fence --table t", "fence --key k", "queue --dialect sqlite --schema s"])
def test_a_schema_that_its_words_do_not_allow_is_bad_usage(words: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["schema", *words.split()]) == 64
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith("leasehold: ")


# --- completion


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("wa", ["wait", "watch"]),
        ("nonsense ", []),
        ("run x --", ["--namespace", "--no-wait"]),
        ("run x --ttl 1", ["10s", "1d", "1h", "1m"]),
        ("run x --ttl=3", ["--ttl=30s"]),
        ("run x --report ", [":files"]),
        ("run x -- ", [":command"]),
        ("run x -- ls -", [":command"]),
        ("ls -- ", []),
        ("queue ", ["info", "ls", "purge", "retry"]),
        ("queue ls --state d", ["dead", "done"]),
        ("schema f", ["fence"]),
        ("ls --url sq", ["sqlite:////"]),
        ("fence ", ["move", "raise"]),
    ],
)
def test_what_can_stand_at_the_cursor(line: str, expected: list[str]) -> None:
    found = sorted(word for word, _ in candidates(line.split(" ")))
    if line.endswith("--") and "-- " not in line:
        assert set(expected) < set(found)
        assert "--" in found
        return
    assert found == expected


def test_an_option_that_was_given_is_not_offered_again_and_each_has_its_help() -> None:
    found = dict(candidates(["ls", "--waiters", "--"]))
    assert "--waiters" not in found
    assert found["--names"] == "print the names only, one per line"
    assert "--" not in found, "ls takes no command"
    assert complete(["completion", "b"]) == ["bash\t"]
    assert len(complete([])) == len(complete([""])) > 20


def test_locks_of_the_store_on_the_line_are_offered(monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[Any] = []
    alarms: list[int] = []
    states = [
        LockState("job-1", Mode.EXCLUSIVE, 1, (Holding(ANA, 41, 1.0, 2.0),), ()),
        LockState("job-2", Mode.EXCLUSIVE, 1, (), (ANA,)),
        LockState("job-\x1b", Mode.EXCLUSIVE, 1, (), ()),
    ]

    class Client:
        def __enter__(self) -> Any:
            return SimpleNamespace(locks=lambda prefix: [each for each in states if each.name.startswith(prefix)])

        def __exit__(self, *_: object) -> None:
            opened.append("closed")

    def open_client(arguments: Any) -> Client:
        opened.append((arguments.url, arguments.namespace))
        return Client()

    monkeypatch.setattr(connection_module, "open_client", open_client)
    fakes = SimpleNamespace(signal=lambda *_: None, alarm=alarms.append, SIGALRM=signal.SIGALRM)
    monkeypatch.setattr(candidates_module, "signal", fakes)
    found = candidates(["info", "--url", "u", "--namespace=n", "jo"])
    assert found == [("job-1", str(ANA)), ("job-2", "free")]
    assert opened == [("u", "n"), "closed"]
    assert alarms == [candidates_module.PATIENCE]


def test_a_store_that_cannot_be_asked_offers_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(candidates_module, "signal", SimpleNamespace(signal=lambda *_: None, alarm=lambda _: None,
                                                                     SIGALRM=14))  # fmt: skip
    assert candidates(["info", "--url", "nonsense://", ""]) == []


@pytest.mark.parametrize(
    ("line", "expected"),
    [("ls --url u", "u"), ("ls --url=u=v", "u=v"), ("ls --url", None), ("ls --urls x", None), ("ls", None)],
)
def test_the_value_of_an_option_is_found_on_the_line(line: str, expected: str | None) -> None:
    assert candidates_module._given(line.split(), "--url") == expected


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_each_shell_gets_its_own_script(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", shell]) == 0
    assert capsys.readouterr().out == f"{_SCRIPTS[shell]}\n"
    assert f"# {shell} completion" in _SCRIPTS[shell]
