"""The arguments of the verbs that hold or wait for locks: run, once, elect, hold, wait and check."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leasehold.cli.argument_types import add_json, exit_code, permits, time_span

if TYPE_CHECKING:
    from argparse import ArgumentParser

__all__ = ["add_check", "add_elect", "add_hold", "add_once", "add_run", "add_wait"]


def add_run(parser: ArgumentParser) -> None:
    """`run`."""
    _names(parser)
    _waiting(parser)
    _ttl(parser)
    parser.add_argument(
        "--min-hold", type=time_span, default=0.0, metavar="TIME", help="keep the lock at least this long"
    )
    _stopping(parser)
    _kind(parser)
    parser.add_argument(
        "--on-conflict", choices=("fail", "skip"), default="fail", help="busy: exit with 75, or silently with 0"
    )
    _code(parser)
    _reason(parser)
    _group(parser)


def add_once(parser: ArgumentParser) -> None:
    """`once`."""
    parser.add_argument("name", metavar="NAME", help="the job, which is also the name of its lock")
    slot = parser.add_mutually_exclusive_group(required=True)
    slot.add_argument("--every", type=time_span, metavar="TIME", help="once per period of the store's time, such as 1d")
    slot.add_argument("--cron", metavar="FIELDS", help="once per tick, such as '0 2 * * *', as in crontab")
    slot.add_argument("--slot", metavar="LABEL", help="once per label of your own, such as 2026-11-15")
    parser.add_argument("--tz", default="UTC", metavar="ZONE", help="the time zone of periods and ticks (UTC)")
    parser.add_argument(
        "--on-conflict",
        choices=("skip", "fail", "standby"),
        default="skip",
        help="another run has the slot: exit with 0, with 75, or wait and take over if it vanishes",
    )
    parser.add_argument(
        "-w", "--wait", type=time_span, metavar="TIME", help="how long to stand by; without it, for ever"
    )
    parser.add_argument(
        "--again", action="store_true", help="run the slot once more although it has been run; needs --reason"
    )
    parser.add_argument("--close-on-failure", action="store_true", help="do not run again for this slot after failing")
    parser.add_argument("--keep", type=time_span, metavar="TIME", help="remember the slot for longer than two periods")
    _ttl(parser)
    _stopping(parser)
    _code(parser)
    _reason(parser)
    _group(parser)
    parser.set_defaults(min_hold=0.0)


def add_elect(parser: ArgumentParser) -> None:
    """`elect`."""
    parser.add_argument("name", metavar="NAME", help="the election, which is also the name of its lock")
    parser.add_argument("--observe", action="store_true", help="print the leaders as they change, and run nothing")
    parser.add_argument(
        "--ttl",
        type=time_span,
        default=15.0,
        metavar="TIME",
        help="when the next leader follows one that vanished (15s)",
    )
    parser.add_argument(
        "--renew-deadline",
        type=time_span,
        default=10.0,
        metavar="TIME",
        help="stop the command so long after the last renewal that was confirmed (10s)",
    )
    parser.add_argument(
        "--retry", type=time_span, default=2.0, metavar="TIME", help="how often to renew, or to look (2s)"
    )
    parser.add_argument(
        "-w", "--wait", type=time_span, metavar="TIME", help="give up with 75 if not elected within this time"
    )
    parser.add_argument(
        "--exit-on-loss", action="store_true", help="exit with 79 when the term is lost, instead of campaigning again"
    )
    parser.add_argument(
        "--kill-after",
        type=time_span,
        metavar="TIME",
        help="how long after TERM the group gets KILL (5s, or what is left of the ttl)",
    )
    parser.add_argument("--reason", metavar="TEXT", help="shown to the other candidates")
    add_json(parser)
    parser.set_defaults(
        min_hold=0.0, max_hold=None, wait_group=True, report=None, on_conflict="fail", conflict_exit_code=None
    )


def add_hold(parser: ArgumentParser) -> None:
    """`hold`."""
    _names(parser)
    parser.add_argument(
        "--for", dest="duration", type=time_span, metavar="TIME", help="give it back after this long (until Ctrl-C)"
    )
    _waiting(parser)
    _ttl(parser)
    _kind(parser)
    _code(parser)
    _reason(parser)
    add_json(parser)
    parser.set_defaults(min_hold=0.0, on_conflict="fail")


def add_wait(parser: ArgumentParser) -> None:
    """`wait`."""
    parser.add_argument("name", metavar="NAME", help="the lock")
    parser.add_argument(
        "-w", "--wait", type=time_span, metavar="TIME", help="give up with 75 after this long; without it, never"
    )
    parser.add_argument("--every", type=time_span, default=1.0, metavar="TIME", help="how often to look (1s)")
    _code(parser)


def add_check(parser: ArgumentParser) -> None:
    """`check`."""
    parser.add_argument(
        "--need", type=time_span, default=0.0, metavar="TIME", help="for how long the lock must still be held (0s)"
    )
    add_json(parser)


# --- what several of them have


def _names(parser: ArgumentParser) -> None:
    parser.add_argument(
        "names", metavar="NAME", nargs="+", help="the lock, or several that are taken together; up to 512 bytes each"
    )


def _waiting(parser: ArgumentParser) -> None:
    waiting = parser.add_mutually_exclusive_group()
    waiting.add_argument("-n", "--no-wait", action="store_true", help="give up at once when the lock is busy")
    waiting.add_argument(
        "-w",
        "--wait",
        type=time_span,
        metavar="TIME",
        help="give up after this long: the lock is busy (75), or the store cannot be reached (69)",
    )


def _ttl(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--ttl", type=time_span, default=30.0, metavar="TIME", help="how long the lock outlives this host (30s)"
    )


def _stopping(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--max-hold", type=time_span, metavar="TIME", help="stop the command after this long, with code 124"
    )
    parser.add_argument(
        "--kill-after",
        type=time_span,
        default=5.0,
        metavar="TIME",
        help="how long after TERM the group gets KILL (5s)",
    )


def _kind(parser: ArgumentParser) -> None:
    kind = parser.add_mutually_exclusive_group()
    kind.add_argument("--permits", type=permits, metavar="N", help="up to N may hold the name together")
    kind.add_argument("--shared", action="store_true", help="share the name with others that use --shared")


def _code(parser: ArgumentParser) -> None:
    parser.add_argument("-E", "--conflict-exit-code", type=exit_code, metavar="N", help="exit with N instead of 75")


def _reason(parser: ArgumentParser) -> None:
    parser.add_argument("--reason", metavar="TEXT", help="shown to the waiters of the lock")


def _group(parser: ArgumentParser) -> None:
    parser.add_argument("--wait-group", action="store_true", help="hold until the whole process group has ended")
    parser.add_argument("--report", metavar="FILE", help="write JSON about the run to FILE")
