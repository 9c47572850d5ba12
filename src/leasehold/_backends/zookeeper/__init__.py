"""`zk://`, `zks://`: locks in an Apache ZooKeeper ensemble, through kazoo's connection and a recipe of our own.

Top down: `store` reads URLs and kazoo clients (`options`). `backend` is the port; it hands each verb to `acquire`,
`release`, `renew`, `inspect` or `doctor`. A claim is one ephemeral node (`claim_node`, `keys`) that sees those ahead of
it (`queue`) and takes its fence from the number of its creation (`fences`). Its node lives in a session of the ensemble
(`pool`, `session`), which proves a grant for as long as `validity` computes; a thread per client keeps the sessions
alive and clean (`session_worker`). `calls` bounds every wait for an answer, `wire` and `connection` talk to servers,
and `errors` turns kazoo's errors into ours.
"""

from leasehold._backends.zookeeper.store import adopt, open_url

__all__ = ["adopt", "open_url"]
