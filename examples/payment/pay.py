"""A caller that repeats its request until it is answered, to any of the service's processes, always with one key."""

from __future__ import annotations

import sys
import time
from itertools import cycle

import httpx

import leasehold

AGAIN = {409, 425, 429, 502, 503, 504}


def pay(services: list[str], order: str, amount: int, tries: int = 20) -> httpx.Response:
    """The answer to one payment."""
    key = leasehold.RetryKey()  # once for all tries
    headers = key.headers({"X-Customer": "alice"})
    for service, _ in zip(cycle(services), range(tries), strict=False):
        try:
            answer = httpx.post(f"{service}/payments", json={"order": order, "amount": amount}, headers=headers)
        except httpx.TransportError:  # whether it was carried out is unknown, and with the key it does not matter
            time.sleep(0.2)
            continue
        if answer.status_code not in AGAIN or "retry-after" not in answer.headers:
            return answer
        time.sleep(float(answer.headers["retry-after"]))
    raise TimeoutError(f"no answer after {tries} tries")


if __name__ == "__main__":
    response = pay(sys.argv[1:], "order-1", 4200)
    print(response.status_code, response.json())
