"""The scenarios, by the names that the command knows. Each module has `run(settings)`, which gives tables."""

__all__ = ["SCENARIOS"]

SCENARIOS = {
    "overhead": "benchmarks.scenarios.overhead",
    "p1": "benchmarks.scenarios.redis_pair",
    "p2": "benchmarks.scenarios.redis_tasks",
    "p3": "benchmarks.scenarios.redlock_pair",
    "p4": "benchmarks.scenarios.redis_contended",
    "p5": "benchmarks.scenarios.redis_held",
    "p6": "benchmarks.scenarios.redis_crowd",
    "p7": "benchmarks.scenarios.sqlite_file",
    "p8": "benchmarks.scenarios.etcd_pair",
    "p9": "benchmarks.scenarios.zookeeper_pair",
    "p10": "benchmarks.scenarios.postgres_pair",
    "p11": "benchmarks.scenarios.start_up",
    "p12": "benchmarks.scenarios.growth",
    "p12-redlock": "benchmarks.scenarios.redlock_growth",
    "p13": "benchmarks.scenarios.local_waiters",
    "p14": "benchmarks.scenarios.redis_distance",
    "p14-redlock": "benchmarks.scenarios.redlock_distance",
    "p14-postgresql": "benchmarks.scenarios.postgres_distance",
    "p12-zookeeper": "benchmarks.scenarios.zookeeper_growth",
    "p14-zookeeper": "benchmarks.scenarios.zookeeper_distance",
    "p12-etcd": "benchmarks.scenarios.etcd_growth",
    "p14-etcd": "benchmarks.scenarios.etcd_distance",
    "hand-over": "benchmarks.scenarios.hand_over",
}
