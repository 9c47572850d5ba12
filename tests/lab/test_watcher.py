"""Servers, networks and folders do not outlive the process that made them, however it ends."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from verification.lab.process import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterable

ROOT = Path(__file__).parents[2]
START = """
import json, sys, time
from verification.lab.process import ServerProcess
{imports}
servers = [{servers}]
for server in servers:
    server.start()
{more}
print(json.dumps({{"pids": [server.pid for server in servers], "folders": [str(server.folder) for server in servers],
                   "names": names}}), flush=True)
{then}
"""
CHEAP = {
    "redis": "RedisServer()",
    "etcd": "EtcdServer()",
    "postgres": "PostgresServer()",
    "zookeeper": "ZooKeeperServer()",
    "nats": "NatsServer()",
}


def started(kinds: Iterable[str], *, more: str = "names = []", then: str = "time.sleep(600)") -> tuple[Any, Any]:
    """A process, in a group of its own, that has started one server of each kind; and what it says about them."""
    imports = [f"from verification.lab.{kind} import {CHEAP[kind].partition('(')[0]}" for kind in kinds]
    program = START.format(
        imports="\n".join(imports), servers=", ".join(CHEAP[kind] for kind in kinds), more=more, then=then
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    process = subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, text=True, env=environment, process_group=0
    )
    assert process.stdout is not None
    with process.stdout:
        return process, json.loads(process.stdout.readline())


def works_in(folder: str) -> list[int]:
    """The processes whose current folder this is, or one below it."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            place = str((entry / "cwd").readlink())
        except OSError:
            continue
        if place.removesuffix(" (deleted)") == folder or place.startswith(f"{folder}/"):
            found.append(int(entry.name))
    return found


def runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def is_left(made: dict[str, Any]) -> bool:
    return any(map(runs, made["pids"])) or any(map(works_in, made["folders"])) or _folders(made)


def _folders(made: dict[str, Any]) -> bool:
    return any(Path(folder).exists() for folder in made["folders"])


def test_servers_of_every_kind_and_a_network_end_with_a_killed_process() -> None:
    """The whole group is killed, as by an impatient terminal; one server is stopped, and could not end by itself."""
    more = """
from verification.lab.namespaces import Network
network = Network(1)
network.start()
names = [network.hosts[0].name, network._bridge]
servers[0].pause()
servers[2].pause()
"""
    process, made = started(CHEAP, more=more)
    assert all(map(runs, made["pids"]))
    namespace, bridge = (Path("/run/netns") / made["names"][0], Path("/sys/class/net") / made["names"][1])
    assert namespace.exists()
    assert bridge.exists()
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    wait_until(lambda: not is_left(made), "servers outlive the process that started them")
    wait_until(lambda: not namespace.exists() and not bridge.exists(), "a network is left over")


def test_a_stopped_program_ends_with_a_killed_process_and_what_was_started_before_does_not() -> None:
    more = """
import os, signal, subprocess
from verification.lab.watcher import watch_descendants
sleep = [sys.executable, "-c", "import time; time.sleep(600)"]
before = subprocess.Popen(sleep)
watch_descendants()
stopped = subprocess.Popen(sleep, start_new_session=True)  # the system itself wakes one of the same session
stopped.send_signal(signal.SIGSTOP)
names = [before.pid, stopped.pid]
"""
    process, made = started([], more=more)
    before, stopped = made["names"]
    try:
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        wait_until(lambda: not runs(stopped), "a stopped program outlives the process that started it")
        assert runs(before)
    finally:
        os.kill(before, signal.SIGKILL)


@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGTERM], ids=lambda number: number.name)
def test_a_server_ends_with_a_process_that_a_signal_has_ended(number: signal.Signals) -> None:
    process, made = started(["redis"])
    os.killpg(process.pid, number)
    process.wait()
    wait_until(lambda: not is_left(made), "a server outlives the process that started it")


def test_a_forked_child_neither_ends_the_servers_of_its_parent_nor_keeps_them() -> None:
    """It is not a child's to end them, also when it ends in good order; and it may outlive its parent."""
    more = """
import os
short = os.fork()
if short == 0:
    sys.exit()
os.waitpid(short, 0)
assert servers[0].is_running and servers[0].is_ready()
long = os.fork()
if long == 0:
    time.sleep(600)
names = [long]
"""
    process, made = started(["redis"], more=more)
    try:
        assert all(map(runs, [*made["pids"], *made["names"]]))
        assert _folders(made)
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        wait_until(lambda: not is_left(made), "a child keeps the servers of its dead parent")
        assert all(map(runs, made["names"]))
    finally:
        os.killpg(process.pid, signal.SIGKILL)


def test_a_process_that_ends_in_good_order_leaves_no_watcher() -> None:
    more = """
from verification.lab import watcher
names = [watcher._STARTED[0].pid]
"""
    process, made = started(["redis"], more=more, then="")
    assert process.wait(60) == 0
    assert not is_left(made)
    assert not runs(made["names"][0])
