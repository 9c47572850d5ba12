"""Partitions that are shared out among members: `client.partitions`."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING

from leasehold.errors import LeaseLost, ModeConflict
from leasehold.testing.contract.expect import raises
from leasehold.testing.patterns.registry import pattern_case
from leasehold.values import Capability

if TYPE_CHECKING:
    from collections.abc import Sequence

    from leasehold._face.client import AsyncClient
    from leasehold._patterns.partition import AsyncPartition
    from leasehold._patterns.partitions import AsyncShare
    from leasehold.testing.contract.lab import Lab

COUNT = 5
ROUNDS = 2_000  # of a twentieth of a ttl: generous, because a loaded machine is slow


def _share(lab: Lab, client: AsyncClient) -> AsyncShare:
    return client.partitions("orders", COUNT, ttl=lab.ttl, retry=lab.ttl / 5, grace=lab.ttl * 1000)


async def _settled(lab: Lab, *sizes: int, shares: Sequence[AsyncShare]) -> None:
    """Wait until the shares have these sizes and own all partitions; their workers release what is leaving."""
    for _ in range(ROUNDS):
        for share in shares:
            for partition in share.owned():
                if partition.leaving:
                    await partition.release()
        owned = [partition for share in shares for partition in share.owned()]
        indices = [partition.index for partition in owned if not partition.lost.is_set()]  # at one instant
        assert len(set(indices)) == len(indices), f"a partition has two owners: {owned}"
        if [len(share.owned()) for share in shares] == list(sizes) and len(indices) == COUNT:
            return
        await lab.live(lab.ttl / 20)
        await lab.driver.breathe()
    raise AssertionError(f"the shares never had the sizes {sizes}, but {[share.owned() for share in shares]}")


async def _check(partition: AsyncPartition) -> None:
    partition.check()


@pattern_case(Capability.PERMITS, Capability.INSPECT)
async def partitions_are_shared_out_evenly_and_each_has_the_one_owner_that_the_store_knows(lab: Lab) -> None:
    async with _share(lab, lab.client()) as first:
        await _settled(lab, 5, shares=[first])
        before = {partition.index: partition.fence for partition in first.owned()}
        async with _share(lab, lab.client()) as second:
            await _settled(lab, 3, 2, shares=[first, second])
            client = lab.client()
            for partition in (*first.owned(), *second.owned()):
                state = await client.inspect(partition.name)
                assert state is not None
                assert [holding.fence for holding in state.holdings] == [partition.fence]
            for partition in first.owned():
                assert partition.fence == before[partition.index], "what stays is not moved"
            for partition in second.owned():
                assert partition.fence > before[partition.index]
        await _settled(lab, 5, shares=[first])
        assert first.members == 1


@pattern_case(Capability.PERMITS, Capability.INSPECT)
async def partitions_of_a_member_that_vanished_are_taken_over_after_its_ttl(lab: Lab) -> None:
    vanishing = lab.client()
    async with _share(lab, lab.client()) as first:
        second = await _share(lab, vanishing).__aenter__()
        await _settled(lab, 3, 2, shares=[first, second])
        gone = second.owned()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ResourceWarning)
            await lab.close(vanishing)
        assert not second.owned()
        await raises(LeaseLost, _check(gone[0]))
        await _settled(lab, 5, shares=[first])
        fences = {partition.index: partition.fence for partition in first.owned()}
        for partition in gone:
            assert fences[partition.index] > partition.fence


@pattern_case(Capability.PERMITS, Capability.INSPECT)
async def members_that_do_not_agree_about_the_count_of_partitions_do_not_share(lab: Lab) -> None:
    async with lab.client().partitions("orders", 2) as first:
        await raises(ModeConflict, lab.client().partitions("orders", 3).__aenter__())
        assert len(first.owned()) == 2
