"""The payment service of the examples, whose work can be held up: before the charge, or between charge and answer.

The header X-Hold names a file: `charge` writes its process id there, and goes on when a file with `.go` behind its name
appears. X-Hold-Before does the same before the charge.
"""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

sys.path.insert(0, str(Path(__file__).parents[3]))

from examples.payment import service

if TYPE_CHECKING:
    from fastapi import Request

app = service.app
charge_at_once = service.charge


async def charge(order: str, amount: int, request: Request) -> str:
    await hold(request.headers.get("x-hold-before"))
    receipt = await charge_at_once(order, amount, request)
    await hold(request.headers.get("x-hold"))
    return receipt


async def hold(place: str | None) -> None:
    if place is None:
        return
    Path(f"{place}.new").write_text(str(os.getpid()))
    Path(f"{place}.new").rename(place)
    while not Path(f"{place}.go").exists():
        await asyncio.sleep(0.01)


service.charge = charge
