"""The contract without pytest: `python -m leasehold.testing.contract URL [STORE] [--ttl SECONDS] [--only TEXT] …`.

With STORE, a row of our own capability table, the store must declare exactly those capabilities; without it, those that
it declares are checked. `memory` is the memory store on a clock turned by hand.
"""

from __future__ import annotations

import argparse
import sys
import traceback
from itertools import product

from leasehold.testing.contract import CASES, DRIVERS, REQUIRED, STORE_CASES, Harness, MemoryHarness, UrlHarness, check


def main(arguments: list[str] | None = None) -> int:
    """Run every case on every driver; print what failed; 0 if nothing did."""
    parser = argparse.ArgumentParser(prog="python -m leasehold.testing.contract", description=__doc__)
    parser.add_argument("url", help="the store to check, or `memory`")
    parser.add_argument("store", nargs="?", choices=REQUIRED, metavar="STORE", help=f"one of: {', '.join(REQUIRED)}")
    parser.add_argument("--ttl", type=float, default=1.0, help="a short ttl that the store honours")
    parser.add_argument("--cases", choices=("all", "store"), default="all", help="`store`: without those of the core")
    parser.add_argument("--turns", action="store_true", help="each case on one runtime, threads and asyncio by turns")
    parser.add_argument("--only", default="", help="only cases whose name contains this")
    options = parser.parse_args(arguments)
    required = REQUIRED[options.store] if options.store else None

    def harness() -> Harness:
        return MemoryHarness() if options.url == "memory" else UrlHarness(options.url, required, options.ttl)

    failures = 0
    chosen = STORE_CASES if options.cases == "store" else CASES
    cases = [case for case in chosen if options.only in str(case)]
    pairs = (
        [(DRIVERS[index % 2], case) for index, case in enumerate(cases)] if options.turns else product(DRIVERS, cases)
    )
    total = 0
    for driver, case in pairs:
        total += 1
        if sys.stderr.isatty():
            print(f"\r\x1b[K{driver().name} {case}", end="", file=sys.stderr, flush=True)
        try:
            check(case, harness(), driver())
        except Exception:
            failures += 1
            print(f"FAILED {driver().name} {case}")
            traceback.print_exc(file=sys.stdout)
    print(f"{total - failures} passed, {failures} failed")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
