"""The servers that tests ask for by name; each is started once per test session, when the first test needs it."""

from hypothesis import HealthCheck, settings

# How long an example takes says something about the machine, not about the code.
settings.register_profile("leasehold", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("leasehold")

pytest_plugins: list[str] = [
    "tests.servers.etcd",
    "tests.servers.postgres",
    "tests.servers.redis",
    "tests.servers.redlock",
    "tests.servers.zookeeper",
]
