"""The scenarios, by the names that the command knows. Each module has `run(settings)`, which gives tables.

Behind a colon: which store, for a module whose `run(settings, store)` does the same on several.
"""

__all__ = ["SCENARIOS"]

SCENARIOS = {
    "overhead": "benchmarks.scenarios.overhead",
    "p1": "benchmarks.scenarios.pair:redis",
    "p2": "benchmarks.scenarios.redis_tasks",
    "p3": "benchmarks.scenarios.pair:redlock",
    "p4": "benchmarks.scenarios.redis_contended",
    "p5": "benchmarks.scenarios.redis_held",
    "p6": "benchmarks.scenarios.redis_crowd",
    "p7": "benchmarks.scenarios.sqlite_file",
    "p8": "benchmarks.scenarios.pair:etcd",
    "p9": "benchmarks.scenarios.pair:zookeeper",
    "p10": "benchmarks.scenarios.pair:postgresql",
    "p11": "benchmarks.scenarios.start_up",
    "p12": "benchmarks.scenarios.growth:several",
    "p12-redlock": "benchmarks.scenarios.growth:redlock",
    "p13": "benchmarks.scenarios.local_waiters",
    "linger": "benchmarks.scenarios.lingering",
    "p14": "benchmarks.scenarios.distance:redis",
    "p14-redlock": "benchmarks.scenarios.distance:redlock",
    "p14-postgresql": "benchmarks.scenarios.distance:postgresql",
    "p12-zookeeper": "benchmarks.scenarios.growth:zookeeper",
    "p14-zookeeper": "benchmarks.scenarios.distance:zookeeper",
    "p12-etcd": "benchmarks.scenarios.growth:etcd",
    "p14-etcd": "benchmarks.scenarios.distance:etcd",
    "p15": "benchmarks.scenarios.pair:nats",
    "p12-nats": "benchmarks.scenarios.growth:nats",
    "p14-nats": "benchmarks.scenarios.distance:nats",
    "p16": "benchmarks.scenarios.pair:mariadb",
    "p16-waiters": "benchmarks.scenarios.mysql_waiters",
    "p12-mariadb": "benchmarks.scenarios.growth:mariadb",
    "p14-mariadb": "benchmarks.scenarios.distance:mariadb",
    "hand-over": "benchmarks.scenarios.hand_over",
    "stampede": "benchmarks.scenarios.stampede",
    "oversell": "benchmarks.scenarios.oversell",
    "election": "benchmarks.scenarios.election",
    "stores": "benchmarks.scenarios.stores",
}
