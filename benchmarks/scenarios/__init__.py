"""The scenarios, by the names that the command knows. Each module has `run(settings)`, which gives tables."""

__all__ = ["SCENARIOS"]

SCENARIOS = {
    "overhead": "benchmarks.scenarios.overhead",
    "p7": "benchmarks.scenarios.sqlite_file",
    "p11": "benchmarks.scenarios.start_up",
    "p12": "benchmarks.scenarios.growth",
    "p13": "benchmarks.scenarios.local_waiters",
    "hand-over": "benchmarks.scenarios.hand_over",
}
