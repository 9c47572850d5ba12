"""A signal handler that raises, at any moment of a blocking acquire, block or release, leaves no renewed orphan."""

from __future__ import annotations

import subprocess
import sys

STORM = '''
import gc, random, signal, sys, time, warnings
warnings.simplefilter("ignore")
import leasehold

class SoftTimeLimit(Exception):
    """What Celery raises from its handler."""

armed = False
def handler(number, frame):
    global armed
    if armed:
        armed = False
        raise SoftTimeLimit

signal.signal(signal.SIGALRM, handler)
client = leasehold.connect("memory://storm", ttl=0.5)
chance = random.Random(int(sys.argv[1]))
hits = rounds = 0
end = time.monotonic() + float(sys.argv[2])
while time.monotonic() < end:
    name = f"n{rounds}"
    rounds += 1
    try:
        try:
            armed = True
            signal.setitimer(signal.ITIMER_REAL, chance.uniform(1e-6, 120e-6))
            with client.lock(name).hold(timeout=5) as lease:
                lease.check()
        finally:
            armed = False
    except SoftTimeLimit:
        hits += 1
    signal.setitimer(signal.ITIMER_REAL, 0)
lease = None
gc.collect()
# A fresh client on the same store looks at what is left: everything must be gone after one ttl.
witness = leasehold.connect("memory://storm")
time.sleep(0.7)
left = [state.name for state in witness.locks()]
# And the client that was hit still works: its guard is not taken for ever, its keeper still renews.
with client.lock("after", ttl=0.3).hold(timeout=10) as lease:
    time.sleep(0.9)
    lease.check()
print(hits, rounds, len(left))
'''


def test_a_storm_of_raising_signal_handlers_leaves_nothing_that_is_renewed() -> None:
    command = [sys.executable, "-c", STORM, "7", "6"]
    result = subprocess.run(command, capture_output=True, text=True, timeout=90, check=False)
    assert (result.returncode, result.stderr) == (0, "")
    hits, rounds, left = map(int, result.stdout.split())
    assert hits > 100, f"only {hits} of {rounds} rounds were hit: the test shows nothing"
    assert left == 0


HANDLER_USES_LEASE = """
import signal, time
import leasehold

client = leasehold.connect("memory://h", ttl=5)
lease = client.lock("x").acquire()
seen = []
def handler(number, frame):
    seen.append((lease.remaining() > 0, client.lock("x").try_acquire()))
signal.signal(signal.SIGALRM, handler)
signal.setitimer(signal.ITIMER_REAL, 0.0005, 0.0005)
end = time.monotonic() + 2
while time.monotonic() < end:
    client.lock("y").acquire().release()
signal.setitimer(signal.ITIMER_REAL, 0)
print(len(seen) > 50, set(seen))
"""


def test_a_signal_handler_may_use_a_lease_while_its_thread_is_inside_the_library() -> None:
    command = [sys.executable, "-c", HANDLER_USES_LEASE]
    result = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert result.returncode == 0, result.stderr
    assert result.stdout.strip() == "True {(True, None)}"


INTERRUPTED_WAIT = """
import os, signal, threading, time
import leasehold

client = leasehold.connect("memory://w")
lease = client.lock("x").acquire()
threading.Timer(0.2, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
try:
    client.lock("x").acquire()
except KeyboardInterrupt:
    print("interrupted", len(client.inspect("x").waiting))
lease.release()
"""


def test_a_wait_is_interrupted_by_ctrl_c_and_leaves_the_queue() -> None:
    command = [sys.executable, "-c", INTERRUPTED_WAIT]
    result = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert result.stdout.strip() == "interrupted 0", result.stderr
