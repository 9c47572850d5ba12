"""The simulated server: what a script sees, what is lost, and what is not."""

from __future__ import annotations

from typing import Any

import pytest

from leasehold._backends.redis.calls import pack
from leasehold.values import Grant
from tests.simulation.redis_bench import Bench
from verification.simulation import World
from verification.simulation.redis.database import CommandError, Database
from verification.simulation.redis.server import Later, SimRedis
from verification.simulation.redis.wire import parse


class Session:
    def __init__(self) -> None:
        self.heard: list[Any] = []

    def hear(self, message: list[Any]) -> None:
        self.heard.append(message)

    def hang_up(self, *, in_silence: bool) -> None:
        self.heard.append("hung up")


class Desk:
    """A server, and somebody who types commands."""

    def __init__(self) -> None:
        self.world = World(1)
        self.server = SimRedis(self.world)
        self.session = Session()
        self.number = self.server.attach(self.session)

    def type(self, *words: str | int) -> Any:
        return self.server.execute(self.session, self.number, [str(word).encode() for word in words])

    def script(self, text: str, *arguments: str) -> Any:
        return self.type("EVAL", text, 0, *arguments)


@pytest.fixture
def desk() -> Desk:
    return Desk()


@pytest.mark.parametrize(
    ("text", "reply"),
    [
        ("return 3.99", 3),
        ("return -3.99", -3),
        ("return true", 1),
        ("return false", None),
        ("return {1, 'a', false, {2}, nil, 5}", [1, b"a", None, [2]]),
        ("return redis.call('GET', 'nothing')", None),
        ("return redis.call('GET', 'nothing') == false", 1),
        ("return redis.call('SET', 'k', 1794724016973247) and redis.call('GET', 'k')", b"1794724016973247"),
        ("return redis.call('SET', 'k', 0.5) and redis.call('GET', 'k')", b"0.5"),
        ("return 'n' .. 1794724016973247", b"n1.7947240169732e+15"),
        ("return type(redis.pcall('NOSUCH')) .. type(redis.call('HMGET', 'h', 'a', 'b')[2])", b"tableboolean"),
    ],
)
def test_values_go_into_scripts_and_out_of_them_as_in_redis(desk: Desk, text: str, reply: Any) -> None:
    assert desk.script(text) == reply


@pytest.mark.parametrize("text", ["x = 1", "return x", "return redis.call('NOSUCH')", "return {", "error('no')"])
def test_a_script_that_fails_answers_with_an_error(desk: Desk, text: str) -> None:
    assert isinstance(desk.script(text), CommandError)


def test_time_stands_still_in_a_script(desk: Desk) -> None:
    assert desk.script("local a, b = redis.call('TIME'), redis.call('TIME') return a[2] == b[2]") == 1


def test_a_key_is_there_in_its_last_millisecond_and_gone_in_the_next() -> None:
    database = Database()
    database.now_ms = 1000
    database.run([b"SET", b"k", b"v", b"PX", b"500"])
    for now, value in ((1499, b"v"), (1500, b"v"), (1501, None)):
        database.now_ms = now
        assert database.run([b"GET", b"k"]) == value


def test_a_command_on_a_value_of_another_kind_is_refused() -> None:
    database = Database()
    database.run([b"SET", b"k", b"v"])
    with pytest.raises(CommandError, match="WRONGTYPE"):
        database.run([b"HGET", b"k", b"f"])


def test_a_script_has_to_be_sent_once_and_is_forgotten_by_a_new_process(desk: Desk) -> None:
    digest = "e0e1f9fabfc9d4800c877a703b823ac0578ff8db"  # of "return 1"
    assert "NOSCRIPT" in str(desk.type("EVALSHA", digest, 0))
    assert desk.script("return 1") == 1
    assert desk.type("EVALSHA", digest, 0) == 1
    desk.server.restart_empty()
    assert "NOSCRIPT" in str(desk.type("EVALSHA", digest, 0))


def test_a_message_reaches_its_subscribers_and_returns_their_number(desk: Desk) -> None:
    assert desk.type("PUBLISH", "c", "m") == 0
    assert desk.type("SUBSCRIBE", "c") == [b"subscribe", b"c", 1]
    assert desk.script("return redis.call('PUBLISH', 'c', 'm')") == 1
    assert desk.session.heard == [[b"message", b"c", b"m"]]
    desk.server.lose_listeners()
    assert desk.type("PUBLISH", "c", "m") == 0


def test_a_server_that_refuses_writes_refuses_the_first_of_a_script_but_no_message(desk: Desk) -> None:
    desk.type("SUBSCRIBE", "c")
    desk.server.refuses = "NOREPLICAS Not enough good replicas to write."
    assert "NOREPLICAS" in str(desk.type("SET", "k", 1))
    assert "NOREPLICAS" in str(desk.script("redis.call('PUBLISH', 'c', 'm') return redis.call('ZREM', 'q', '')"))
    assert desk.session.heard == [[b"message", b"c", b"m"]]
    assert desk.type("GET", "k") is None


def test_a_full_server_lets_a_script_go_on_that_has_written_without_memory(desk: Desk) -> None:
    desk.server.refuses = "OOM command not allowed when used memory > 'maxmemory'."
    assert "OOM" in str(desk.script("return redis.call('SET', 'k', 1)"))
    assert desk.script("redis.call('ZREM', 'q', '') redis.call('SET', 'k', 1) return redis.call('GET', 'k')") == b"1"


def test_a_fail_over_loses_what_the_replica_has_not_got(desk: Desk) -> None:
    desk.server.lag = 1.0
    desk.type("SET", "old", 1)
    desk.world.now = 2.0
    desk.type("SET", "new", 1)
    desk.server.fail_over()
    assert [desk.type("GET", "old"), desk.type("GET", "new")] == [b"1", None]


def test_a_fail_over_keeps_what_was_waited_for(desk: Desk) -> None:
    desk.server.lag = 1.0
    desk.type("SET", "k", 1)
    assert desk.type("WAIT", 1, 500) == Later(0.5, 0)
    assert desk.type("WAIT", 1, 2000) == Later(1.0, 1)
    desk.server.fail_over()
    assert desk.type("GET", "k") == b"1"


def test_what_had_a_time_to_live_still_has_it_after_a_fail_over(desk: Desk) -> None:
    desk.type("SET", "k", 1, "PX", 3000)
    desk.world.now = 2.0
    desk.server.fail_over()
    assert desk.type("PTTL", "k") == 1000


def test_a_promoted_replica_has_another_name_and_reports_its_promotion(desk: Desk) -> None:
    before = desk.type("INFO", "server"), desk.type("INFO", "replication")
    assert b"replid2:0000" in before[1]
    desk.server.fail_over()
    assert desk.type("INFO", "server") != before[0]
    assert b"replid2:0000" not in desk.type("INFO", "replication")
    desk.server.fail_over()
    assert desk.type("INFO", "server") == before[0], "the first one is the primary again"
    assert desk.type("INFO", "replication") != before[1]


def test_fences_rise_over_a_restart_that_loses_everything() -> None:
    bench = Bench()
    client = bench.client()

    async def history() -> None:
        first = await client.try_acquire(bench.claim())
        bench.server.restart_empty()
        second = await bench.client().try_acquire(bench.claim())
        assert isinstance(first, Grant)
        assert isinstance(second, Grant)
        assert second.fence > first.fence

    bench.run(history())


def test_several_commands_in_one_payload_are_read_apart() -> None:
    payload = pack("SET", "k", "a\r\nb") + pack("WAIT", 1, 5)
    assert parse(payload) == [[b"SET", b"k", b"a\r\nb"], [b"WAIT", b"1", b"5"]]
