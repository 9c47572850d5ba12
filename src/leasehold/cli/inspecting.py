"""`ls` and `info`: what the store knows, for people and for programs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leasehold.cli import exit_codes
from leasehold.cli.conflict import holding_lines
from leasehold.cli.connection import announce, open_client
from leasehold.cli.durations import spoken
from leasehold.cli.output import print_json, print_lines, printable, shell_word, state_as_data, table, who
from leasehold.values import Mode

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Sequence

    from leasehold.cli.output import Talk
    from leasehold.values import Holding, LockState

__all__ = ["HEAD", "info", "ls", "rows_of"]

HEAD = ("NAME", "KIND", "HOLDER", "SINCE", "LEFT", "FENCE", "QUEUE", "REASON")


def ls(arguments: Namespace, talk: Talk) -> int:
    """List the locks in use."""
    with open_client(arguments) as client:
        announce(client, talk)
        states = client.locks(arguments.prefix)
    if arguments.json:
        for state in states:
            print_json(state_as_data(state))
    else:
        print_lines(table(HEAD, rows_of(states, waiters=arguments.waiters)))
    return exit_codes.OK


def rows_of(states: Sequence[LockState], *, waiters: bool) -> list[tuple[object, ...]]:
    """A row for each holder, and if asked for each one that waits."""
    rows: list[tuple[object, ...]] = []
    for state in states:
        name, queue = state.name, len(state.waiting)
        rows.extend((name, _kind(state), *_holding_cells(holding, queue)) for holding in state.holdings)
        if not state.holdings:
            rows.append((name, _kind(state), "nobody", "-", "-", "-", queue, ""))
        if waiters:
            rows.extend(
                (name, "waits", who(waiter), "-", "-", "-", f"#{place}", waiter.reason or "")
                for place, waiter in enumerate(state.waiting, 1)
            )
    return rows


def _holding_cells(holding: Holding, queue: int) -> tuple[object, ...]:
    reason = holding.holder.reason or ""
    if holding.broken is not None:
        reason = f"broken: {holding.broken}"
    elif holding.cooling:
        reason = "released, kept for its min-hold"
    return (who(holding.holder), spoken(holding.held_for), spoken(holding.expires_in), holding.fence, queue, reason)


def _kind(state: LockState) -> str:
    if state.mode is Mode.PERMIT:
        return f"{len(state.holdings)} of {state.capacity}"
    return str(state.mode)


def info(arguments: Namespace, talk: Talk) -> int:
    """Show one lock; the exit code says whether it is held."""
    with open_client(arguments) as client:
        announce(client, talk)
        state = client.inspect(arguments.name)
    held = state is not None and bool(state.holdings)
    if arguments.json:
        print_json({"held": held, **(state_as_data(state) if state else {"name": arguments.name})})
    elif state is None or not held:
        print_lines([f"{printable(repr(arguments.name))} is free"])
    else:
        print_lines(_info_lines(state, arguments))
    return exit_codes.OK if held else exit_codes.FREE


def _info_lines(state: LockState, arguments: Namespace) -> list[str]:
    lines = [f"{printable(repr(state.name))} is held ({_kind(state)})"]
    for holding in state.holdings:
        lines += [*holding_lines(holding), f"  left     {spoken(holding.expires_in)} unless renewed"]
    lines.append(f"  queue    {len(state.waiting)} waiting")
    lines += [f"    {place}. {printable(who(waiter))}" for place, waiter in enumerate(state.waiting, 1)]
    breakable = [holding for holding in state.holdings if holding.broken is None and not holding.cooling]
    if breakable:
        lines += ["", "To break it (the holder may still be running):"]
        lines += [f"  {_break_command(state.name, holding.fence, arguments)}" for holding in breakable]
    return lines


def _break_command(name: str, fence: int, arguments: Namespace) -> str:
    """Ready to be pasted; the URL only if it was given here and holds no password."""
    words = ["leasehold", "break", name, "--fence", str(fence), "--reason", "WHY"]
    if arguments.url and "@" not in arguments.url:
        words += ["--url", arguments.url]
    if arguments.namespace:
        words += ["--namespace", arguments.namespace]
    return " ".join(shell_word(word) for word in words)
