"""`redis://` and its kin: one Redis or Valkey server, a Sentinel group, or a Cluster. The rules live in `scripts/`.

`store` reads URLs and clients; `backend` turns claims into script calls and replies into grants; `courier` finds the
server and follows redirections (with `topology`); the two wires, `blocking_wire` and `asyncio_wire`, carry bytes;
`pushes` hears of hand-overs; `trouble` says what an error means for a lock.
"""

from leasehold.backends.redis.store import adopt, open_url

__all__ = ["adopt", "open_url"]
