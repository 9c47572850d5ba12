"""`redlock://h1,h2,h3,h4,h5`: a lock that a majority of independent Redis or Valkey servers agrees on, with a fence.

`store` reads URLs and clients; `backend` polls all nodes; `acquire`, `renew`, `release` and `inspect` count their
answers; `fences` knows which numbers must not be granted. `nodes` connects to all nodes, leaves out those that are
down and probes them; `node` is one of them, `undelivered` the calls that it may have missed. `calls` packs calls, and
the two wires, `blocking_wire` and `asyncio_wire`, carry them. The rules of one node live in `scripts/`.
"""

from leasehold._backends.redlock.store import adopt, open_url

__all__ = ["adopt", "open_url"]
