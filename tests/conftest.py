"""The servers that tests ask for by name; each is started once per test session, when the first test needs it."""

pytest_plugins: list[str] = ["tests.servers.redis", "tests.servers.zookeeper"]
