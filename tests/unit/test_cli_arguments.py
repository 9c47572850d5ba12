"""What each verb makes of its words: every default, every option, and every refusal, as tables."""

from __future__ import annotations

import inspect
import io
import os
import signal
import sys
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from leasehold.cli import exit_codes, main
from leasehold.cli.argument_types import exit_code, fence_number, groups, permits
from leasehold.cli.durations import LONGEST, duration
from leasehold.cli.listen import listen_address
from leasehold.cli.parser import Usage, read, top_help, verb_help
from leasehold.cli.verbs import VERBS
from leasehold.errors import AcquireTimeout, ConfigurationError

if TYPE_CHECKING:
    from pathlib import Path

# Without an option: by verb, the words that it cannot do without, and what all others are then.
OF_RUNS: dict[str, Any] = {
    "ttl": 30.0, "max_hold": None, "min_hold": 0.0, "kill_after": 5.0, "wait": None, "wait_group": False,
    "report": None, "reason": None, "conflict_exit_code": None,
}  # fmt: skip
PLAIN: list[tuple[str, str, dict[str, Any]]] = [
    ("run", "job -- true", {
        **OF_RUNS, "names": ["job"], "no_wait": False, "permits": None, "shared": False, "on_conflict": "fail",
    }),
    ("once", "job --slot s -- true", {
        **OF_RUNS, "name": "job", "every": None, "cron": None, "slot": "s", "tz": "UTC", "on_conflict": "skip",
        "again": False, "close_on_failure": False, "keep": None,
    }),
    ("elect", "job -- true", {
        **OF_RUNS, "name": "job", "observe": False, "ttl": 15.0, "renew_deadline": 10.0, "retry": 2.0,
        "exit_on_loss": False, "kill_after": None, "wait_group": True, "on_conflict": "fail", "json": False,
    }),
    ("hold", "job", {
        "names": ["job"], "duration": None, "no_wait": False, "wait": None, "ttl": 30.0, "permits": None,
        "shared": False, "conflict_exit_code": None, "reason": None, "min_hold": 0.0, "on_conflict": "fail",
        "json": False,
    }),
    ("wait", "job", {"name": "job", "wait": None, "every": 1.0, "conflict_exit_code": None}),
    ("check", "", {"need": 0.0, "json": False}),
    ("ls", "", {"prefix": "", "waiters": False, "names": False, "json": False}),
    ("info", "job", {"name": "job", "slot": None, "json": False}),
    ("watch", "", {"prefix": "", "every": 1.0, "json": False}),
    ("break", "job --fence 1 --reason r", {
        "name": "job", "fence": 1, "reason": "r", "yes": False, "now": False, "json": False,
    }),
    ("pause", "job --reason r", {"name": "job", "reason": "r", "duration": None, "json": False}),
    ("resume", "job", {"name": "job", "json": False}),
    ("forget", "job --slot s --reason r", {"name": "job", "slot": "s", "reason": "r", "json": False}),
    ("fence", "raise", {
        "action": "raise", "words": [], "old": None, "new": None, "all": False, "dry_run": False, "reason": None,
        "yes": False, "json": False,
    }),
    ("queue", "ls", {
        "action": "ls", "target": None, "url": None, "dead": False, "state": None, "older_than": None, "schema": None,
        "json": False,
    }),
    ("schema", "fence", {
        "what": "fence", "dialect": None, "table": None, "key": None, "schema": None, "role": None, "lock": None,
        "lock_namespace": None, "guard_schema": None, "lenient": False,
    }),
    ("doctor", "", {"store": None, "tries": False, "json": False}),
    ("exporter", "", {
        "listen": "127.0.0.1:9479", "prefix": "", "group": None, "max_groups": 50, "max_age": 5.0, "patience": 5.0,
    }),
    ("explain", "", {"error": None, "json": False}),
    ("choose", "", {"need": None, "have": None, "twice": None, "json": False}),
    ("completion", "bash", {"shell": "bash"}),
    ("ui", "", {
        "listen": "127.0.0.1:9480", "write": False, "auth": None, "proxy_user": None, "proxy_address": None,
        "writer": None, "allow_host": None, "database": None, "election": None, "job": None, "audit": None,
        "hash_password": False,
    }),
    ("demo", "", {"ui": False}),
]  # fmt: skip
NO_STORE = {"queue", "schema", "explain", "choose", "completion", "demo"}
WITH_COMMAND = {"run", "once", "elect"}


def words_of(verb: str, words: str) -> dict[str, Any]:
    """What the verb understands, without the verb itself."""
    arguments = read([verb, *words.split()])
    assert arguments is not None
    return {name: value for name, value in vars(arguments).items() if name != "verb"}


@pytest.mark.parametrize(("verb", "words", "expected"), PLAIN, ids=[verb for verb, *_ in PLAIN])
def test_without_options_each_verb_does_the_plain_thing(verb: str, words: str, expected: dict[str, Any]) -> None:
    found = words_of(verb, words)
    common: dict[str, Any] = {"quiet": False, "verbose": False, "help": False}
    common |= {} if verb in NO_STORE else {"url": None, "namespace": None}
    assert found == {**common, **expected, "command": ["true"] if verb in WITH_COMMAND else None}


def test_the_table_has_every_verb() -> None:
    assert {verb for verb, *_ in PLAIN} == set(VERBS)


@pytest.mark.parametrize("name", VERBS)
def test_the_code_of_each_verb_takes_arguments_and_a_console(name: str) -> None:
    handler = VERBS[name].handler()
    assert handler.__name__ == {"break": "break_lock"}.get(name, name)
    assert list(inspect.signature(handler).parameters) == ["arguments", "console"]


@pytest.mark.parametrize(
    ("verb", "words", "expected"),
    [
        ("run", "a b -n -- x", {"names": ["a", "b"], "no_wait": True}),
        ("run", "a --no-wait -- x", {"no_wait": True}),
        ("run", "a -w 3s -E 9 -- x", {"wait": 3.0, "conflict_exit_code": 9}),
        ("run", "a --wait 3s --conflict-exit-code 9 -- x", {"wait": 3.0, "conflict_exit_code": 9}),
        ("run", "a --ttl 1m --min-hold 1s --max-hold 2s -- x", {"ttl": 60.0, "min_hold": 1.0, "max_hold": 2.0}),
        ("run", "a --min-hold 2s --max-hold 2s -- x", {"min_hold": 2.0, "max_hold": 2.0}),
        ("run", "a --kill-after 1m --permits 3 -- x", {"kill_after": 60.0, "permits": 3}),
        ("run", "a --shared --on-conflict skip -- x", {"shared": True, "on_conflict": "skip"}),
        ("run", "a --reason r --wait-group --report f -- x", {"reason": "r", "wait_group": True, "report": "f"}),
        ("once", "a --every 1d --tz Asia/Tokyo -- x", {"every": 86_400.0, "tz": "Asia/Tokyo", "slot": None}),
        ("once", "a --cron @daily --keep 1d -- x", {"cron": "@daily", "keep": 86_400.0}),
        ("once", "a --slot s --on-conflict standby -w 5 -- x", {"on_conflict": "standby", "wait": 5.0}),
        ("once", "a --slot s --again --reason r -- x", {"again": True, "reason": "r"}),
        ("once", "a --slot s --close-on-failure -E 3 -- x", {"close_on_failure": True, "conflict_exit_code": 3}),
        ("once", "a --slot s --ttl 5s --max-hold 9s -- x", {"ttl": 5.0, "max_hold": 9.0}),
        ("once", "a --slot s --kill-after 9s --wait-group --report f -- x", {
            "kill_after": 9.0, "wait_group": True, "report": "f",
        }),
        ("elect", "a --observe", {"observe": True, "command": None}),
        ("elect", "a --ttl 9s --renew-deadline 6s --retry 1s -- x", {"ttl": 9.0, "renew_deadline": 6.0, "retry": 1.0}),
        ("elect", "a -w 5s --exit-on-loss -- x", {"wait": 5.0, "exit_on_loss": True}),
        ("elect", "a --kill-after 2s -- x", {"kill_after": 2.0}),
        ("elect", "a --reason r --json -- x", {"reason": "r", "json": True}),
        ("hold", "a b --for 1m -w 2s --ttl 9s", {"names": ["a", "b"], "duration": 60.0, "wait": 2.0, "ttl": 9.0}),
        ("hold", "a --permits 2 -E 4 --reason r -n --json", {
            "permits": 2, "conflict_exit_code": 4, "reason": "r", "no_wait": True, "json": True,
        }),
        ("hold", "a --shared", {"shared": True}),
        ("wait", "a -w 2s --every 3s -E 7", {"wait": 2.0, "every": 3.0, "conflict_exit_code": 7}),
        ("check", "--need 10s --json", {"need": 10.0, "json": True}),
        ("ls", "a --waiters --names --json", {"prefix": "a", "waiters": True, "names": True, "json": True}),
        ("info", "a --slot s --json", {"slot": "s", "json": True}),
        ("watch", "a --every 5s --json", {"prefix": "a", "every": 5.0, "json": True}),
        ("break", "a --fence 7 --reason r --yes --now --json", {"fence": 7, "yes": True, "now": True, "json": True}),
        ("pause", "a --reason r --for 1h --json", {"duration": 3600.0, "json": True}),
        ("resume", "a --json", {"json": True}),
        ("forget", "a --slot s --reason r --json", {"json": True}),
        ("fence", "move a b --from x --to y --dry-run --yes --json", {
            "words": ["a", "b"], "old": "x", "new": "y", "dry_run": True, "yes": True, "json": True,
        }),
        ("fence", "move --all --from x --to y --reason r", {"all": True, "reason": "r", "words": []}),
        ("fence", "raise a --reason r 7", {"words": ["a", "7"], "reason": "r"}),
        ("queue", "ls q --state done --url u", {"target": "q", "state": "done", "url": "u"}),
        ("queue", "purge q --dead --older-than 2h --schema s --json", {
            "action": "purge", "dead": True, "older_than": 7200.0, "schema": "s", "json": True,
        }),
        ("schema", "fence --table t --key k --schema s --lock l --lock-namespace n --guard-schema g --lenient", {
            "table": "t", "key": "k", "schema": "s", "lock": "l", "lock_namespace": "n", "guard_schema": "g",
            "lenient": True,
        }),
        ("schema", "mysql --role r --dialect sqlite", {"what": "mysql", "role": "r", "dialect": "sqlite"}),
        ("doctor", "redis://h --try --json", {"store": "redis://h", "tries": True, "json": True}),
        ("exporter", "--listen h:1 --prefix p --group a --group b", {
            "listen": "h:1", "prefix": "p", "group": ["a", "b"],
        }),
        ("exporter", "--max-groups 9 --max-age 1m --patience 2s", {"max_groups": 9, "max_age": 60.0, "patience": 2.0}),
        ("explain", "Paused --json", {"error": "Paused", "json": True}),
        ("choose", "--need job --have a --have b,c --twice cheap --json", {
            "need": "job", "have": ["a", "b,c"], "twice": "cheap", "json": True,
        }),
        ("ui", "--listen h:1 --write --auth f --proxy-user X", {
            "listen": "h:1", "write": True, "auth": "f", "proxy_user": "X",
        }),
        ("ui", "--proxy-address a --proxy-address b --writer w --writer v", {
            "proxy_address": ["a", "b"], "writer": ["w", "v"],
        }),
        ("ui", "--allow-host h --allow-host i --database d --audit f --hash-password", {
            "allow_host": ["h", "i"], "database": "d", "audit": "f", "hash_password": True,
        }),
        ("ui", "--election e --election f --job j --job k", {"election": ["e", "f"], "job": ["j", "k"]}),
        ("demo", "--ui -q", {"ui": True, "quiet": True}),
        ("ls", "-q -v --url u --namespace n", {"quiet": True, "verbose": True, "url": "u", "namespace": "n"}),
        ("ls", "--quiet --verbose", {"quiet": True, "verbose": True}),
    ],
)  # fmt: skip
def test_every_option_arrives_where_it_is_used(verb: str, words: str, expected: dict[str, Any]) -> None:
    found = words_of(verb, words)
    assert {name: found[name] for name in expected} == expected


@pytest.mark.parametrize(
    ("words", "problem", "advice"),
    [
        ("", "no command given", "see leasehold --help"),
        ("fly", "unknown verb 'fly'", "see leasehold --help"),
        ("--json", "unknown option --json; options come after the verb, as in: leasehold ls --json", "see leasehold -"),
        ("run", "the following arguments are required: NAME", "usage: leasehold run NAME"),
        ("run job", "no command given: write it after --, as in: leasehold run NAME -- ./job.sh", "run --help"),
        ("run job --", "no command given: write it after --", "see leasehold run --help"),
        ("run job --zzzz 3", "unknown option --zzzz; put -- before the command", "see leasehold run --help"),
        ("run job --zzzz -- true", "unknown option --zzzz", "see leasehold run --help"),
        ("ls a b", "unknown argument b", "see leasehold ls --help"),
        ("run job -n -w 3 -- true", "not allowed with argument", "see leasehold run --help"),
        ("run job --permits 2 --shared -- true", "not allowed with argument", "see leasehold run --help"),
        ("hold job -n -w 3", "not allowed with argument", "see leasehold hold --help"),
        ("hold job --permits 2 --shared", "not allowed with argument", "see leasehold hold --help"),
        ("run a b --permits 2 -- true", "--permits and --shared are for one name", "see leasehold run --help"),
        ("hold a b --shared", "--permits and --shared are for one name", "see leasehold hold --help"),
        ("run a --min-hold 2s --max-hold 1s -- true", "--min-hold is longer than --max-hold", "run --help"),
        ("run a --on-conflict standby -- true", "invalid choice", "see leasehold run --help"),
        ("run a --permits 0 -- true", "must be a whole number from 1 to 1000000, not '0'", "run --help"),
        ("run a -E 256 -- true", "must be a whole number from 0 to 255, not '256'", "run --help"),
        ("run a --ttl soon -- true", "a time looks like 30s", "run --help"),
        ("once job -- true", "one of the arguments --every --cron --slot is required", "once --help"),
        ("once job --every 1h --slot a -- true", "not allowed with argument", "once --help"),
        ("once job --slot s --again -- true", "--again needs --reason", "once --help"),
        ("once job --slot s --on-conflict wait -- true", "invalid choice", "once --help"),
        ("once job --slot s", "no command given", "once --help"),
        ("elect job", "no command given", "elect --help"),
        ("elect job --observe -- true", "--observe runs nothing", "elect --help"),
        ("break job --reason r", "--fence", "break --help"),
        ("break job --fence 7", "--reason", "break --help"),
        ("break job --fence 0 --reason r", "must be a whole number from 1 to 9007199254740991", "break --help"),
        ("pause job", "--reason", "pause --help"),
        ("forget job --reason r", "--slot", "forget --help"),
        ("forget job --slot s", "--reason", "forget --help"),
        ("fence lower job 7", "invalid choice", "fence --help"),
        ("queue drop x", "invalid choice", "queue --help"),
        ("queue ls --state old", "invalid choice", "queue --help"),
        ("queue ls --namespace x", "unknown option --namespace", "queue --help"),
        ("schema tables", "invalid choice", "schema --help"),
        ("schema guard --dialect oracle", "invalid choice", "schema --help"),
        ("explain --url x", "unknown option --url", "explain --help"),
        ("completion tcsh", "invalid choice", "completion --help"),
        ("exporter --max-groups 1001", "must be a whole number from 1 to 1000", "exporter --help"),
        ("choose --twice often", "invalid choice", "choose --help"),
        ("watch --evry 3", "unknown option --evry; did you mean --every?", "watch --help"),
        ("watch --evry=3", "unknown option --evry=3; did you mean --every?", "watch --help"),
        ("ls -x", "unknown option -x", "ls --help"),
    ],
)
def test_wrong_words_are_refused_with_the_reason_and_a_page_to_read(words: str, problem: str, advice: str) -> None:
    with pytest.raises(Usage) as refused:
        read(words.split())
    assert problem in str(refused.value)
    assert advice in refused.value.advice


def test_advice_for_a_misspelt_verb_names_only_one_that_is_near() -> None:
    with pytest.raises(Usage) as near:
        read(["hodl"])
    assert str(near.value) == "unknown verb 'hodl'; did you mean hold?"
    with pytest.raises(Usage) as far:
        read(["xyzzy"])
    assert str(far.value) == "unknown verb 'xyzzy'"


@pytest.mark.parametrize(
    ("take", "good", "bad"),
    [
        (permits, ["1", "1000000"], ["0", "1000001", "-1", "1.0", "", "x", "²"]),
        (exit_code, ["0", "255"], ["256", "-1", "x"]),
        (fence_number, ["1", str(2**53 - 1)], ["0", str(2**53)]),
        (groups, ["1", "1000"], ["0", "1001"]),
    ],
)
def test_whole_numbers_have_bounds(take: Any, good: list[str], bad: list[str]) -> None:
    from argparse import ArgumentTypeError

    assert [take(text) for text in good] == [int(text) for text in good]
    for text in bad:
        with pytest.raises(ArgumentTypeError, match="must be a whole number from"):
            take(text)


def test_units_of_time_add_up_to_a_leap_year_at_most() -> None:
    assert duration("1d2h3m4s5ms") == 86_400 + 7_200 + 180 + 4 + 0.005
    assert duration("1.5h") == 5_400
    assert duration(" 30S ") == 30
    assert duration("366d") == LONGEST == 366 * 86_400
    with pytest.raises(ValueError, match="'366d1s' is more than a year"):
        duration("366d1s")


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("127.0.0.1:9479", ("127.0.0.1", 9479)),
        ("[::1]:0", ("::1", 0)),
        ("host:65535", ("host", 65_535)),
        ("9479", None),
        (":9479", None),
        ("host:", None),
        ("host:65536", None),
        ("host:http", None),
        ("host:²", None),
    ],
)
def test_where_a_server_listens_is_a_host_and_a_port(text: str, address: tuple[str, int] | None) -> None:
    if address is not None:
        assert listen_address(text) == address
        return
    with pytest.raises(ConfigurationError, match="--listen takes HOST:PORT"):
        listen_address(text)


@pytest.mark.parametrize("words", [["-h"], ["--help"], ["help"], ["help", "nonsense"]])
def test_help_is_the_page_of_all_verbs(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert read(words) is None
    assert capsys.readouterr().out == f"{top_help()}\n"


@pytest.mark.parametrize(
    "words", [["help", "ls"], ["ls", "-h"], ["ls", "--help"], ["ls", "a", "b", "--nonsense", "-h"]]
)
def test_help_of_a_verb_is_its_own_page_whatever_else_is_wrong(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert read(words) is None
    assert capsys.readouterr().out == f"{verb_help(VERBS['ls'])}\n"


def test_help_behind_the_dashes_is_the_commands_own() -> None:
    assert words_of("run", "a -- cmd -h")["command"] == ["cmd", "-h"]


@pytest.mark.parametrize("word", ["-V", "--version"])
def test_the_version_is_one_line(word: str, capsys: pytest.CaptureFixture[str]) -> None:
    import leasehold

    assert read([word]) is None
    assert capsys.readouterr().out == f"leasehold {leasehold.__version__}\n"


def test_the_overview_has_each_verb_with_its_summary() -> None:
    from leasehold.cli.manual import PAGES

    lines = top_help(100).splitlines()
    for name in VERBS:
        assert any(line.startswith(f"  {name} ") and PAGES[name].summary.split()[0] in line for line in lines), name


# --- the entry: every end has its code


def entry(monkeypatch: pytest.MonkeyPatch, handler: Any, *words: str) -> int:
    """Run `ls` with another handler."""
    monkeypatch.setattr(VERBS["ls"], "handler", lambda: handler)
    return main.main(["ls", *words])


def raising(error: BaseException) -> Any:
    def handler(*_: object) -> int:
        raise error

    return handler


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (KeyboardInterrupt(), 130, ""),
        (Usage("bad words", "see there"), 64, "leasehold: bad words\nsee there\n"),
        (ConfigurationError("no such store"), 78, "leasehold: no such store\n"),
        (AcquireTimeout("busy"), 75, "leasehold: busy\n"),
        (
            ValueError("it broke"),
            70,
            "leasehold: internal error: ValueError: it broke (please report it, with the output of -v)\n",
        ),
    ],
)
def test_every_error_is_a_sentence_and_a_code(
    error: BaseException, code: int, said: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert entry(monkeypatch, raising(error)) == code
    assert capsys.readouterr() == ("", said)


def test_what_the_verb_returns_is_the_code_and_its_console_is_as_was_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[str, bool, bool]] = []

    def handler(arguments: Any, console: Any) -> int:
        seen.append((arguments.verb.name, console.is_quiet, console.is_verbose))
        return 42

    assert [entry(monkeypatch, handler, *words) for words in ([], ["-q"], ["-v"])] == [42, 42, 42]
    assert seen == [("ls", False, False), ("ls", True, False), ("ls", False, True)]
    assert main.main(["--version"]) == 0


def test_a_quiet_program_still_says_what_went_wrong(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert entry(monkeypatch, raising(ConfigurationError("no such store")), "-q") == 78
    assert capsys.readouterr().err == "leasehold: no such store\n"


def test_verbose_shows_where_an_error_happened(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert entry(monkeypatch, raising(ConfigurationError("no such store")), "-v") == 78
    said = capsys.readouterr().err
    assert "Traceback" in said
    assert said.endswith("leasehold: no such store\nleasehold: see: leasehold explain ConfigurationError\n")


def test_a_reader_that_went_away_ends_the_program_as_sigpipe_would(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with (tmp_path / "output").open("w") as output:
        monkeypatch.setattr(sys, "stdout", output)
        assert entry(monkeypatch, raising(BrokenPipeError())) == 128 + signal.SIGPIPE
        output.write("what was not written yet")  # the interpreter flushes at its end
    assert (tmp_path / "output").read_text() == ""


def test_closed_standard_descriptors_are_replaced_and_inherited(monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[object] = []

    def fstat(number: int) -> None:
        if number == 2:
            raise OSError(9, "bad file descriptor")

    def opening(*words: object) -> int:
        opened.append(words)
        return 99

    fakes = SimpleNamespace(
        fstat=fstat, open=opening, set_inheritable=lambda *words: opened.append(words), devnull=os.devnull,
        O_RDWR=os.O_RDWR,
    )  # fmt: skip
    monkeypatch.setattr(main, "os", fakes)
    main._open_standard_streams()
    assert opened == [(os.devnull, os.O_RDWR), (99, True)]


def test_as_a_program_it_ends_with_the_code_of_its_words(monkeypatch: pytest.MonkeyPatch) -> None:
    ended: list[int] = []
    monkeypatch.setattr(sys, "argv", ["leasehold", "nonsense"])
    monkeypatch.setattr("gc.disable", lambda: None)
    monkeypatch.setattr("os._exit", ended.append)
    with pytest.raises(TypeError):  # the real one does not return
        main.main() + ""  # type: ignore[operator]
    assert ended == [exit_codes.USAGE]


def test_a_character_that_the_terminal_does_not_have_is_escaped(monkeypatch: pytest.MonkeyPatch) -> None:
    streams = SimpleNamespace(out=io.TextIOWrapper(io.BytesIO(), "ascii"), err=io.TextIOWrapper(io.BytesIO(), "ascii"))
    monkeypatch.setattr(sys, "stdout", streams.out)
    monkeypatch.setattr(sys, "stderr", streams.err)
    main.main(["--version"])
    assert (streams.out.errors, streams.err.errors) == ("backslashreplace", "backslashreplace")
