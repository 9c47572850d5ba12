"""What has to hold on any SQL store whose grants end with the session of their holder."""

from __future__ import annotations

import signal

import leasehold
from leasehold.testing.contract.lab import Child

__all__ = ["LONG", "crash_frees_at_once", "crash_frees_for_rows", "paused_holder_loses_it_after_its_ttl"]

LONG = 600


def crash_frees_at_once(url: str, child: Child) -> None:
    """`child` holds `job` with a very long ttl."""
    with leasehold.connect(url) as client:
        assert client.inspect("job") is not None  # which connects, and has more time for that than a try
        assert client.lock("job").try_acquire() is None
        child.signal(signal.SIGKILL)
        child.wait()
        lease = client.lock("job", ttl=20).acquire(timeout=60)  # far less than the ttl of the one that is gone
        assert lease.release() is True


def crash_frees_for_rows(url: str, child: Child) -> None:
    """The same for a client in the other mode, at this URL."""
    with leasehold.connect(url, ttl=20) as client:
        assert client.inspect("job") is not None  # which connects, and has more time for that than a try
        assert client.lock("job").try_acquire() is None, "the two modes exclude each other"
        child.signal(signal.SIGKILL)
        lease = client.lock("job").acquire(timeout=60)
        assert lease.abandoned is True
        lease.release()


def paused_holder_loses_it_after_its_ttl(url: str) -> None:
    """Its session lives on, and its grant does not."""
    child = Child(url, "leasehold", "job", "2")
    try:
        child.line()
        child.signal(signal.SIGSTOP)
        with leasehold.connect(url, ttl=20) as client:
            assert client.lock("job").try_acquire() is None
            lease = client.lock("job").acquire(timeout=60)
            child.say("check")
            child.signal(signal.SIGCONT)
            assert child.line().startswith("lost")
            lease.check()
            lease.release()
    finally:
        child.stop()
