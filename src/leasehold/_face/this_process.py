"""How this process is described to others: host, number, user and program. Facts for people, kept with every claim."""

from __future__ import annotations

import os
import sys
from functools import cache

from leasehold._core.names import MAX_FACT_CHARACTERS
from leasehold.values import Holder

__all__ = ["this_process"]


def this_process(label: str | None, reason: str | None) -> Holder:
    """This process as a holder; without a label it goes by the name of its program."""
    return Holder(_host_name(), os.getpid(), _program_name() if label is None else label, reason, _user_name())


@cache
def _host_name() -> str:
    if hasattr(os, "uname"):
        return os.uname().nodename
    return os.environ.get("COMPUTERNAME", "unknown host")


@cache
def _user_name() -> str | None:
    try:
        import pwd  # noqa: PLC0415 - not on every system
    except ImportError:
        return os.environ.get("USERNAME")
    try:
        return pwd.getpwuid(os.getuid()).pw_name[:MAX_FACT_CHARACTERS]
    except KeyError:  # a container that runs under a number of its own
        return f"uid {os.getuid()}"


@cache
def _program_name() -> str | None:
    """Which program this is; without its arguments, which may be secret."""
    program = sys.argv[0] if getattr(sys, "argv", None) else ""
    folder, name = os.path.split(program)
    if name == "__main__.py":
        name = os.path.basename(folder)  # noqa: PTH119
    return name[:MAX_FACT_CHARACTERS] if name.isprintable() and name not in ("", "-", "-c", "-m") else None
