"""Idempotency keys among real processes: the payment service of the examples under uvicorn, killed, paused, cut off."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from examples.payment import pay as example
from leasehold import RetryKey
from tests.forms import sized
from tests.waiting import eventually
from verification.lab.process import free_port

if TYPE_CHECKING:
    from collections.abc import Iterator

    from verification.lab.proxy import FaultProxy
    from verification.lab.redis import RedisServer

ROOT = Path(__file__).resolve().parents[3]
TTL = 3  # seconds: a busy machine may keep a live process from renewing for a while
LIMIT = 60.0
WORDS = {"order": "o-1", "amount": 4200}


class Service:
    """One uvicorn process."""

    def __init__(self, url: str, ledger: Path, **options: Any) -> None:
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        words = ["--app-dir", str(Path(__file__).parent), "held_service:app", "--port", str(self.port)]
        self.process = subprocess.Popen(
            [sys.executable, "-m", "uvicorn", *words, "--log-level", "warning"],
            env={
                **os.environ,
                "PYTHONPATH": str(ROOT / "src"),
                "LEASEHOLD_URL": url,
                "CHARGES": str(ledger),
                "IDEMPOTENCY": json.dumps({"ttl": TTL, **options}),
            },
        )

    def wait_ready(self) -> None:
        eventually(self._answers, "uvicorn answers", LIMIT)

    def _answers(self) -> bool:
        try:
            return httpx.get(f"{self.url}/nothing", timeout=5).status_code == 404
        except httpx.TransportError:
            assert self.process.poll() is None, "uvicorn ended"
            return False

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGCONT)
            self.process.kill()
        self.process.wait()


class Town:
    """Some services on one store, shared by the tests of this file, and the ledger of what was really charged."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.ledger = folder / "charges.log"
        self._started: list[Service] = []
        self._shared: list[Service] = []

    def start(self, url: str, **options: Any) -> Service:
        service = Service(url, self.ledger, **options)
        self._started.append(service)
        return service

    def running(self, url: str, number: int) -> list[Service]:
        """So many that run, the ones of earlier tests where they are still alive."""
        alive = [service for service in self._shared if service.process.poll() is None]
        self._shared = alive + [self.start(url) for _ in range(number - len(alive))]
        for service in self._shared:
            service.wait_ready()
        return self._shared[:number]

    def charges(self, *keys: RetryKey) -> dict[str, int]:
        """By idempotency key, how often it was charged."""
        text = self.ledger.read_text() if self.ledger.exists() else ""
        found = Counter(line.rpartition(" ")[2] for line in text.splitlines())
        return {str(key): found[str(key)] for key in keys}

    def hold(self) -> tuple[Path, dict[str, str]]:
        """A place where a request can be held up."""
        place = self.folder / f"hold-{time.monotonic_ns()}"
        return place, {"X-Hold": str(place)}

    def close(self) -> None:
        for service in self._started:
            service.close()


@pytest.fixture(scope="module")
def town(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Town]:
    town = Town(tmp_path_factory.mktemp("town"))
    yield town
    town.close()


async def held(
    client: httpx.AsyncClient, service: Service, key: RetryKey, place: Path, headers: dict[str, str]
) -> asyncio.Task[httpx.Response]:
    """A request that is held up in its work; sent again while a busy machine keeps the store from answering in time."""
    sent = key.headers({"X-Customer": "alice", **headers})
    end = time.monotonic() + LIMIT
    while True:
        task = asyncio.create_task(client.post(f"{service.url}/payments", json=WORDS, headers=sent))
        while not place.exists() and not task.done():
            await asyncio.sleep(0.01)
        if place.exists():
            return task
        assert time.monotonic() < end, f"not held up: {task.result()!r}"


async def pay(
    http: httpx.AsyncClient, services: list[Service], key: RetryKey, words: Any = WORDS, **headers: str
) -> httpx.Response:
    """Ask one service after the other until one has an answer that is final."""
    end, number = time.monotonic() + LIMIT, 0
    while True:
        service = services[number % len(services)]
        number += 1
        try:
            sent = key.headers({"X-Customer": "alice", **headers})
            answer = await http.post(f"{service.url}/payments", json=words, headers=sent)
            if "retry-after" not in answer.headers:
                return answer
        except httpx.TransportError:
            pass
        assert time.monotonic() < end, "no final answer"
        await asyncio.sleep(0.1)


def http() -> httpx.AsyncClient:
    return httpx.AsyncClient(timeout=LIMIT, limits=httpx.Limits(max_connections=100))


def ask(service: Service, key: RetryKey, **headers: str) -> httpx.Response:
    sent = key.headers({"X-Customer": "alice", **headers})
    return httpx.post(f"{service.url}/payments", json=WORDS, headers=sent, timeout=LIMIT)


@pytest.mark.timeout(180)
def test_200_duplicate_requests_over_4_server_processes_charge_once(town: Town, redis_server: RedisServer) -> None:
    services = town.running(redis_server.url, 4)
    key = RetryKey()

    async def main() -> list[httpx.Response]:
        async with http() as client:
            turns = [services[number % 4 :] + services[: number % 4] for number in range(200)]
            return await asyncio.gather(*(pay(client, turn, key) for turn in turns))

    answers = asyncio.run(main())
    assert Counter(answer.status_code for answer in answers) == {201: 200}
    assert len({answer.content for answer in answers}) == 1
    assert {answer.headers["location"] for answer in answers} == {"/payments/o-1"}
    assert sum("idempotent-replayed" not in answer.headers for answer in answers) == 1
    assert town.charges(key) == {str(key): 1}
    assert example.pay([service.url for service in services], "o-2", 1).status_code == 201


@pytest.mark.timeout(180)
def test_a_paused_server_is_succeeded_and_its_late_answer_does_not_count(town: Town, redis_server: RedisServer) -> None:
    """Lease mode is at-least-once, and this shows it: a pause between charge and record makes two charges."""
    paused, other = town.running(redis_server.url, 2)
    key, (place, header) = RetryKey(), town.hold()

    async def main() -> tuple[httpx.Response, httpx.Response, httpx.Response]:
        async with http() as client:
            late = await held(client, paused, key, place, header)
            paused.process.send_signal(signal.SIGSTOP)
            try:
                second = await pay(client, [other], key)
            finally:
                paused.process.send_signal(signal.SIGCONT)
            Path(f"{place}.go").touch()
            return await late, second, await pay(client, [paused, other], key)

    late, second, again = asyncio.run(main())
    assert (second.status_code, "idempotent-replayed" in second.headers) == (201, False)
    assert late.status_code == 503  # not its own receipt, which no retry would give again
    assert again.content == second.content
    assert town.charges(key) == {str(key): 2}


@pytest.mark.timeout(180)
@pytest.mark.parametrize("on_expired", ["run", "refuse"])
def test_the_key_of_a_server_that_was_killed_is_run_again_or_refused(
    town: Town, redis_server: RedisServer, on_expired: str
) -> None:
    victim, other = town.running(redis_server.url, 2)
    if on_expired == "refuse":
        other = town.start(redis_server.url, on_expired="refuse")
        other.wait_ready()
    key, (place, header) = RetryKey(), town.hold()

    async def main() -> httpx.Response:
        async with http() as client:
            lost = await held(client, victim, key, place, header)
            victim.process.send_signal(signal.SIGKILL)
            with pytest.raises(httpx.TransportError):
                await lost
            return await pay(client, [other], key)

    answer = asyncio.run(main())
    if on_expired == "run":
        assert answer.status_code == 201
        assert ask(other, key).content == answer.content
        assert town.charges(key) == {str(key): 2}
    else:
        assert (answer.status_code, answer.json()["title"]) == (409, "Outcome unknown")
        assert town.charges(key) == {str(key): 1}


@pytest.mark.timeout(240)
def test_servers_that_are_killed_in_the_middle_never_change_an_answer(town: Town, redis_server: RedisServer) -> None:
    """kill -9 at any moment: every answer that a caller got for a key is the same, and stays so."""
    services = town.running(redis_server.url, 4)
    keys = [RetryKey() for _ in range(sized(24, 200))]
    answers: dict[str, set[bytes]] = {str(key): set() for key in keys}

    async def main() -> None:
        async with http() as client:

            async def call(key: RetryKey, turn: int) -> None:
                order = services[turn % 4 :] + services[: turn % 4]
                answer = await pay(client, order, key)
                assert answer.status_code == 201
                answers[str(key)].add(answer.content)

            calls = [asyncio.create_task(call(key, turn)) for key in keys for turn in range(4)]
            for victim in services[:2]:
                answered = len([task for task in calls if task.done()])
                while len([task for task in calls if task.done()]) < min(answered + len(calls) // 8, len(calls)):
                    await asyncio.sleep(0.005)
                victim.process.send_signal(signal.SIGKILL)
            await asyncio.gather(*calls)
            for key in keys:  # once more, after all is done
                await call(key, 2)

    asyncio.run(main())
    assert {len(found) for found in answers.values()} == {1}
    assert min(town.charges(*keys).values()) >= 1


@pytest.mark.timeout(180)
def test_a_server_that_is_cut_off_from_the_store_gives_up_and_another_takes_over(
    town: Town, redis_server: RedisServer, redis_proxy: FaultProxy
) -> None:
    url = redis_server.url.replace(f":{redis_server.address[1]}", f":{redis_proxy.port}")
    lonely = town.start(url)
    (other,) = town.running(redis_server.url, 1)
    lonely.wait_ready()
    key, (place, header) = RetryKey(), town.hold()
    before = {"X-Hold-Before": header["X-Hold"]}

    async def main() -> tuple[httpx.Response, httpx.Response]:
        async with http() as client:
            cut = await held(client, lonely, key, place, before)
            redis_proxy.black_hole()
            second = await pay(client, [other], key)
            return await cut, second

    cut, second = asyncio.run(main())
    assert cut.status_code == 503
    assert second.status_code == 201
    redis_proxy.heal()
    assert town.charges(key) == {str(key): 1}  # it was cancelled before its charge
