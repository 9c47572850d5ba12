"""`ls` and `info`: what the store knows about its locks, for people and for programs; `run` shows the same block."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leasehold.cli import exit_codes
from leasehold.cli.connection import announce, open_client
from leasehold.cli.durations import show_duration
from leasehold.cli.job_lines import last_run_as_data, last_run_lines, pause_lines
from leasehold.cli.output import (
    print_json,
    print_lines,
    print_text,
    printable,
    shell_word,
    state_as_data,
    table,
    who,
)
from leasehold.cli.style import DIM, GREEN, RED, YELLOW, paint
from leasehold.errors import LeaseholdError
from leasehold.values import Capability, Mode

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Sequence

    from leasehold._blocking import Client
    from leasehold.cli.output import Console
    from leasehold.values import Holding, LastRun, LockState, Pause

__all__ = ["HEAD", "command_line", "conflict_block", "holding_lines", "info", "lock_table", "ls", "rows_of"]

HEAD = ("NAME", "KIND", "HOLDER", "SINCE", "LEFT", "FENCE", "QUEUE", "REASON")
NAME, KIND, HOLDER, FENCE, REASON = (HEAD.index(word) for word in ("NAME", "KIND", "HOLDER", "FENCE", "REASON"))
COLOUR_OF_KIND = {"paused": YELLOW, "waiting": DIM}
BROKEN = "broken: "


def ls(arguments: Namespace, console: Console) -> int:
    """The verb: list the locks in use."""
    with open_client(arguments) as client:
        announce(client, console)
        states = client.locks(arguments.prefix)
    if arguments.json:
        for state in states:
            print_json(state_as_data(state))
    elif arguments.names:
        if states:
            print_lines(printable(state.name) for state in states)
    else:
        print_lines(lock_table(states, waiters=arguments.waiters, fences=arguments.verbose))
    return exit_codes.OK


def lock_table(states: Sequence[LockState], *, waiters: bool, fences: bool) -> list[str]:
    """The locks as a table; without the fences, which are long, unless they are asked for."""
    rows = rows_of(states, waiters=waiters)
    if fences:
        return table(HEAD, rows, names=(NAME, HOLDER), texts=(REASON,), colour_of=_colour_of)
    head = (*HEAD[:FENCE], *HEAD[FENCE + 1 :])
    rows = [(*row[:FENCE], *row[FENCE + 1 :]) for row in rows]
    return table(head, rows, names=(NAME, HOLDER), texts=(REASON - 1,), colour_of=_colour_of)


def _colour_of(row: Sequence[object]) -> str | None:
    return RED if str(row[-1]).startswith(BROKEN) else COLOUR_OF_KIND.get(str(row[KIND]))


def rows_of(states: Sequence[LockState], *, waiters: bool) -> list[tuple[object, ...]]:
    """A row for each holder, and with `waiters` for each waiter."""
    rows: list[tuple[object, ...]] = []
    for state in states:
        name, queue = state.name, len(state.waiting)
        rows.extend((name, _kind(state), *_holding_cells(holding, queue)) for holding in state.holdings)
        if state.paused is not None:
            rows.append((name, "paused", *_pause_cells(state.paused, queue)))
        elif not state.holdings:
            rows.append((name, _kind(state), "none", "-", "-", "-", queue, ""))
        if waiters:
            rows.extend(
                (name, "waiting", who(waiter), "-", "-", "-", f"#{place}", waiter.reason or "")
                for place, waiter in enumerate(state.waiting, 1)
            )
    return rows


def _holding_cells(holding: Holding, queue: int) -> tuple[object, ...]:
    reason = holding.holder.reason or ""
    if holding.broken is not None:
        reason = f"{BROKEN}{holding.broken}"
    elif holding.cooling:
        reason = "released, kept for --min-hold"
    return (
        who(holding.holder),
        show_duration(holding.held_for),
        show_duration(holding.expires_in),
        holding.fence,
        queue,
        reason,
    )


def _pause_cells(paused: Pause, queue: int) -> tuple[object, ...]:
    since = "-" if paused.paused_for is None else show_duration(paused.paused_for)
    left = "-" if paused.expires_in is None else show_duration(paused.expires_in)
    return paused.by, since, left, "-", queue, paused.reason


def _kind(state: LockState) -> str:
    if state.mode is Mode.PERMIT:
        return f"{len(state.holdings)} of {state.capacity}"
    return str(state.mode)


def info(arguments: Namespace, console: Console) -> int:
    """The verb: show one lock, and the last run of a job; the exit code is 0 if it is held."""
    with open_client(arguments) as client:
        announce(client, console)
        state = client.inspect(arguments.name)
        last = _last_run(client, arguments)
    held = state is not None and bool(state.holdings)
    if arguments.json:
        data = state_as_data(state) if state else {"name": arguments.name}
        print_json({"held": held, **data, "last_run": last_run_as_data(last)})
        return exit_codes.OK if held else exit_codes.FREE
    print_text([*_info_lines(arguments.name, state), *last_run_lines(last)])
    breakable = [holding for holding in state.holdings if _is_breakable(holding)] if state else []
    if breakable:
        print_lines(["", "To end the lease (its holder may still be running):"])
        print_lines(f"  {_break_command(arguments.name, holding.fence, arguments)}" for holding in breakable)
    return exit_codes.OK if held else exit_codes.FREE


def _last_run(client: Client, arguments: Namespace) -> LastRun | None:
    """What is remembered of a job with this name; looking makes no store."""
    if not client.exists() or Capability.RECORD not in client.capabilities:
        return None
    return client.last_run(arguments.name, slot=arguments.slot)


def _info_lines(name: str, state: LockState | None) -> list[str]:
    shown = printable(repr(name))
    if state is None:
        return [f"{shown} is {paint('free', GREEN)}"]
    if not state.holdings:
        what = paint("free", GREEN) if state.paused is None else paint("paused", YELLOW)
        queue = _queue_lines(state) if state.waiting else []
        return [f"{shown} is {what}", *pause_lines(state.paused), *queue]
    lines = [f"{shown} is {paint('held', YELLOW)} ({_kind(state)})"]
    for holding in state.holdings:
        lines += holding_lines(holding)
        if _is_breakable(holding):
            lines.append(f"  left     {show_duration(holding.expires_in)} unless renewed")
    return [*lines, *pause_lines(state.paused), *_queue_lines(state)]


def _is_breakable(holding: Holding) -> bool:
    return holding.broken is None and not holding.cooling


def _queue_lines(state: LockState) -> list[str]:
    waiters = [f"    {place}. {printable(who(waiter))}" for place, waiter in enumerate(state.waiting, 1)]
    return [f"  queue    {len(state.waiting)} waiting", *waiters]


def _break_command(name: str, fence: int, arguments: Namespace) -> str:
    return command_line(arguments, "break", name, "--fence", str(fence), "--reason", "WHY")


def command_line(arguments: Namespace, *words: str) -> str:
    """A command on the same store, ready to be pasted; with the URL only if it was an argument without a password."""
    command = ["leasehold", *words]
    if arguments.url and "@" not in arguments.url:
        command += ["--url", arguments.url]
    if arguments.namespace:
        command += ["--namespace", arguments.namespace]
    return " ".join(shell_word(word) for word in command)


def conflict_block(client: Client, name: str) -> str:
    """Why `run` did not get the lock: its holder, since when, with which fence, and how many wait."""
    try:
        state = client.inspect(name)
    except LeaseholdError:
        return "\n".join([f"{printable(repr(name))} is busy", "  holder   unknown: the store does not show it",
                          f"  store    {client.store}"])  # fmt: skip
    lines = ["  holder   none by now: it was just released"] if state is None else []
    for holding in state.holdings if state else ():
        lines += holding_lines(holding)
    if state is not None:
        lines += [*pause_lines(state.paused), f"  queue    {len(state.waiting)} waiting"]
    what = "busy" if state is None or state.paused is None else "paused"
    return "\n".join([f"{printable(repr(name))} is {what}", *lines, f"  store    {client.store}"])


def holding_lines(holding: Holding) -> list[str]:
    """One holder as lines of a block."""
    lines = [
        f"  holder   {printable(who(holding.holder))}",
        f"  since    {show_duration(holding.held_for)} ago",
        f"  fence    {holding.fence}",
    ]
    if holding.holder.user:
        lines.insert(1, f"  user     {printable(holding.holder.user)}")
    if holding.holder.reason:
        lines.append(f"  reason   {printable(holding.holder.reason)}")
    if holding.broken is not None:
        lines.append(
            f"  broken   {printable(holding.broken)}; kept until its ttl is over in {show_duration(holding.expires_in)}"
        )
    elif holding.cooling:
        lines.append(f"  released, but kept for another {show_duration(holding.expires_in)} (--min-hold)")
    return lines
