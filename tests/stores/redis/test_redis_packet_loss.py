"""Two of a hundred packets vanish, and no lease is lost by that. `make faults` runs it for a minute."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import leasehold
from tests.forms import long_form
from verification.lab.process import find_program

SECONDS = 60 if long_form() else 8
SCRIPT = Path(__file__).with_name("lossy_network.py")


def test_two_lost_packets_of_a_hundred_cost_no_lease() -> None:
    roots = [Path(leasehold.__file__).parents[1], SCRIPT.parents[3]]
    path = os.pathsep.join([*map(str, roots), os.environ.get("PYTHONPATH", "")])
    namespaces = ["--net"] if os.geteuid() == 0 else ["--map-root-user", "--net"]
    command = [find_program("unshare", "util-linux"), *namespaces, sys.executable, str(SCRIPT), str(SECONDS)]
    done = subprocess.run(
        command, env={**os.environ, "PYTHONPATH": path}, stdout=subprocess.PIPE, text=True, check=True, timeout=110
    )
    first, *reports = done.stdout.splitlines()
    assert int(first.split()[1]) > 10, "hardly a packet was lost; the test shows nothing"
    assert len(reports) == 2
    for report in reports:
        word, lost, rounds, *why = report.split()
        assert (word, lost) == ("lost", "0"), why
        assert int(rounds) > 10
