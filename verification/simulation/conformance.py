"""Whether the simulated servers answer as real ones do: the same random requests to both, answer by answer.

    python -m verification.simulation.conformance --store etcd --operations 10000
    python -m verification.simulation.conformance --store mysql --operations 10000
    python -m verification.simulation.conformance --store nats --operations 10000
    python -m verification.simulation.conformance --store redlock --operations 10000
    python -m verification.simulation.conformance --store zookeeper --operations 10000

The simulated Redis server has a conformance test of its own, `verification.simulation.redis.conformance`, because keys
that expire have to be compared there; the nodes of Redlock run other scripts on the same server.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import dataclass, field
from importlib import import_module
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["Comparison", "Report", "compare"]

STORES = ("etcd", "mysql", "nats", "redlock", "zookeeper")


@dataclass(slots=True)
class Report:
    """What came out."""

    operations: int = 0
    differences: list[str] = field(default_factory=list)


class Comparison(Protocol):
    """One real server, one simulated one, one stream of requests."""

    def one(self) -> tuple[Any, Any, Any]:
        """Make the next request of both: what it was, the answer of the real server, and that of the other."""

    def close(self) -> None:
        """Let go of the real server."""


def compare(comparison: Comparison, operations: int) -> Report:
    """Make so many requests; stops after twenty differences."""
    report = Report()
    try:
        while report.operations < operations and len(report.differences) < 20:
            report.operations += 1
            request, real, twin = comparison.one()
            if real != twin:
                report.differences.append(f"{report.operations}: {request}: {real} but {twin}")
    finally:
        comparison.close()
    return report


def main(arguments: Sequence[str] | None = None) -> int:
    """0: no difference."""
    parser = argparse.ArgumentParser(prog="python -m verification.simulation.conformance", description=__doc__)
    parser.add_argument("--store", choices=STORES, required=True)
    parser.add_argument("--operations", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(arguments)
    module = import_module(f"verification.simulation.{options.store}.conformance")
    with module.real_server() as server:
        report = compare(module.against(server, options.seed), options.operations)
    for difference in report.differences:
        print(difference)
    print(f"{report.operations} operations on {options.store}, {len(report.differences)} differences")
    return 1 if report.differences else 0


if __name__ == "__main__":
    sys.exit(main())
