"""The port: the kit's backend over documents, on the wire that fits the runtime."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leasehold._backends.nats.documents import NatsDocuments
from leasehold.kit.documents import DocumentBackend

if TYPE_CHECKING:
    from collections.abc import Sequence

    from leasehold._backends.nats.options import Options
    from leasehold._backends.nats.wire import Wire
    from leasehold.findings import Finding
    from leasehold.spi import Runtime

__all__ = ["NatsBackend"]


class NatsBackend(DocumentBackend):
    """A client's connection to a bucket."""

    def __init__(self, options: Options, runtime: Runtime) -> None:
        self._options = options
        self._wire = _wire(options, runtime)
        self._bucket = NatsDocuments(options, self._wire)
        super().__init__(self._bucket, runtime, options.label, fence_floor=options.fence_floor)

    async def examine(self) -> Sequence[Finding]:
        from leasehold._backends.nats.doctor import Doctor  # noqa: PLC0415 - only where it is wanted

        return await Doctor(self._options, self._wire, self._bucket).examine()


def _wire(options: Options, runtime: Runtime) -> Wire:
    if runtime.blocking:
        from leasehold._backends.nats.blocking_wire import BlockingWire  # noqa: PLC0415 - one of the two is enough

        return BlockingWire(options, runtime)
    from leasehold._backends.nats.asyncio_wire import AsyncioWire  # noqa: PLC0415

    return AsyncioWire(options, runtime)
