"""What is loaded when telemetry is off, and what a forked child reports."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

import leasehold
from leasehold.telemetry.recorder import LEADER

if TYPE_CHECKING:
    from tests.telemetry.reports import Report

OFF = """
import sys
import leasehold
with leasehold.connect("memory://") as client, client.lock("x").hold():
    pass
loaded = {"opentelemetry", "prometheus_client", "leasehold.telemetry", "leasehold.fleet"} & set(sys.modules)
assert not loaded, loaded
from leasehold import telemetry
assert not {"opentelemetry", "prometheus_client", "leasehold.telemetry.recorder"} & set(sys.modules)
"""

ONE = """
import sys
import leasehold
from leasehold import telemetry
with leasehold.connect("memory://") as client:
    telemetry.%s(client)
    with client.lock("x").hold():
        pass
assert %r not in sys.modules
"""

MISSING = """
import sys
sys.modules["prometheus_client"] = sys.modules["opentelemetry"] = None
import leasehold
from leasehold import telemetry
with leasehold.connect("memory://") as client:
    for kind, extra in ((telemetry.prometheus, "prometheus"), (telemetry.opentelemetry, "otel")):
        try:
            kind(client)
        except leasehold.ConfigurationError as error:
            assert f"leasehold[{extra}]" in str(error), error
        else:
            raise AssertionError
"""


@pytest.mark.parametrize(
    "code",
    [OFF, MISSING, ONE % ("prometheus", "opentelemetry"), ONE % ("opentelemetry", "prometheus_client")],
    ids=["off", "missing", "prometheus", "opentelemetry"],
)
def test_only_what_is_used_is_loaded(code: str) -> None:
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_forked_child_holds_nothing_of_its_parents(report: Report) -> None:
    with leasehold.connect("memory://") as client:
        report.switch_on(client)
        with client.lock("x", group="g").hold(), client.election("boss").lead():
            reader, writer = os.pipe()
            pid = os.fork()
            if pid == 0:
                try:
                    facts = [report.value("leasehold.lock.held", "memory", "g"), report.value(LEADER, "memory", "boss")]
                    with client.lock("y", group="g").hold():
                        facts.append(report.value("leasehold.lock.held", "memory", "g"))
                    facts.append(report.value("leasehold.lock.held", "memory", "g"))
                    os.write(writer, repr([int(fact) for fact in facts]).encode())
                finally:
                    os._exit(0)
            os.waitpid(pid, 0)
            assert os.read(reader, 100) == b"[0, 0, 1, 0]"
            os.close(reader)
            os.close(writer)
            assert report.value("leasehold.lock.held", "memory", "g") == 1
            assert report.value(LEADER, "memory", "boss") == 1
        assert report.value("leasehold.lock.held", "memory", "g") == 0
