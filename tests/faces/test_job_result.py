"""`JobResult`: whether a job ran, in both faces, at run time and for type checkers."""

from __future__ import annotations

import asyncio
import pickle

import pytest

import leasehold
from leasehold.testing.manual import ManualStore


def test_a_function_that_returns_none_is_not_taken_for_skipped() -> None:
    with ManualStore().connect() as client:
        calls: list[int] = []

        @client.once("job", slot="x")
        def job() -> None:
            calls.append(1)

        first, second = job(), job()
        assert (first.ran, first.value, first.skipped) == (True, None, None)
        assert first
        assert not second
        assert not second.ran
        assert second.skipped is not None
        assert second.skipped.slot == "x"
        assert calls == [1]
        with pytest.raises(leasehold.AlreadyRun, match="was run by") as caught:
            _ = second.value
        assert caught.value.skipped == second.skipped


def test_a_false_value_is_a_value() -> None:
    with ManualStore().connect() as client:
        for value in (0, "", False):
            result = client.once("job", slot=f"{value!r}").run(lambda given: given, value)
            assert result
            assert result.value == value


def test_the_value_of_a_job_that_was_not_run_raises_why() -> None:
    store = ManualStore()
    with store.connect() as client, store.connect() as other:
        job = client.once("job", slot="x")
        with other.lock("job").hold(), pytest.raises(leasehold.AlreadyRunning):
            _ = job.run(lambda: 1).value
        other.pause("job", reason="moving", by="ana")
        with pytest.raises(leasehold.Paused, match="paused by ana: moving") as caught:
            _ = job.run(lambda: 1).value
        assert caught.value.pause is not None
        with pytest.raises(leasehold.Paused):
            client.once("job", slot="x", on_conflict="raise").run(lambda: 1)


def test_the_async_face_gives_the_same() -> None:
    async def story() -> None:
        async with ManualStore().connect_async() as client:

            @client.once("job", slot="x")
            async def job() -> None: ...

            first, second = await asyncio.create_task(job()), await job()
            assert (first.ran, first.value, second.ran) == (True, None, False)

    asyncio.run(story())


def test_a_result_can_be_sent_to_another_process_and_does_not_show_its_value() -> None:
    result = leasehold.JobResult("secret")
    assert pickle.loads(pickle.dumps(result)).value == "secret"
    assert "secret" not in repr(result)
    with ManualStore().connect() as client:
        client.once("job", slot="x").run(lambda: 1)
        skipped = client.once("job", slot="x").run(lambda: 1)
    assert "was run by" in repr(pickle.loads(pickle.dumps(skipped)))
