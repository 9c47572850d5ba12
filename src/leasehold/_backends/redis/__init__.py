"""`redis://` and its kin: one Redis or Valkey server, a Sentinel group, or a Cluster. The rules live in `scripts/`.

`store` reads URLs and clients; `backend` turns claims into script calls and replies into grants; `calls` packs them;
`router` sends each call to its server and follows redirections, with what `topology` knows; the two wires,
`blocking_wire` and `asyncio_wire`, carry bytes; `notifications` wakes waiters; `errors` translates errors of Redis.
"""

from leasehold._backends.redis.store import adopt, open_url

__all__ = ["adopt", "open_url"]
