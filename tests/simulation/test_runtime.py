"""The simulated runtime keeps the promises of the port."""

from __future__ import annotations

import random

import pytest

from leasehold.spi import Runtime
from verification.simulation import SimRuntime, World, drive
from verification.simulation.runtime import SimTaskHandle
from verification.simulation.world import Cancelled, Process, SimTask, Stuck


def make(seed: int = 1) -> tuple[World, Process, SimRuntime]:
    world = World(seed)
    process = world.process("p")
    return world, process, SimRuntime(process)


def test_a_coroutine_runs_to_its_end_in_virtual_time() -> None:
    runtime, run = drive(7)

    async def day() -> float:
        await runtime.sleep(86_400)
        return runtime.now()

    assert run(day()) == pytest.approx(86_400, abs=0.01)


def test_an_error_comes_out_of_run() -> None:
    _, run = drive(7)

    async def fail() -> None:
        raise KeyError("x")

    with pytest.raises(KeyError):
        run(fail())


def test_chance_and_owners_come_from_the_seed() -> None:
    first, other = [(drive(seed)[0].owner(), drive(seed)[0].random()) for seed in (1, 2)]
    assert first == (drive(1)[0].owner(), drive(1)[0].random())
    assert first != other
    assert len(first[0]) == 32


@pytest.mark.parametrize("rate", [0.9951, 0.9976, 0.99955, 1.0, 1.00034, 1.0049])
def test_a_clock_shows_a_deadline_at_its_instant_and_not_before(rate: float) -> None:
    """Just beside a power of two the steps of the two clocks differ, and the search for the instant did not end."""
    draw = random.Random(375)
    for power in (2, 16, 32, 64, 128, 1024):
        for _ in range(300):
            process = World(1).process("p", rate=rate, offset=draw.uniform(0, 0.2))
            deadline = power + draw.uniform(-0.4, 0.4)
            process.world.now = process.instant(deadline)
            assert process.clock() >= deadline
            process.world.now -= 1e-9
            assert process.clock() < deadline


def test_a_wait_ends_with_the_signal_or_at_the_deadline() -> None:
    world, process, runtime = make()
    signal = runtime.signal()

    async def ring() -> None:
        await runtime.sleep(1)
        signal.set()

    async def listen() -> tuple[bool, float, bool]:
        early = await runtime.wait(signal, 0.5)
        at = runtime.now()
        return early, at, await runtime.wait(signal, 5.0)

    process.spawn(ring(), "ring")
    early, at, rung = world.run(listen(), process)
    assert (early, rung) == (False, True)
    assert at == pytest.approx(0.5, abs=0.001)
    assert world.now == pytest.approx(1, abs=0.001)


def test_a_drifting_clock_waits_by_its_own_time() -> None:
    world = World(1)
    slow = world.process("slow", rate=0.995, offset=500.0)

    async def sleep() -> float:
        began = world.now
        await SimRuntime(slow).sleep(100)
        return world.now - began

    assert world.run(sleep(), slow) == pytest.approx(100 / 0.995, abs=0.01)


def test_a_paused_process_runs_nothing_and_its_clock_goes_on() -> None:
    world, process, runtime = make()
    ticks: list[float] = []

    async def tick() -> None:
        for _ in range(5):
            await runtime.sleep(1)
            ticks.append(runtime.now())

    world.at(1.5, process.pause)
    world.at(4.5, process.resume)
    world.run(tick(), process)
    assert [round(at, 2) for at in ticks] == [1.0, 4.5, 5.5, 6.5, 7.5]


def test_a_crashed_process_runs_nothing_not_even_its_cleanup() -> None:
    world, process, runtime = make()
    observer = world.process("observer")
    done: list[str] = []

    async def work() -> None:
        try:
            await runtime.sleep(10)
        finally:
            done.append("cleaned up")

    async def watch() -> None:
        await SimRuntime(observer).sleep(100)

    process.spawn(work(), "work")
    world.at(1, process.crash)
    world.run(watch(), observer)
    assert done == []
    world.end()


def test_ready_tasks_are_chosen_by_the_seed() -> None:
    def order(seed: int) -> list[int]:
        world, process, runtime = make(seed)
        seen: list[int] = []

        async def one(number: int) -> None:
            await runtime.switch()
            seen.append(number)

        async def main() -> None:
            handles = [runtime.spawn(one(number), "one") for number in range(6)]
            for handle in handles:
                await handle.join()

        world.run(main(), process)
        return seen

    assert order(1) == order(1)
    assert len({tuple(order(seed)) for seed in range(20)}) > 5


def test_waiting_inside_a_guard_is_an_error() -> None:
    world, process, runtime = make()

    async def wrong() -> None:
        with runtime.guard():
            await runtime.sleep(1)

    with pytest.raises(AssertionError, match="guard"):
        world.run(wrong(), process)


def test_nothing_left_to_happen_is_an_error() -> None:
    world, process, runtime = make()

    async def forever() -> None:
        await runtime.wait(runtime.signal(), None)

    with pytest.raises(Stuck, match="nothing is ready"):
        world.run(forever(), process)
    world.end()


def test_a_task_that_spins_without_waiting_is_an_error() -> None:
    world, process, runtime = make()

    async def spin() -> None:
        while True:
            await runtime.wait(runtime.signal(), -1.0)

    with pytest.raises(Stuck, match="spins"):
        world.run(spin(), process)


def test_a_shielded_operation_ends_although_its_task_is_cancelled_twice() -> None:
    world, process, runtime = make()
    finished: list[float] = []

    async def operation() -> None:
        await runtime.sleep(1)
        finished.append(world.now)

    async def main() -> SimTask:
        handle = runtime.start(runtime.shielded(operation), "shielded")
        await runtime.sleep(0.5)
        handle.task.cancel()
        await runtime.sleep(0.2)
        handle.task.cancel()
        await handle.join()
        return handle.task

    task = world.run(main(), process)
    assert isinstance(task.error, Cancelled)
    assert [round(at, 1) for at in finished] == [1.5]


@pytest.mark.parametrize("interrupts", [True, False])
def test_a_scope_cancels_its_body_only_where_the_runtime_can(interrupts: bool) -> None:
    world = World(1)
    process = world.process("p")
    runtime = SimRuntime(process, interrupts=interrupts)

    async def body() -> tuple[bool, bool]:
        scope = runtime.scope()
        world.after(0.5, scope.cancel)
        error: BaseException | None = None
        try:
            await runtime.sleep(1)
        except Cancelled as cancelled:
            error = cancelled
        return error is not None, await scope.leave(error)

    assert world.run(body(), process) == (interrupts, interrupts)


def test_a_cancellation_from_elsewhere_is_not_the_scopes() -> None:
    world, process, runtime = make()

    async def body() -> bool:
        scope = runtime.scope()
        try:
            await runtime.sleep(1)
        except Cancelled as cancelled:
            return await scope.leave(cancelled)
        return True

    async def main() -> SimTask:
        task = process.spawn(body(), "body")
        await runtime.sleep(0.1)
        task.cancel()
        await SimTaskHandle(runtime, task).join()
        return task

    assert world.run(main(), process).result is False


def test_scatter_returns_with_enough_answers_and_leaves_the_rest_open() -> None:
    runtime, run = drive(3)

    class Node:
        def __init__(self, delay: float) -> None:
            self._delay = delay

        async def perform(self) -> float:
            await runtime.sleep(self._delay)
            return self._delay

    async def ask(port: Runtime) -> list[object]:
        nodes = [Node(0.3), Node(0.1), Node(9.0)]
        return list(await port.scatter(nodes, lambda answers: sum(a is not None for a in answers) >= 2, port.now() + 5))

    assert run(ask(runtime)) == [0.3, 0.1, None]
