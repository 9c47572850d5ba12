"""Lost packets on the loopback interface, for one port, as long as a block runs."""

from __future__ import annotations

import os
import shutil
import subprocess
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["lossy", "why_missing"]


def why_missing() -> str:
    """Why packets cannot be lost here; empty if they can."""
    if os.geteuid() != 0:
        return "packets can only be dropped by root"
    program = shutil.which("iptables")
    if program is None:
        return "iptables is not installed"
    listed = subprocess.run([program, "-w", "-S", "INPUT"], capture_output=True, check=False)
    return "" if listed.returncode == 0 else "iptables does not work here"


@contextmanager
def lossy(port: int, share: float) -> Iterator[None]:
    """Drop this share of the packets from and to a port of the loopback interface; the rules end with the block."""
    chance = ["-m", "statistic", "--mode", "random", "--probability", str(share), "-j", "DROP"]
    rules = [["INPUT", "-i", "lo", "-p", "tcp", way, str(port), *chance] for way in ("--dport", "--sport")]
    if share:
        for rule in rules:
            subprocess.run(["iptables", "-w", "-I", *rule], check=True)
    try:
        yield
    finally:
        for rule in rules if share else ():
            with suppress(OSError):
                subprocess.run(["iptables", "-w", "-D", *rule], check=False)
