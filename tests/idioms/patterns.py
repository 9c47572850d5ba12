"""The idioms of elections, caches, idempotency keys, partitions and operators, for type checkers, in both faces."""

from __future__ import annotations

import asyncio
from typing import assert_type

import leasehold
from leasehold import (
    AsyncCache,
    AsyncCached,
    AsyncClient,
    AsyncElection,
    AsyncIdempotency,
    AsyncKeyedAttempt,
    AsyncOnce,
    AsyncPartition,
    AsyncShare,
    AsyncTerm,
    Backoff,
    Cache,
    Cached,
    Client,
    Election,
    Idempotency,
    IdempotencyMiddleware,
    KeyedAttempt,
    KeyState,
    LastRun,
    Leader,
    Lease,
    LockState,
    Loss,
    Once,
    Partition,
    Pause,
    RetryKey,
    Share,
    Term,
    partition_of,
)


def elected(term: Term) -> None:
    assert_type(term.fence, int)


def lost(loss: Loss) -> None:
    assert_type(loss.reason, leasehold.LossReason)


def elections(client: Client) -> None:
    election = client.election("billing", ttl="15s", on_elected=elected, on_lost=lost)
    assert_type(election, Election)
    with election.lead(timeout=5) as term:
        assert_type(term, Term)
        term.check(need=1)
        lease: Lease = term
        while not lease.lost:
            break
        term.step_down()
    for leader in election.observe():
        assert_type(leader, Leader | None)
    if election.is_leader:
        assert_type(election.term, Term | None)
    election.run(elected)


def caches(client: Client) -> None:
    cache = client.cache("prices", ttl="10m", jitter=0.2)
    assert_type(cache, Cache)
    assert_type(cache.get("a", lambda: 7), int)
    cache.put("a", 8)

    @cache.cached("{sku}")
    def price(sku: str) -> float:
        return float(len(sku))

    keyed: Cached[..., float] = price
    assert_type(keyed.key("a"), str)
    assert_type(price("a"), float)
    assert_type(price.refresh("a"), float)
    price.forget("a")
    price(7)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


def keys(client: Client) -> None:
    payments = client.idempotency("payments", keep="24h", wait=5)
    assert_type(payments.inspect("order-42"), KeyState | None)
    assert_type(payments, Idempotency)
    with payments.attempt("key", fingerprint={"amount": 7}) as attempt:
        assert_type(attempt, KeyedAttempt)
        if not attempt.replayed:
            attempt.complete({"paid": True})

    @payments.once_per("{order}")
    def pay(order: str, lease: Lease = leasehold.CURRENT) -> list[int]:
        return [len(order), lease.fence]

    assert_type(pay("7"), list[int])
    key = RetryKey()
    assert_type(key.headers(), dict[str, str])


def shares(client: Client) -> None:
    with client.partitions("orders", 16) as share:
        assert_type(share, Share)
        share.wait_change(timeout=1)
        for partition in share.owned():
            assert_type(partition, Partition)
            if not partition.lost and partition_of("order 7", 16) == partition.index:
                partition.check()


def operators(client: Client) -> None:
    job = client.once("report", every="1d", on_conflict="standby")
    assert_type(job, Once)
    last = client.last_run("report")
    if last is not None:
        assert_type(last, LastRun)
    client.forget("report", slot="2026-11-18", reason="it was empty")
    client.pause("report", reason="migration", duration="2h")
    client.resume("report")
    state = client.inspect("report")
    if state is not None:
        assert_type(state, LockState)
        assert_type(state.paused, Pause | None)
        for holding in state.holdings:
            assert_type(holding, leasehold.Holding)
            assert_type(holding.holder, leasehold.Holder)
            client.break_lock("report", fence=holding.fence, reason="it hangs")
    if leasehold.Capability.INSPECT in client.capabilities and leasehold.Mode.EXCLUSIVE:
        assert_type(client.held(), tuple[leasehold.Held, ...])
    leasehold.assert_held("report", anywhere=True)
    with client.release_on_signals() as undo:
        assert_type(undo, leasehold.ReleaseOnSignals)
    for attempt in Backoff(tries=3):
        assert_type(attempt, int)


async def elected_async(term: AsyncTerm) -> None:
    assert_type(await term.renew(), float)


async def in_the_async_face(client: AsyncClient) -> None:
    election = client.election("billing", on_elected=elected_async)
    assert_type(election, AsyncElection)
    async with election.lead() as term:
        assert_type(term, AsyncTerm)
    async for leader in election.observe():
        assert_type(leader, Leader | None)

    cache = client.cache("prices")
    assert_type(cache, AsyncCache)

    @cache.cached("{sku}")
    async def price(sku: str) -> float:
        return float(len(sku))

    keyed: AsyncCached[..., float] = price
    assert_type(keyed.key("a"), str)
    assert_type(await asyncio.create_task(price("a")), float)

    payments = client.idempotency("payments")
    assert_type(await payments.inspect("order-42"), KeyState | None)
    assert_type(payments, AsyncIdempotency)
    async with payments.attempt("key") as attempt:
        assert_type(attempt, AsyncKeyedAttempt)

    @payments.once_per("{order}")
    async def pay(order: str) -> int:
        return len(order)

    assert_type(await asyncio.create_task(pay("7")), int)
    async with client.partitions("orders") as share:
        assert_type(share, AsyncShare)
        for partition in share.owned():
            assert_type(partition, AsyncPartition)
    assert_type(client.once("report", slot="a"), AsyncOnce)
    assert_type(client.held(), tuple[leasehold.Held, ...])
    async for attempt_number in Backoff(tries=3):
        assert_type(attempt_number, int)
    await election.run(elected_async)


async def application(scope: object, receive: object, send: object) -> None: ...


def protected(client: AsyncClient) -> IdempotencyMiddleware:
    return IdempotencyMiddleware(application, client.idempotency("payments"), principal=None)
