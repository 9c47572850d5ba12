"""How finely the contract of a server is swept: between which of its lines a thread is interrupted.

The memory store, where a line costs least, tries every one. A server tries every fourth in `make test`, and every one
in `make faults`.
"""

from __future__ import annotations

from tests.forms import sized

__all__ = ["STRIDE"]

STRIDE = sized(4, 1)
