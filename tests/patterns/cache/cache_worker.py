"""A process with many readers of one value of a cache; started by the tests beside it.

Words: URL, number of readers, options of the cache as JSON, the file in which builds are counted. Each build appends a
line to the file and waits until it is told to go on, so that a test sees what the others do meanwhile. Lines on stdin:
`go` lets builds end from now on, `hold` holds them up, `report` prints one line of JSON.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import Any

import leasehold
from leasehold import events

PAUSE = 0.1  # between two reads of one reader


class Readers:
    def __init__(self, cache: leasehold.AsyncCache, number: int, file: Path) -> None:
        self.cache = cache
        self.file = file
        self.reads = [0] * number
        self.values: list[Any] = [None] * number
        self.errors: list[str] = []
        self.refused = 0
        self.released = asyncio.Event()

    async def build(self) -> int:
        descriptor = os.open(self.file, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        os.write(descriptor, f"{os.getpid()}\n".encode())
        os.close(descriptor)
        number = len(self.file.read_text().splitlines())
        await self.released.wait()
        return number

    async def read(self, reader: int) -> None:
        while True:
            try:
                self.values[reader] = await self.cache.get("x", self.build)
            except leasehold.LeaseholdError as error:
                self.errors.append(repr(error))
            self.reads[reader] += 1
            await asyncio.sleep(PAUSE)

    def note(self, event: events.Event) -> None:
        self.refused += isinstance(event, events.FillRefused)

    def report(self) -> str:
        facts = {"reads": self.reads, "values": self.values, "errors": self.errors, "refused": self.refused}
        return json.dumps(facts)


async def main() -> None:
    url, number, options, file = sys.argv[1:]
    loop = asyncio.get_running_loop()
    async with leasehold.connect_async(url, timeout=None) as client:
        readers = Readers(client.cache("prices", **json.loads(options)), int(number), Path(file))
        client.on_event(readers.note)
        tasks = [loop.create_task(readers.read(reader)) for reader in range(int(number))]
        os.write(1, b"ready\n")
        while line := await loop.run_in_executor(None, sys.stdin.readline):
            if line.strip() == "go":
                readers.released.set()
            elif line.strip() == "hold":
                readers.released.clear()
            else:
                os.write(1, readers.report().encode() + b"\n")
        for task in tasks:
            task.cancel()
    os._exit(0)


if __name__ == "__main__":
    asyncio.run(main())
