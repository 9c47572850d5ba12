"""The servers and the proxy that the Redis tests stand on do what they say."""

from __future__ import annotations

import socket
import subprocess
import sys
import threading
import time
from typing import TYPE_CHECKING

import pytest

from verification.lab.certificates import Certificates
from verification.lab.process import free_port, wait_until
from verification.lab.proxy import FaultProxy
from verification.lab.redis import RedisServer
from verification.lab.redis_cluster import RedisCluster
from verification.lab.resp import Connection, ErrorReply
from verification.lab.sentinel import SentinelGroup

if TYPE_CHECKING:
    from pathlib import Path


def test_a_server_that_is_killed_and_started_again_is_empty_and_on_the_same_port() -> None:
    with RedisServer() as server:
        assert isinstance(server, RedisServer)
        server.ask("SET", "key", "value")
        server.kill()
        with pytest.raises(OSError):
            server.ask("PING")
        server.start()
        assert server.ask("GET", "key") is None


def test_no_two_processes_are_given_the_same_port(monkeypatch: pytest.MonkeyPatch) -> None:
    few = (11_900, 11_904)  # which no other test is given
    monkeypatch.setattr("verification.lab.process.SERVER_PORTS", few)
    ours = {free_port() for _ in range(3)}
    program = f"from verification.lab import process; process.SERVER_PORTS = {few}; print(process.free_port())"
    theirs = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    assert ours | {int(theirs.stdout)} == set(range(*few))


def test_options_reach_the_server(tmp_path: Path) -> None:
    server = RedisServer(
        socket=True,
        certificates=Certificates(tmp_path / "tls"),
        password="secret",
        users=["reader on >word ~* +get"],
        maxmemory="20mb",
        policy="allkeys-lru",
    )
    with server:
        assert server.ask("CONFIG", "GET", "maxmemory-policy") == [b"maxmemory-policy", b"allkeys-lru"]
        assert server.socket is not None
        with Connection(server.socket, login=("default", "secret")) as connection:
            assert connection.ask("PING") == b"PONG"
        with server.connect(("reader", "word")) as connection, pytest.raises(ErrorReply, match="NOPERM"):
            connection.ask("SET", "a", "b")
        with pytest.raises((OSError, EOFError)), Connection(server.address, patience=2) as plain:
            plain.ask("PING")


def test_valkey_is_valkey(valkey_server: RedisServer) -> None:
    assert valkey_server.info("server")["server_name"] == "valkey"


def test_a_primary_that_is_killed_is_replaced_by_its_replica() -> None:
    with SentinelGroup(down_after=3.0) as group:  # the next primary must not be replaced, too, because it is slow
        before = group.primary
        before.ask("SET", "key", "value")
        assert before.has_replicated(within=5)
        after = group.fail_over()
        assert after is not before
        assert after.ask("GET", "key") == b"value"
        before.start()
        wait_until(lambda: before.is_role("slave"), "the old primary follows the new one")
        group.wait_settled()
        assert group.replica is before


def test_a_replica_that_stands_still_has_not_got_what_was_written_meanwhile() -> None:
    with RedisServer("primary") as primary, RedisServer("replica", replica_of=primary) as replica:
        wait_until(primary.has_replicated, "the replica does not follow")
        replica.pause()
        primary.ask("SET", "key", "value")
        assert not primary.has_replicated(within=0.2)
        replica.resume()
        wait_until(primary.has_replicated, "the replica does not catch up")
        assert replica.ask("GET", "key") == b"value"


def test_a_slot_on_the_move_answers_ask_and_a_moved_one_answers_moved() -> None:
    with RedisCluster(replicas=True) as cluster:
        slot = cluster.slot_of("key")
        source = cluster.owner_of(slot)
        source.ask("SET", "key", "value")
        target = cluster.begin_move(slot)
        with pytest.raises(ErrorReply, match=f"ASK {slot} 127.0.0.1:{target.port}"):
            source.ask("GET", "other{key}")
        cluster.finish_move(slot, target)
        with pytest.raises(ErrorReply, match=f"MOVED {slot} 127.0.0.1:{target.port}"):
            source.ask("GET", "key")
        assert target.ask("GET", "key") == b"value"
        assert len({cluster.owner_of(number).port for number in (0, 8000, 16000)}) == 3


# --- the proxy


def asks(proxy: FaultProxy, *words: str, patience: float = 0.3) -> object:
    with Connection(proxy.address, patience=patience) as connection:
        return connection.ask(*words)


def test_proxy_passes_on_and_delays_each_way(redis_proxy: FaultProxy) -> None:
    assert asks(redis_proxy, "PING") == b"PONG"
    redis_proxy.delay(to_server=0.15, to_client=0.1)
    started = time.monotonic()
    assert asks(redis_proxy, "PING", patience=5) == b"PONG"
    assert time.monotonic() - started >= 0.25


@pytest.mark.parametrize("then", ["cut", "silence"])
def test_swallowed_answer_belongs_to_a_request_that_was_applied(
    redis_proxy: FaultProxy, redis_server: RedisServer, then: str
) -> None:
    redis_proxy.swallow(b"chosen", then=then)
    with Connection(redis_proxy.address, patience=1) as connection:
        assert connection.ask("SET", "other", 1) == b"OK"
        with pytest.raises(ConnectionError if then == "cut" else TimeoutError):
            connection.ask("SET", "chosen", 1)
    redis_proxy.wait_done()
    assert redis_server.ask("GET", "chosen") == b"1"
    assert asks(redis_proxy, "GET", "chosen") == b"1"


def test_lost_request_was_not_applied(redis_proxy: FaultProxy, redis_server: RedisServer) -> None:
    redis_proxy.lose(b"chosen")
    with pytest.raises(ConnectionError):
        asks(redis_proxy, "SET", "chosen", "1", patience=5)
    assert redis_server.ask("GET", "chosen") is None


def test_request_that_was_kept_back_arrives_later(redis_proxy: FaultProxy, redis_server: RedisServer) -> None:
    redis_proxy.keep_back(b"chosen")
    with pytest.raises(ConnectionError):
        asks(redis_proxy, "SET", "chosen", "1", patience=5)
    assert redis_server.ask("GET", "chosen") is None
    redis_proxy.deliver()
    wait_until(lambda: redis_server.ask("GET", "chosen") == b"1", "it never arrived")


def test_black_hole_and_half_open_say_nothing_and_refusal_says_so(redis_proxy: FaultProxy) -> None:
    with Connection(redis_proxy.address, patience=0.3) as old:
        old.ask("PING")
        redis_proxy.half_open()
        with pytest.raises(TimeoutError):
            old.ask("PING")
    assert asks(redis_proxy, "PING") == b"PONG"
    redis_proxy.black_hole()
    with pytest.raises(TimeoutError):
        asks(redis_proxy, "PING")
    redis_proxy.heal()
    assert asks(redis_proxy, "PING") == b"PONG"
    redis_proxy.refuse()
    with pytest.raises(ConnectionRefusedError):
        asks(redis_proxy, "PING")
    redis_proxy.accept()
    assert asks(redis_proxy, "PING") == b"PONG"


def test_cut_ends_connections_that_wait(redis_proxy: FaultProxy) -> None:
    listening, ended = threading.Event(), threading.Event()

    def listen() -> None:
        with Connection(redis_proxy.address, patience=60) as connection:
            connection.ask("SUBSCRIBE", "channel")
            listening.set()
            with pytest.raises(ConnectionError):
                connection.receive()
            ended.set()

    thread = threading.Thread(target=listen)
    thread.start()
    assert listening.wait(60)
    assert redis_proxy.links == 1
    redis_proxy.cut()
    assert ended.wait(60)
    thread.join()


def test_proxy_in_front_of_nothing_hangs_up() -> None:
    with socket.create_server(("127.0.0.1", 0)) as nothing:
        port = nothing.getsockname()[1]
    with FaultProxy(("127.0.0.1", port)) as proxy, pytest.raises(ConnectionError):
        asks(proxy, "PING", patience=5)
