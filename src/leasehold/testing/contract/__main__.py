"""The contract without pytest: `python -m leasehold.testing.contract URL [STORE] [--ttl SECONDS] [--only TEXT] …`.

STORE is a row of the capability table; without it, the URL's scheme is taken. `memory` needs no URL.
"""

from __future__ import annotations

import argparse
import sys
import traceback

from leasehold.testing.contract import CASES, DRIVERS, REQUIRED, STORE_CASES, Harness, MemoryHarness, UrlHarness, check


def main(arguments: list[str] | None = None) -> int:
    """Run every case on every driver; print what failed; 0 if nothing did."""
    parser = argparse.ArgumentParser(prog="python -m leasehold.testing.contract", description=__doc__)
    parser.add_argument("url", help="the store to check, or `memory`")
    parser.add_argument("store", nargs="?", help=f"one of: {', '.join(REQUIRED)}")
    parser.add_argument("--ttl", type=float, default=1.0, help="a short ttl that the store honours")
    parser.add_argument("--cases", choices=("all", "store"), default="all", help="`store`: without those of the core")
    parser.add_argument("--only", default="", help="only cases whose name contains this")
    options = parser.parse_args(arguments)
    store = options.store or options.url.partition(":")[0]
    if store not in REQUIRED:
        parser.error(f"no store is called {store!r}; give one of: {', '.join(REQUIRED)}")

    def harness() -> Harness:
        return MemoryHarness() if options.url == "memory" else UrlHarness(options.url, REQUIRED[store], options.ttl)

    failures = 0
    chosen = STORE_CASES if options.cases == "store" else CASES
    cases = [case for case in chosen if options.only in str(case)]
    for driver in DRIVERS:
        for case in cases:
            if sys.stderr.isatty():
                print(f"\r\x1b[K{driver().name} {case}", end="", file=sys.stderr, flush=True)
            try:
                check(case, harness(), driver())
            except Exception:
                failures += 1
                print(f"FAILED {driver().name} {case}")
                traceback.print_exc(file=sys.stdout)
    total = len(cases) * len(DRIVERS)
    print(f"{total - failures} passed, {failures} failed")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
