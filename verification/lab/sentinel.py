"""A primary, a replica and three Sentinels that watch them."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING

from verification.lab.process import wait_until
from verification.lab.redis import RedisServer
from verification.lab.resp import ErrorReply

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["Sentinel", "SentinelGroup"]

SERVICE = "mymaster"


class Sentinel(RedisServer):
    """One Sentinel."""

    def __init__(self, primary: RedisServer, *, program: str | None = None, down_after: float = 1.0) -> None:
        super().__init__("sentinel", program=program)
        lines = [
            f"port {self.port}",
            "bind 127.0.0.1",
            f"dir {self.folder}",
            f"sentinel monitor {SERVICE} 127.0.0.1 {primary.port} 2",
            f"sentinel down-after-milliseconds {SERVICE} {down_after * 1000:.0f}",
            f"sentinel failover-timeout {SERVICE} 3000",
        ]
        if primary.password is not None:
            lines.append(f"sentinel auth-pass {SERVICE} {primary.password}")
        self._configuration.write_text("\n".join(lines) + "\n")

    def command(self) -> Sequence[str]:
        """The same program in another role."""
        return [*super().command(), "--sentinel"]

    def primary_port(self) -> int:
        """Whom it takes for the primary now."""
        _, port = self.ask("SENTINEL", "GET-MASTER-ADDR-BY-NAME", SERVICE)
        return int(port)

    def is_settled(self) -> bool:
        """Whether it knows the other two and one replica that is up."""
        facts = _pairs(self.ask("SENTINEL", "MASTER", SERVICE))
        if facts["num-other-sentinels"] != "2" or facts["num-slaves"] != "1" or facts["flags"] != "master":
            return False
        try:
            self.ask("SENTINEL", "CKQUORUM", SERVICE)
        except ErrorReply:
            return False
        (replica,) = map(_pairs, self.ask("SENTINEL", "REPLICAS", SERVICE))
        return replica["flags"] == "slave" and replica["master-link-status"] == "ok"


class SentinelGroup:
    """Two data servers and three Sentinels; use it as a context manager.

    `down_after`: how long, in seconds, a server may be silent before it counts as down.
    """

    def __init__(self, *, program: str | None = None, down_after: float = 1.0, settings: Sequence[str] = ()) -> None:
        first = RedisServer("primary", program=program, settings=settings)
        second = RedisServer("replica", program=program, replica_of=first, settings=settings)
        self.servers = [first, second]
        self.sentinels = [Sentinel(first, program=program, down_after=down_after) for _ in range(3)]
        self._running = ExitStack()

    @property
    def url(self) -> str:
        """The URL that names all Sentinels."""
        return f"redis+sentinel://{','.join(f'127.0.0.1:{sentinel.port}' for sentinel in self.sentinels)}/{SERVICE}"

    @property
    def primary(self) -> RedisServer:
        """The server that most Sentinels take for the primary."""
        votes = [sentinel.primary_port() for sentinel in self.sentinels if sentinel.is_running]
        port = max(set(votes), key=votes.count)
        return next(server for server in self.servers if server.port == port)

    @property
    def replica(self) -> RedisServer:
        """The other one."""
        primary = self.primary
        return next(server for server in self.servers if server is not primary)

    def start(self) -> None:
        """Start all, and wait until a failover could succeed."""
        for server in self.servers:
            self._running.callback(server.remove)
            server.start()
        first, second = self.servers
        wait_until(lambda: second.info("replication")["master_link_status"] == "up", "the replica has not caught up")
        wait_until(lambda: first.has_replicated(within=0.1), "the replica does not confirm")
        for sentinel in self.sentinels:
            self._running.callback(sentinel.remove)
            sentinel.start()
        self.wait_settled()

    def wait_settled(self) -> None:
        """Wait until every Sentinel knows the others, and both servers are up."""
        wait_until(
            lambda: all(sentinel.is_settled() for sentinel in self.sentinels),
            "the Sentinels do not know each other and the replica",
        )

    def fail_over(self) -> RedisServer:
        """Kill the primary and wait for the next one."""
        before = self.primary
        before.kill()
        return self.wait_for_another(before)

    def wait_for_another(self, before: RedisServer) -> RedisServer:
        """Wait until the Sentinels agree on another primary, which takes writes."""

        def agreed() -> bool:
            return all(sentinel.primary_port() != before.port for sentinel in self.sentinels)

        wait_until(agreed, "no failover")
        after = self.primary
        wait_until(lambda: after.is_role("master"), "the new primary does not know it yet")
        return after

    def stop(self) -> None:
        """End all."""
        self._running.close()

    def __enter__(self) -> SentinelGroup:
        try:
            self.start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


def _pairs(reply: list[bytes]) -> dict[str, str]:
    words = [word.decode() for word in reply]
    return dict(zip(words[::2], words[1::2], strict=True))
