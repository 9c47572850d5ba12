"""A cached value expires, and every request asks the database at the same moment.

    python -m examples.cache_stampede                       # on local:, without a server
    python -m examples.cache_stampede redis://localhost     # or on any other store with records

Forty requests in four processes want one report, which the database needs a quarter of a second for. All find the
cache empty, and all ask. The database gets forty times the query that was too slow to run once, so each takes
longer, so more requests pile up: a stampede.

`client.cache` lets one request build the value and gives it to all others. Later, one builds the next value shortly
*before* the old one expires, and no request waits at all: see docs/how-to/cache-without-stampede.md.
"""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from examples.stage import Stage, play, times

if TYPE_CHECKING:
    from collections.abc import Callable

PROCESSES, REQUESTS = 4, 10


def ask_the_database(stage: Stage) -> dict[str, int]:
    """The slow query."""
    stage.ledger("queries").write("SELECT sum(cents) FROM sale")
    time.sleep(0.25)
    return {"cents": 1999}


def serve(stage: Stage) -> None:
    """A process with many requests and an ordinary cache."""
    cache = stage.ledger("cache")

    def answer() -> None:
        if not cache.read():
            cache.write(ask_the_database(stage))

    all_at_once(answer)


def serve_from_one_build(stage: Stage) -> None:
    """The same process with a cache that is shared and built once."""
    with stage.connect() as client:
        cache = client.cache("reports", ttl="10m", timeout=30)

        def answer() -> None:
            assert cache.get("sales", lambda: ask_the_database(stage)) == {"cents": 1999}

        all_at_once(answer)


def all_at_once(answer: Callable[[], None]) -> None:
    """Every request in a thread of its own."""
    with ThreadPoolExecutor(REQUESTS) as threads:
        for request in [threads.submit(answer) for _ in range(REQUESTS)]:
            request.result()


def story(stage: Stage) -> int:
    """Forty requests come at the same moment."""
    counts = []
    for label, way in (("without leasehold", serve), ("cache", serve_from_one_build)):
        stage.together(way, [()] * PROCESSES)
        counts.append(len(stage.ledger("queries").take()))
        stage.result(label, counts[-1], 1, f"{PROCESSES * REQUESTS} requests asked the database {times(counts[-1])}")
    return stage.verdict(broken=counts[0] > 1, cured=counts[1] == 1)


if __name__ == "__main__":
    raise SystemExit(play(story, __doc__))
