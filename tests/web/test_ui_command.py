"""`leasehold ui` and `leasehold demo --ui` as programs."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import leasehold
from leasehold.web import BasicAuth, Role, hash_password
from leasehold.web.auth import read_users
from tests.web.serving import program

if TYPE_CHECKING:
    from collections.abc import Iterator

ENVIRONMENT = {**os.environ, "PYTHONPATH": str(Path(leasehold.__file__).parents[1])}


@contextmanager
def running(*words: str) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """The program, and the address that it says it serves."""
    command = [sys.executable, "-m", "leasehold", *words]
    process = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, env=ENVIRONMENT
    )
    try:
        assert process.stderr is not None
        said = []
        for line in process.stderr:
            said.append(line)
            if found := re.search(r"dashboard: (http://\S+)", line):
                yield found[1], process
                return
        raise AssertionError("".join(said))
    finally:
        process.kill()
        process.communicate()


def refused(*words: str) -> str:
    command = [sys.executable, "-m", "leasehold", "ui", *words]
    done = subprocess.run(command, capture_output=True, text=True, env=ENVIRONMENT, timeout=60, check=False)
    assert done.returncode == 78, done.stderr
    return done.stderr


def test_the_dashboard_is_served_read_only_on_the_loopback_and_ends_with_a_signal(
    client: leasehold.Client, url: str
) -> None:
    with client.lock("nightly").hold() as lease, running("ui", "--url", url, "--listen", "127.0.0.1:0") as started:
        address, process = started
        with program(address) as caller:
            assert "nightly" in caller.get("").text
            assert caller.facts("session")["role"] == "read"
            order = {"name": "nightly", "fence": lease.fence, "confirm": "nightly", "reason": "x"}
            assert caller.order("break", **order).status_code == 403
            assert caller.get("", headers={"Host": "evil.example"}).status_code == 421
            with caller.stream("GET", "stream", params={"of": "locks"}) as stream:
                assert next(stream.iter_lines()) == "event: page"
                process.send_signal(signal.SIGTERM)
                assert process.wait(60) == 0, "an open page does not keep it"


def test_users_of_a_file_have_their_roles(client: leasehold.Client, url: str, tmp_path: Path) -> None:
    assert not client.locks()
    with client.lock("makes the file").hold():
        pass
    users = tmp_path / "users"
    users.write_text(f"# who\n\nana:write:{hash_password('right')}\nben:read:{hash_password('also')}\n")
    with running("ui", "--url", url, "--listen", "0.0.0.0:0", "--auth", str(users)) as (address, _):
        own = address.replace("0.0.0.0", "127.0.0.1")
        with program(own) as nobody, program(own, auth=("ana", "right")) as ana:
            assert nobody.get("").status_code == 401
            assert ana.facts("session")["role"] == "write"


def test_an_address_that_others_can_reach_is_refused_without_users(url: str) -> None:
    assert "there is no --auth" in refused("--url", url, "--listen", "0.0.0.0:0")
    assert "there is no --auth" in refused("--url", url, "--listen", "[::]:0")


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (("--url", "memory://x"), "inside one process"),
        (("--url", "local:", "--listen", "9480"), "HOST:PORT"),
        (("--url", "local:", "--auth", "/nowhere/users"), "cannot be read"),
        (("--url", "local:", "--proxy-user", "X-User", "--write"), "give a user the role write"),
        (("--url", "sqlite:////tmp/x.db", "--audit", "/nowhere/audit"), "cannot be opened"),
    ],
)
def test_what_makes_no_sense_is_refused_with_a_sentence(words: tuple[str, ...], text: str) -> None:
    assert text in refused(*words)


def test_a_line_of_users_is_a_name_a_role_and_a_hash() -> None:
    good = f"ana:write:{hash_password('x')}"
    assert read_users(good)["ana"][0] is Role.WRITE
    for bad in ("", "ana", "ana:write:plain", "ana:admin:scrypt$a$b", ":read:scrypt$a$b"):
        with pytest.raises(leasehold.ConfigurationError):
            read_users(bad)
    assert BasicAuth(read_users(good)).challenge.startswith("Basic")


def test_the_demonstration_offers_its_store_in_the_dashboard() -> None:
    with running("demo", "--ui") as (address, process), program(address) as caller:
        names = {lock["name"] for lock in caller.facts("locks")["locks"]}
        assert "import:customers" in names
        assert "leasehold demo" in caller.get("").text
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 130
