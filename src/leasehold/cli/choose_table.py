"""What `leasehold choose` knows: needs, ways to meet them, and stores. Only facts; `choose_decide` decides.

`docs/how-to/choose.md` is drawn from these tables, and a test compares them with what the stores declare.
"""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["BEFORE_A_LOCK", "FENCES", "HAVES", "NEEDS", "PATTERNS", "STORES", "TWICE", "Need", "Pattern", "Store"]


class Need(NamedTuple):
    """Something to be done; `pattern` is the best way where a database can decide by itself, if `in_database`."""

    words: str
    pattern: str
    in_database: bool = False  # only where the data is in SQL; elsewhere it takes a lock


class Pattern(NamedTuple):
    """A way to do it. `locks` is False where no lock is needed; `wants` are capabilities that the store must have."""

    title: str
    python: str
    shell: str | None
    why: str
    page: str
    ttl: str = ""
    locks: bool = True
    wants: tuple[str, ...] = ()


class Store(NamedTuple):
    """A store; `lacks` are the capabilities that patterns may want and that it does not have."""

    title: str
    url: str
    loses: str  # what can cost a holder its lock, or give it to two
    takes_over: str  # when the next holder follows one that crashed
    queue: str
    clock: str  # which clock must not step
    trap: str
    latency: str  # an uncontended acquire and release; docs/reference/figures.md
    fences: str  # where its fences count from: "clock", "writes" or "one"
    page: str
    lacks: tuple[str, ...] = ()


_PAUSES = (
    "The ttl is not how long the work may take: a live holder renews it. It is how long the others wait after a crash, "
    "and it must be longer than the longest pause of the holder (garbage collection, a slow disk, a moved virtual "
    "machine). "
)
_LOCK_TTL = _PAUSES + "Leave it at 30s; below 5s a busy machine loses leases."

TWICE = {
    "costly": "it costs money or data, or it cannot be undone",
    "cheap": "it is a nuisance, no more",
}

BEFORE_A_LOCK = (
    "A lock is the wrong tool where the database can decide by itself, in the transaction that changes the data. It is "
    "right when the work is outside one transaction: a long job, several systems, one leader of many. A lock here is a "
    "lease: its holder can be paused beyond it and come back as a late writer, which only the resource can refuse, by "
    "its fence."
)

FENCES = {
    "clock": "Its fences follow the clock. To another store of which that is true, changing the URL is all. To etcd or "
    "ZooKeeper, which count their own writes, move the fences as well, or everything that is guarded refuses every "
    "holder (FenceAhead): leasehold fence move --all --from OLD_URL --to NEW_URL",
    "writes": "Its fences count its own writes, so they are lower than those of stores that follow the clock. Coming "
    "from another store, move the fences, or everything that is guarded refuses every holder (FenceAhead): leasehold "
    "fence move --all --from OLD_URL --to NEW_URL. To a store that follows the clock, changing the URL is all, "
    "unless fences were moved here before.",
    "one": "Its fences begin at 1 in every process: guard nothing that outlives the test.",
}

NEEDS = {
    "transaction": Need("change rows of one database, in one short transaction", "row lock", in_database=True),
    "stock": Need("hand out what is limited: tickets, seats, stock", "reservation", in_database=True),
    "create": Need(
        "create a thing once: an account, an invoice, a booking of a slot", "unique insert", in_database=True
    ),
    "edit": Need("let people edit without overwriting each other", "version column", in_database=True),
    "tasks": Need("work off a list of tasks that may fail and are tried again", "retry queue", in_database=True),
    "request": Need("do the work of a request once, although it is sent again", "idempotency key"),
    "job": Need("run a job once per day or cron tick, although many hosts start it", "once per slot"),
    "migration": Need("do a step of a deployment once, while the other copies wait for it", "once per release"),
    "work": Need("long work on one thing at a time: an order, a file, several systems", "lock"),
    "readers": Need("many readers at once, but one writer alone", "read/write lock"),
    "limit": Need("at most N at a time: licences, connections, downloads", "semaphore"),
    "leader": Need("one of many processes leads, and another takes over", "election"),
    "partitions": Need("share work out among workers, each part to one of them", "partitions"),
    "cache": Need("let one rebuild a cached value, not all at once", "cache"),
}

PATTERNS = {
    "row lock": Pattern(
        "no lock service: a row lock or an atomic UPDATE, in your own transaction",
        'lock_row(tx, "account", {"id": 7}, wait=2)',
        None,
        "The database that has the rows can keep others off them for as long as the transaction lasts, and frees them "
        "when it ends, however it ends. A second system would only add ways to disagree. One statement such as UPDATE "
        "... SET n = n - 1 WHERE id = 7 AND n >= 1 needs not even that: look at its row count.",
        "how-to/lock-rows.md",
        locks=False,
    ),
    "reservation": Pattern(
        "no lock: an atomic UPDATE, with a hold that expires",
        'Stock("tickets").reserve(tx, {"concert": 2}, key="order-42")',
        None,
        "One statement looks and takes, so nothing is sold twice; a hold that was not confirmed ends by itself. A lock "
        "around it would make buyers wait in line for what a row count decides.",
        "how-to/sell-the-last-ticket.md",
        locks=False,
    ),
    "unique insert": Pattern(
        "no lock: a unique constraint",
        'insert_once(tx, "booking", {"room": 7, "day": day, "guest": 42}, key=("room", "day"))',
        None,
        "A unique index lets one INSERT win, for ever, also against programs that know nothing of locks. A lock only "
        "lets one ask first.",
        "how-to/lock-rows.md",
        locks=False,
    ),
    "version column": Pattern(
        "no lock: a version column",
        'cas_update(tx, "page", {"text": text}, where={"id": 7}, version=3)',
        None,
        "People think for minutes. A version that is compared in the UPDATE costs nothing meanwhile and tells the "
        "second one that the page has changed; a lock would be lost over lunch.",
        "how-to/write-without-a-lock.md",
        locks=False,
    ),
    "retry queue": Pattern(
        "no lock: a queue in your own database",
        'Queue("refunds").enqueue(tx, {"order": 42}, key="refund-42")',
        "leasehold queue ls",
        "A task that is enqueued in the transaction of its cause is never lost and never invented. Each claim has a "
        "fence, so a worker that was taken for dead cannot finish the task of its successor.",
        "how-to/retry-queue.md",
        locks=False,
    ),
    "idempotency table": Pattern(
        "no lock: an idempotency key, in the transaction of the work",
        'IdempotencyKeys("payments").attempt(tx, key, fingerprint=payload)',
        None,
        "Key, work and result are committed together, so the request is done or not done, never half. A lock cannot "
        "know that the work was done before.",
        "how-to/idempotency-in-a-transaction.md",
        locks=False,
    ),
    "idempotency key": Pattern(
        "an idempotency key, kept in the lock store",
        'client.idempotency("payments").attempt(key, payload)',
        None,
        "The key is what makes two requests one; the lock in it only tells an attempt that is under way from one that "
        "vanished. Pass the key on to the payment service, if it takes one.",
        "how-to/idempotency-keys.md",
        _LOCK_TTL,
        wants=("record",),
    ),
    "once per slot": Pattern(
        "a job that runs once per slot",
        'client.once("report", every="1d")',
        "leasehold once report --cron '0 2 * * *' -- ./report.sh",
        "A lock alone lets the job run twice: a fast host is done before a slow one asks. The slot, such as the date, "
        "is remembered in the store, and a host that comes late skips.",
        "how-to/run-a-job-once.md",
        _LOCK_TTL,
        wants=("record",),
    ),
    "once per release": Pattern(
        "a job that runs once per label, with standby",
        'client.once("migrate", slot="v42", on_conflict="standby")',
        "leasehold once migrate --slot v42 --on-conflict standby -- ./migrate.sh",
        "Under a plain lock every copy would migrate, one after the other. The label says that v42 is done; the others "
        "wait until it is, and take over if the first one dies.",
        "how-to/run-migrations.md",
        _LOCK_TTL,
        wants=("record",),
    ),
    "lock": Pattern(
        "a lock, and its fence at what it protects",
        'with client.lock("order:42").hold() as lease, tx: guard(tx, lease)',
        "leasehold run order:42 -- ./ship.sh",
        "The work is outside one transaction, so something has to say whose turn it is. The holder can be paused "
        "beyond its lease and wake up as a late writer: let the resource refuse its older fence.",
        "how-to/fence-your-database.md",
        _LOCK_TTL,
    ),
    "read/write lock": Pattern(
        "a read/write lock, and its fence at what it protects",
        'client.rwlock("catalogue").read.hold()',
        "leasehold run catalogue --shared -- ./read.sh",
        "Readers do not keep each other out, and a writer has it alone. If the data is in one database, its own "
        "snapshots do the same without a lock.",
        "explanation/fencing.md",
        _LOCK_TTL,
        wants=("shared",),
    ),
    "semaphore": Pattern(
        "a semaphore",
        'client.semaphore("licence", 5).hold()',
        "leasehold run licence --permits 5 -- ./render.sh",
        "Up to N hold the name together. No order of fences can keep a late one out, so a sixth is possible for the "
        "length of a pause: take it for limits, not for correctness.",
        "reference/api.md",
        _LOCK_TTL,
        wants=("permits",),
    ),
    "election": Pattern(
        "an election",
        'client.election("scheduler").lead()',
        "leasehold elect scheduler -- ./scheduler.sh",
        "One leads until it ends, fails or is cut off, and stops by its own clock before the next one begins. What it "
        "writes as leader still needs the fence of its term.",
        "how-to/elect-a-leader.md",
        _PAUSES + "An election has 15s, renews every 2s, and gives up after 10s without an answer.",
    ),
    "partitions": Pattern(
        "partitions, each owned by one worker",
        'client.partitions("orders", 64)',
        None,
        "A worker that owns a part needs no lock per job, and jobs of one part stay in order. Parts move when workers "
        "come and go.",
        "how-to/share-out-partitions.md",
        _LOCK_TTL,
        wants=("permits",),
    ),
    "cache": Pattern(
        "a cache that one process rebuilds",
        'client.cache("prices", ttl="10m").get("sku-1", build)',
        None,
        "One builds, all others get the value that is there, and no caller waits in a queue. A value that is built "
        "twice is no harm, so the lock is only asked for, never waited for.",
        "how-to/cache-without-stampede.md",
        "The ttl of the lock is how long a builder may vanish before another one builds: 30s unless building takes "
        "long.",
        wants=("record",),
    ),
}

HAVES = {
    "host": "all processes run on one host",
    "postgresql": "PostgreSQL",
    "mysql": "MySQL or MariaDB",
    "redis": "Redis or Valkey, also with Sentinel or as a Cluster",
    "redis-nodes": "three or five Redis that know nothing of each other",
    "etcd": "etcd",
    "zookeeper": "ZooKeeper",
    "nats": "NATS with JetStream",
    "tests": "nothing: it is for tests in one process",
}

STORES = {
    "memory": Store(
        "memory",
        "memory://",
        "the process",
        "the ttl",
        "yes, woken at once",
        "no clock",
        "no other process shares it",
        "0.01 ms",
        "one",
        "explanation/what-is-promised.md",
    ),
    "sqlite": Store(
        "SQLite",
        "local:",
        "the host's disk; a copy of the file that is put back",
        "the ttl",
        "yes, woken in ms",
        "no clock: it uses boot time",
        "a network file system: two hosts may both win",
        "0.03 ms",
        "clock",
        "explanation/sqlite.md",
    ),
    "redis": Store(
        "Redis",
        "redis://host",
        "a fail-over to a replica that had not got the grant; eviction; FLUSHALL",
        "the ttl",
        "yes, woken in ms",
        "the server's clock",
        "replicas without ?acks=1; a maxmemory-policy other than noeviction",
        "0.14 ms",
        "clock",
        "explanation/redis.md",
    ),
    "redlock": Store(
        "Redlock",
        "redlock://h1,h2,h3,h4,h5",
        "clocks of the nodes that step",
        "the ttl",
        "no: asks again, up to 0.5 s",
        "the clocks of most nodes",
        "new nodes have no vote for max_ttl + 4 s",
        "0.27 ms, five nodes",
        "clock",
        "explanation/redlock.md",
        lacks=("record", "shared", "permits"),
    ),
    "postgresql": Store(
        "PostgreSQL",
        "postgresql://host/database",
        "a fail-over to a standby that lags; none with a synchronous one",
        "the ttl; at once with mode=session",
        "yes, woken in ms",
        "the server's clock",
        "a transaction pooler: give listen_url= a way around it; mode=session refuses it",
        "0.2 ms",
        "clock",
        "explanation/postgresql.md",
    ),
    "mysql": Store(
        "MySQL or MariaDB",
        "mysql://host/database",
        "a fail-over to a replica that lags; two servers that both take writes",
        "the ttl; at once with mode=session",
        "yes, woken in ms",
        "the server's clock",
        "Galera and group replication: send all clients to one node",
        "not in the figures",
        "clock",
        "explanation/mysql.md",
    ),
    "etcd": Store(
        "etcd",
        "etcd://h1,h2,h3",
        "a majority of the disks; a restored backup",
        "the ttl and 0.5 s; one more ttl after a change of leader",
        "yes, woken in ms",
        "no clock",
        "etcd before 3.4.31 or 3.5.13 may end leases early; a ttl of less than 2 s is 2 s",
        "0.65 ms",
        "writes",
        "explanation/etcd.md",
    ),
    "zookeeper": Store(
        "ZooKeeper",
        "zk://h1,h2,h3/root",
        "a majority of the disks; a restored backup",
        "1.5 ttl and a tick",
        "yes, woken in ms",
        "no clock",
        "its session limits may shorten the ttl; `leasehold doctor` says how",
        "0.55 ms",
        "writes",
        "explanation/zookeeper.md",
        lacks=("record",),
    ),
    "nats": Store(
        "NATS",
        "nats://h1,h2,h3",
        "a power cut, unless sync_interval is `always`",
        "the ttl",
        "yes, woken in ms",
        "the servers' clocks",
        "a cluster is seconds without a leader: a ttl of 15 s or more, and ?replicas=3 from the start",
        "1.7 ms",
        "clock",
        "explanation/nats.md",
    ),
}
