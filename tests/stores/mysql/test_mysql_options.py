"""What a MySQL URL may say, and what becomes of it at the connect; nothing is connected."""

from __future__ import annotations

import socket
import ssl
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pymysql
import pytest
from pymysql.constants import CLIENT

from leasehold import ConfigurationError
from leasehold._backends.mysql import connection as mysql
from leasehold._backends.mysql import ddl
from leasehold._backends.mysql.options import MysqlOptions, parse
from leasehold._runtimes.threads import ThreadRuntime, run
from leasehold._urls import find_store
from leasehold.errors import BackendRejected, BackendUnavailable, OutcomeUnknown
from leasehold.kit.options import TLSFiles
from leasehold.kit.waits import waits_for
from leasehold.store_url import StoreURL
from tests.stores.support import files_given_to_ssl
from verification.lab.certificates import Certificates

if TYPE_CHECKING:
    from pathlib import Path


def parsed(text: str) -> MysqlOptions:
    return parse(StoreURL.parse(text))


def test_every_part_of_a_url_is_read() -> None:
    options = parsed(
        "mysql://me:s%40crt@db.example:3307/locks?mode=session&socket=/run/my.sock&connections=7&connect_timeout=1.5"
        "&answer_timeout=2.5&fence_floor=12&tls_ca=/ca.pem&tls_cert=/c.pem&tls_key=/k.pem&charset=utf8mb4"
    )
    assert options == MysqlOptions(
        label=options.label,
        host="db.example",
        port=3307,
        database="locks",
        user="me",
        password="s@crt",
        socket="/run/my.sock",
        tls=TLSFiles("/ca.pem", "/c.pem", "/k.pem"),
        mode="session",
        connections=7,
        connect_timeout=1.5,
        answer_timeout=2.5,
        fence_floor=12,
    )
    assert options.label == "mysql://me@db.example:3307/locks"
    assert "s@crt" not in repr(options)


def test_what_a_url_leaves_out_has_its_default() -> None:
    assert parsed("mariadb:///locks") == MysqlOptions(
        label="mariadb:///locks",
        host="127.0.0.1",
        port=3306,
        database="locks",
        user=None,
        password="",
        socket=None,
        tls=None,
        mode="rows",
        connections=4,
        connect_timeout=5.0,
        answer_timeout=5.0,
        fence_floor=0,
    )


@pytest.mark.parametrize("scheme", ["mysql", "mariadb", "mysql+pymysql", "mariadb+pymysql"])
def test_urls_of_other_programs_can_be_pasted(scheme: str) -> None:
    assert find_store(f"{scheme}://me:secret@host/db?charset=utf8mb4") is not None


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ("nonsense=1", "nonsense"),
        ("mode=rows2", "mode must be one of rows, session"),
        ("socket=", "socket is empty"),
        ("connections=0", "connections must be a whole number from 1 to 100"),
        ("connections=101", "connections must be a whole number from 1 to 100"),
        ("connect_timeout=0.04", "connect_timeout must be from 0.05 s"),
        ("answer_timeout=0.04", "answer_timeout must be from 0.05 s"),
        ("fence_floor=-1", "fence_floor"),
        ("charset=latin1", "charset"),
        ("tls_cert=/c.pem", "needs its key"),
        ("command_timeout=5", "answer_timeout"),
        ("read_timeout=5", "answer_timeout"),
        ("pool_size=5", "connections"),
        ("unix_socket=/s", "called socket"),
        ("ssl_ca=/ca.pem", "tls_ca"),
        ("ssl_cert=/c.pem", "tls_cert"),
        ("ssl_key=/k.pem", "tls_key"),
    ],
)
def test_what_cannot_be_right_is_refused_by_name(query: str, words: str) -> None:
    with pytest.raises(ConfigurationError, match=words) as error:
        parsed(f"mysql://me:secret@host/db?{query}")
    assert "secret" not in str(error.value)


def test_a_url_names_a_database_and_one_server() -> None:
    for url in ("mysql://me@host", "mysql://me@host/"):
        with pytest.raises(ConfigurationError, match="needs the database"):
            parsed(url)
    with pytest.raises(ConfigurationError, match="host"):
        parsed("mysql://h1,h2/db")


# --- connecting


class Dialed:
    """What PyMySQL is asked for; it fails with `error`."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, error: Exception | None = None) -> None:
        self.words: dict[str, Any] = {}
        self.error = error or pymysql.OperationalError(2003, "refused")
        monkeypatch.setattr(mysql, "_Driver", self)

    def __call__(self, **words: Any) -> None:
        self.words = words
        raise self.error

    def dial(self, url: str) -> Exception:
        runtime = ThreadRuntime()
        with pytest.raises((BackendUnavailable, BackendRejected)) as caught:
            mysql.dial(parsed(url), waits_for(runtime), runtime)
        return caught.value


def test_the_driver_is_told_what_the_url_says(monkeypatch: pytest.MonkeyPatch) -> None:
    dialed = Dialed(monkeypatch)
    error = dialed.dial("mysql://me:secret@db:3307/locks?connect_timeout=1.5&socket=/run/my.sock")
    assert isinstance(error, BackendUnavailable)
    assert dialed.words == {
        "host": "db",
        "port": 3307,
        "user": "me",
        "password": "secret",
        "database": "locks",
        "unix_socket": "/run/my.sock",
        "charset": "utf8mb4",
        "autocommit": None,
        "client_flag": CLIENT.MULTI_STATEMENTS,
        "connect_timeout": 1.5,
        "read_timeout": 1.5,
        "write_timeout": 1.5,
        "program_name": "leasehold",
        "ssl": None,
    }
    dialed.dial("mysql:///locks")
    assert "user" not in dialed.words, "the driver finds one itself"
    assert "unix_socket" not in dialed.words


def test_a_connection_waits_for_answers_as_long_as_the_url_says(monkeypatch: pytest.MonkeyPatch) -> None:
    ours, theirs = socket.socketpair()
    driver = SimpleNamespace(_sock=ours, thread_id=lambda: 41, _force_close=ours.close)
    monkeypatch.setattr(mysql, "_Driver", lambda **_: driver)
    runtime = ThreadRuntime()
    made = mysql.dial(parsed("mysql://db/locks?connect_timeout=70&answer_timeout=0.05"), waits_for(runtime), runtime)
    with theirs:
        assert (made.number, made._timeout) == (41, 0.05)
        with pytest.raises(OutcomeUnknown, match="mysql://db/locks"):
            run(made.query(b"SELECT 1"))
        made.close()


def test_tls_checks_the_server_unless_it_is_told_not_to(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    dialed = Dialed(monkeypatch)
    authority = Certificates(tmp_path).authority

    def context(query: str) -> ssl.SSLContext:
        dialed.dial(f"mysql://db/locks?{query}")
        made: ssl.SSLContext = dialed.words["ssl"]
        return made

    strict = context(f"tls_ca={authority}")
    assert (strict.verify_mode, strict.check_hostname) == (ssl.CERT_REQUIRED, True)
    assert len(strict.get_ca_certs()) == 1, "the authorities of the system are not trusted beside ours"
    lax = context("tls_verify=no")
    assert (lax.verify_mode, lax.check_hostname) == (ssl.CERT_NONE, False)


def test_a_client_certificate_is_shown_with_its_key_and_the_password_of_that(monkeypatch: pytest.MonkeyPatch) -> None:
    dialed, loaded = Dialed(monkeypatch), files_given_to_ssl(monkeypatch)
    dialed.dial("mysql://db/locks?tls_ca=/our/ca&tls_cert=/our/cert&tls_key=/our/key&tls_key_password=secret")
    assert loaded == ["/our/ca", ("/our/cert", "/our/key", "secret")]


def test_files_of_tls_that_cannot_be_read_are_a_mistake_of_the_url(monkeypatch: pytest.MonkeyPatch) -> None:
    Dialed(monkeypatch)
    runtime = ThreadRuntime()
    for query in ("tls_ca=/nowhere.pem", "tls_cert=/nowhere.pem&tls_key=/nowhere.pem&tls_verify=no"):
        with pytest.raises(ConfigurationError, match="files of TLS"):
            mysql.dial(parsed(f"mysql://db/locks?{query}"), waits_for(runtime), runtime)


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (pymysql.OperationalError(1045, "Access denied"), BackendRejected),
        (OSError(111, "refused"), BackendUnavailable),
        (RuntimeError("cryptography is required"), BackendUnavailable),
    ],
)
def test_an_error_of_the_driver_at_the_connect_is_one_of_ours(
    monkeypatch: pytest.MonkeyPatch, error: Exception, kind: type
) -> None:
    found = Dialed(monkeypatch, error).dial("mysql://me:secret@db/locks")
    assert type(found) is kind
    assert str(error.args[-1]) in str(found)
    assert "secret" not in str(found)


# --- rights


@pytest.mark.parametrize(
    ("role", "who"),
    [
        ("worker", "'worker'"),
        ("worker@%", "'worker'@'%'"),
        ("worker@10.0.0.7", "'worker'@'10.0.0.7'"),
        ("o'neil\\", "'o''neil\\\\'"),
    ],
)
def test_the_least_rights_are_those_to_use_the_tables(role: str, who: str) -> None:
    assert ddl.grants("locks", role).splitlines() == [
        *(f"GRANT SELECT, INSERT, UPDATE, DELETE ON `locks`.`leasehold_{table}` TO {who};"
          for table in ("lock", "claim", "record")),
        f"GRANT SELECT ON `locks`.`leasehold_about` TO {who};",
    ]  # fmt: skip


@pytest.mark.parametrize(("database", "role"), [("lo`cks", "worker"), ("locks", ""), ("locks", "@host")])
def test_rights_for_names_that_are_not_plain_are_refused(database: str, role: str) -> None:
    with pytest.raises(ConfigurationError, match="plain names"):
        ddl.grants(database, role)
