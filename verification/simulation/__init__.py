"""The deterministic simulation: the shipped protocol on a virtual clock, with faults, judged by checkers.

`python -m verification.simulation --seeds 1000` runs many seeds; `--seed N` replays one.
"""

from verification.simulation.run import Outcome, simulate
from verification.simulation.runtime import SimRuntime, drive
from verification.simulation.world import World

__all__ = ["Outcome", "SimRuntime", "World", "drive", "simulate"]
