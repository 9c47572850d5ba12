"""Which tests belong to which part of the library: the quickest first, so that a bug is met soon.

A bug that is not in the catalogue yet is hunted by the tests of its part, as `make test` would.
"""

from __future__ import annotations

__all__ = ["tests_of"]

_MEMORY = ("tests/unit", "tests/faces", "tests/architecture", "tests/contract/test_memory.py", "tests/simulation")
_EMBEDDED = (*_MEMORY, "tests/contract/test_sqlite.py", "tests/processes")

# The longest prefix of the file's path counts.
_AREAS: dict[str, tuple[str, ...]] = {
    "": (*_EMBEDDED, "tests/contract/test_redis.py"),
    "kit/": (
        "tests/unit",
        "tests/contract/test_memory.py",
        "tests/stores/sqlite",
        "tests/contract/test_sqlite.py",
        "tests/contract/test_toy_store.py",
        "tests/contract/test_differential.py",
        "tests/simulation",
    ),
    "_patterns/": (
        "tests/unit",
        "tests/faces",
        "tests/patterns/test_patterns_memory.py",
        "tests/patterns/cache",
        "tests/patterns/election",
        "tests/patterns/idempotency",
        "tests/patterns/test_patterns_sqlite.py",
        "tests/processes",
    ),
    "telemetry/": ("tests/unit", "tests/telemetry"),
    "_backends/sqlite/": ("tests/unit", "tests/stores/sqlite", "tests/contract/test_sqlite.py", "tests/processes"),
    "_backends/redis/": (
        "tests/unit",
        "tests/simulation",
        "tests/contract/test_redis.py",
        "tests/contract/test_redis_sentinel.py",
        "tests/contract/test_redis_cluster.py",
        "tests/stores/redis",
        "tests/lab/test_redis_lab.py",
    ),
    "_backends/redlock/": (
        "tests/unit",
        "tests/models",
        "tests/contract/test_redlock.py",
        "tests/stores/redlock",
    ),
    "_backends/postgres/": (
        "tests/unit",
        "tests/contract/test_postgres.py",
        "tests/contract/test_postgres_session.py",
        "tests/contract/test_postgres_asyncpg.py",
        "tests/sql",
        "tests/stores/postgres",
    ),
    "_backends/etcd/": ("tests/unit", "tests/contract/test_etcd_threads.py", "tests/stores/etcd"),
    "_backends/zookeeper/": ("tests/unit", "tests/contract/test_zookeeper.py", "tests/stores/zookeeper"),
    "_backends/mysql/": (
        "tests/unit",
        "tests/contract/test_mysql.py",
        "tests/contract/test_mysql_session.py",
        "tests/stores/mysql",
    ),
    "_backends/nats/": ("tests/unit", "tests/contract/test_nats.py", "tests/stores/nats"),
    "sql/": ("tests/unit", "tests/sql", "tests/lab/test_counters.py"),
    "fencing/": ("tests/unit", "tests/fencing", "tests/stores/etcd/test_etcd_guard.py"),
    "integrations/": ("tests/integrations",),
    "cli/": ("tests/unit", "tests/processes"),
    "web/": ("tests/web",),
}


def tests_of(file: str) -> tuple[str, ...]:
    """The tests of the part that a file of the library is in; `*` stands for any text."""
    return _AREAS[max((prefix for prefix in _AREAS if file.startswith(prefix)), key=len)]
