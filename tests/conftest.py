"""The servers that tests ask for by name; each is started once per test session, when the first test needs it."""

pytest_plugins: list[str] = [
    "tests.servers.etcd",
    "tests.servers.postgres",
    "tests.servers.redis",
    "tests.servers.redlock",
    "tests.servers.zookeeper",
]
