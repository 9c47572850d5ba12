"""Jobs that run once per slot: `client.once`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leasehold.testing.patterns.registry import pattern_case
from leasehold.values import Capability, Skipped

if TYPE_CHECKING:
    from leasehold.testing.contract.lab import Lab


@pattern_case(Capability.RECORD)
async def a_slot_that_was_run_is_skipped_by_every_other_client(lab: Lab) -> None:
    async with lab.client().once("job", slot="monday").attempt() as run:
        assert run
    async with lab.client().once("job", slot="monday").attempt() as again:
        assert isinstance(again, Skipped)
        assert again.slot == "monday"
