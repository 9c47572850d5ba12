"""`check`: whether the lock of the run around it is still held, and for long enough, before a step that matters."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from leasehold.cli import exit_codes
from leasehold.cli.durations import show_duration
from leasehold.cli.held import shown_names
from leasehold.cli.lease_record import Unreadable, read_records
from leasehold.cli.output import print_json
from leasehold.cli.parser import Usage
from leasehold.cli.watchdog import now

if TYPE_CHECKING:
    from argparse import Namespace

    from leasehold.cli.output import Console

__all__ = ["check"]


def check(arguments: Namespace, console: Console) -> int:
    """The verb: 0 if it is held for at least --need, else 79; silent as test(1) unless it is not, or with -v."""
    fences = _fences()
    try:
        ends = read_records()
    except Unreadable:
        console.error("cannot tell: only the user who started leasehold, or root, can check its lease")
        return exit_codes.ACCESS_REFUSED
    remaining = _ask_store(arguments, fences) if ends is None else max(0.0, ends - now())
    names, enough = shown_names(list(fences)), remaining > 0 and remaining >= arguments.need
    if arguments.json:
        print_json({"held": remaining > 0, "enough": enough, "remaining": round(remaining, 3), "fences": fences})
    elif enough:
        console.detail(f"{names}: held for another {show_duration(remaining)}")
    elif remaining > 0:
        need = show_duration(arguments.need)
        console.error(f"{names}: held for another {show_duration(remaining)} only, and {need} are needed")
    else:
        console.error(f"{names}: no longer held by this run; stop")
    return exit_codes.OK if enough else exit_codes.LEASE_LOST


def _fences() -> dict[str, int]:
    """What the innermost run around this process holds."""
    several, name, fence = (os.environ.get(f"LEASEHOLD_{word}") for word in ("FENCES", "NAME", "FENCE"))
    try:
        if several:
            import json  # noqa: PLC0415 - only with several names

            return {str(name): int(fence) for name, fence in json.loads(several).items()}
        if name and fence:
            return {name: int(fence)}
    except (ValueError, AttributeError):
        pass
    raise Usage(
        "check looks at the lock of the command that it is a part of, and there is none: "
        "LEASEHOLD_NAME and LEASEHOLD_FENCE are not set",
        "use it in a script under leasehold run, once or elect (see leasehold check --help); "
        "leasehold info NAME shows any lock",
    )


def _ask_store(arguments: Namespace, fences: dict[str, int]) -> float:
    """How long all of them are still held, by the store's clock."""
    from leasehold.cli.connection import open_client  # noqa: PLC0415 - not where there is a record

    left = []
    with open_client(arguments) as client:
        for name, fence in fences.items():
            state = client.inspect(name)
            left += [
                max(
                    (
                        holding.expires_in
                        for holding in (state.holdings if state else ())
                        if holding.fence == fence and holding.broken is None and not holding.cooling
                    ),
                    default=0.0,
                )
            ]
    return min(left)
