"""A payment service of several processes: however often a request is repeated, the card is charged once.

    export LEASEHOLD_URL=redis://127.0.0.1:6379/0
    uvicorn --app-dir examples/payment service:app --port 8001 &
    uvicorn --app-dir examples/payment service:app --port 8002 &
    python examples/payment/pay.py http://127.0.0.1:8001 http://127.0.0.1:8002

`charges.log` stands for the payment provider: a line for each charge that really happened.
"""

from __future__ import annotations

import json
import os
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fastapi import FastAPI, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import JSONResponse

import leasehold

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

LEDGER = Path(os.environ.get("CHARGES", "charges.log"))
OPTIONS: dict[str, Any] = json.loads(os.environ.get("IDEMPOTENCY", "{}"))

client = leasehold.connect_async(label="payments")
keys = client.idempotency("payments", keep="24h", **OPTIONS)


def caller(scope: Any) -> str | None:
    """Who is asking; a real service has authenticated the caller before."""
    return dict(scope["headers"]).get(b"x-customer", b"").decode() or None


async def charge(order: str, amount: int, request: Request) -> str:
    """The effect that must not happen twice. A real provider gets the key passed on, as its own Idempotency-Key."""
    number = f"{order} {amount} {os.getpid()} {request.headers['idempotency-key']}"
    await run_in_threadpool(write_line, number)
    return number


def write_line(text: str) -> None:
    """One charge more."""
    with LEDGER.open("a") as ledger:
        ledger.write(f"{text}\n")


@asynccontextmanager
async def life(_app: FastAPI) -> AsyncIterator[None]:
    """Close the connections with the service."""
    async with client:
        yield


app = FastAPI(lifespan=life)
app.add_middleware(leasehold.IdempotencyMiddleware, idempotency=keys, principal=caller)


@app.post("/payments")
async def pay(request: Request) -> JSONResponse:
    """Charge a card."""
    order = await request.json()
    receipt = await charge(order["order"], order["amount"], request)
    return JSONResponse({"receipt": receipt}, status_code=201, headers={"Location": f"/payments/{order['order']}"})
