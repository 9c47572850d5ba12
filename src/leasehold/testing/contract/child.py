"""The other process of a case: `python -m leasehold.testing.contract.child PULSE URL NAMESPACE NAME TTL`.

PULSE is the descriptor of a pipe for its beat; see `pace`. It acquires the lock, prints `held FENCE`, and then obeys
words on its input: `check` prints `ok` or `lost REASON`, `release` prints `released True` or `released False`, `fork`
prints what a forked child sees. It ends with its input.
"""

from __future__ import annotations

import os
import sys

import leasehold
from leasehold.testing.contract.pace import CallsUnderWay, beat

__all__: list[str] = []


def main(pulse: str, url: str, namespace: str, name: str, ttl: str) -> None:
    """Hold the lock and obey."""
    client = leasehold.connect(url, namespace=namespace, ttl=float(ttl))
    calls = CallsUnderWay()
    calls.watch(client._twin._open().backend)
    beat(int(pulse), calls)
    lease = client.lock(name).acquire()
    print("held", lease.fence, flush=True)
    for line in sys.stdin:
        print(_obey(line.strip(), client, lease), flush=True)


def _obey(word: str, client: leasehold.Client, lease: leasehold.Lease) -> str:
    if word == "check":
        return _state(lease)
    if word == "release":
        return f"released {lease.release()}"
    if word == "fork":
        return _in_forked_child(client, lease)
    return f"unknown word {word!r}: one of check, release, fork is expected"


def _state(lease: leasehold.Lease) -> str:
    try:
        lease.check()
    except leasehold.LeaseLost as lost:
        return f"lost {lost.reason}"
    return "ok"


def _in_forked_child(client: leasehold.Client, lease: leasehold.Lease) -> str:
    """What a child sees of the lease it inherited, and whether the client works there."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        seen = f"{_state(lease)}, released {lease.release()}, other {client.lock('other').acquire().release()}"
        client.close()
        os.write(writing, seen.encode())
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as answer:
        seen = answer.read()
    os.waitpid(pid, 0)
    return seen


if __name__ == "__main__":
    main(*sys.argv[1:])
