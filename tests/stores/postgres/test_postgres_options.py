"""What a PostgreSQL URL may say; nothing is connected."""

from __future__ import annotations

from urllib.parse import quote

import pytest

from leasehold import ConfigurationError
from leasehold._backends.postgres import options as postgres
from leasehold._backends.postgres.options import PostgresOptions, parse, read_for_adopted
from leasehold._urls import find_store
from leasehold.store_url import StoreURL


def parsed(text: str) -> tuple[object, dict[str, object]]:
    return parse(StoreURL.parse(text))


def test_libpq_parameters_are_passed_on_and_ours_are_not() -> None:
    options, parameters = parsed(
        "postgresql://me:s%40crt@db.example:5433/orders?sslmode=verify-full&sslrootcert=/ca.pem&connect_timeout=3"
        "&mode=session&schema=locks&fence_floor=12&connections=2&answer_timeout=1.5&application_name=worker"
    )
    assert parameters == {
        "user": "me",
        "password": "s@crt",
        "host": "db.example",
        "port": "5433",
        "dbname": "orders",
        "sslmode": "verify-full",
        "sslrootcert": "/ca.pem",
        "connect_timeout": "3",
        "application_name": "worker",
        "fallback_application_name": "leasehold",
    }
    assert "s@crt" not in repr(options)
    assert (options.mode, options.schema, options.fence_floor) == ("session", "locks", 12)  # type: ignore[attr-defined]
    assert (options.connections, options.answer_timeout) == (2, 1.5)  # type: ignore[attr-defined]


def test_of_several_hosts_one_that_takes_writes_is_wanted() -> None:
    _, parameters = parsed("postgres://h1,h2:5433/db")
    assert (parameters["host"], parameters["port"]) == ("h1,h2", "5432,5433")
    assert parameters["target_session_attrs"] == "read-write"
    assert "target_session_attrs" not in parsed("postgres://h1/db")[1]


def test_a_socket_directory_and_the_environment_of_libpq_will_do() -> None:
    assert parsed("postgresql:///db?host=/var/run/postgresql")[1]["host"] == "/var/run/postgresql"
    assert "host" not in parsed("postgresql://")[1]


@pytest.mark.parametrize("scheme", ["postgresql", "postgres", "postgresql+psycopg"])
def test_urls_of_other_programs_can_be_pasted(scheme: str) -> None:
    assert find_store(f"{scheme}://me:secret@host/db") is not None


@pytest.mark.parametrize(
    "query",
    [
        "nonsense=1",
        "pool_size=5",
        "mode=rows2",
        "mode=",
        "schema=a%22b",
        "fence_floor=-1",
        "fence_floor=x",
        "fence_floor=9007199254740991",
        "connections=0",
        "connections=101",
        "connections=4.5",
        "answer_timeout=0",
        "answer_timeout=inf",
        "answer_timeout=-1",
        "answer_timeout=5x",
        "command_timeout=5",
        "sslmod=require",
        "tls_cert=/c.pem",
        "tls_verify=maybe",
        "tls_ca=/ca.pem&sslrootcert=/ca.pem",
        "tls_verify=no&sslmode=disable",
        "answer_timeout=99999",
        "listen_url=redis://host",
        "listen_url=" + quote("postgresql://host/?nonsense=1"),
    ],
)
def test_what_cannot_be_right_is_refused_by_name(query: str) -> None:
    with pytest.raises(ConfigurationError) as error:
        parsed(f"postgresql://me:secret@host/db?{query}")
    name = query.partition("=")[0]
    assert name in str(error.value) or "nonsense" in str(error.value) or "tls_*" in str(error.value)
    assert "secret" not in str(error.value)


def test_durations_are_read_as_everywhere() -> None:
    options, _ = parsed("postgresql://host/db?answer_timeout=1500ms")
    assert options.answer_timeout == 1.5  # type: ignore[attr-defined]


def test_tls_options_of_all_stores_become_those_of_libpq() -> None:
    _, parameters = parsed("postgresql://host/db?tls_ca=/ca.pem&tls_cert=/c.pem&tls_key=/k.pem&tls_key_password=secret")
    assert {name: value for name, value in parameters.items() if name.startswith("ssl")} == {
        "sslmode": "verify-full",
        "sslrootcert": "/ca.pem",
        "sslcert": "/c.pem",
        "sslkey": "/k.pem",
        "sslpassword": "secret",
    }
    assert parsed("postgresql://host/db?tls_verify=no")[1]["sslmode"] == "require"
    assert parsed("postgresql://host/db?tls_verify=yes")[1]["sslmode"] == "verify-full"
    listen = quote("postgresql://direct/db?tls_ca=/ca.pem")
    options, _ = parsed(f"postgresql://host/db?listen_url={listen}")
    assert options.listen["sslrootcert"] == "/ca.pem"  # type: ignore[attr-defined]


def test_name_that_is_almost_right_is_guessed() -> None:
    for wrong, right in (("sslmod", "sslmode"), ("fencefloor", "fence_floor"), ("command_timeout", "answer_timeout")):
        with pytest.raises(ConfigurationError, match=right):
            parsed(f"postgresql://host/db?{wrong}=1")


def test_label_has_no_password() -> None:
    options, _ = parsed("postgresql://me:secret@host:5433/db?password=secret")
    assert options.label == "postgresql://me@host:5433/db"  # type: ignore[attr-defined]


def test_what_a_url_leaves_out_has_its_default() -> None:
    options, parameters = parsed("postgresql://host/db")
    assert options == PostgresOptions(
        label="postgresql://host/db",
        mode="rows",
        schema="leasehold",
        fence_floor=0,
        connections=4,
        answer_timeout=5.0,
        listen=None,
    )
    assert parameters == {
        "host": "host",
        "dbname": "db",
        "connect_timeout": "5",
        "fallback_application_name": "leasehold",
    }
    assert "port" not in parsed("postgresql://h1,h2/db")[1], "libpq has a default, and the environment may"
    given = "postgres://h1,h2/db?target_session_attrs=any"
    assert parsed(given)[1]["target_session_attrs"] == "any", "as the user wishes"


def test_the_way_for_notifications_has_parameters_of_its_own() -> None:
    options, parameters = parsed(
        "postgresql://me:s1@pooler:6432/db?listen_url=" + quote("postgresql://you:s2@direct:5433/db2?sslmode=require")
    )
    assert options.listen == {  # type: ignore[attr-defined]
        "host": "direct",
        "port": "5433",
        "user": "you",
        "password": "s2",
        "dbname": "db2",
        "sslmode": "require",
        "connect_timeout": "5",
        "fallback_application_name": "leasehold",
    }
    assert (parameters["host"], parameters["user"]) == ("pooler", "me")
    assert "s2" not in repr(options)


@pytest.mark.parametrize("scheme", ["postgresql", "postgres", "postgresql+psycopg"])
def test_the_way_for_notifications_may_be_a_url_of_any_program(scheme: str) -> None:
    options, _ = parsed("postgresql://pooler/db?listen_url=" + quote(f"{scheme}://direct/db"))
    assert options.listen["host"] == "direct"  # type: ignore[attr-defined]


def test_an_option_of_ours_in_the_way_for_notifications_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="connections"):
        parsed("postgresql://host/db?listen_url=" + quote("postgresql://direct/db?connections=2"))


@pytest.mark.parametrize(
    ("name", "right"),
    [("command_timeout", "answer_timeout"), ("node_timeout", "answer_timeout"), ("pool_size", "connections")],
)
def test_names_of_other_libraries_are_translated(name: str, right: str) -> None:
    with pytest.raises(ConfigurationError, match=f"called {right} here"):
        parsed(f"postgresql://host/db?{name}=3")


@pytest.mark.parametrize("name", ["answer_timeout=0.04", "connections=0", "connections=101"])
def test_bounds_of_options_are_kept(name: str) -> None:
    with pytest.raises(ConfigurationError, match=name.partition("=")[0]):
        parsed(f"postgresql://host/db?{name}")
    options, _ = parsed("postgresql://host/db?answer_timeout=0.05&connections=100")
    assert (options.answer_timeout, options.connections) == (0.05, 100)  # type: ignore[attr-defined]


def test_the_authorities_of_the_system_are_trusted_where_libpq_knows_them(monkeypatch: pytest.MonkeyPatch) -> None:
    for version, expected in ((159999, None), (160000, "system")):
        monkeypatch.setattr("psycopg.pq.version", lambda version=version: version)
        assert parsed("postgresql://host/db?tls_verify=yes")[1].get("sslrootcert") == expected
        assert "sslrootcert" not in parsed("postgresql://host/db?tls_verify=no")[1]
        assert parsed("postgresql://host/db?tls_ca=/ca.pem")[1]["sslrootcert"] == "/ca.pem"
    assert postgres.SYSTEM_CERTIFICATES_SINCE == 160000


def test_a_pool_of_the_users_own_takes_the_options_that_are_not_of_the_connection() -> None:
    options = read_for_adopted("its label", {"schema": "locks", "answer_timeout": "2.5", "fence_floor": "7"})
    assert options == PostgresOptions("its label", schema="locks", answer_timeout=2.5, fence_floor=7)
    assert read_for_adopted("x", {}) == PostgresOptions("x")
    for name in ("mode", "connections", "listen_url", "tls_ca", "sslmode"):
        with pytest.raises(ConfigurationError, match=f"pool or engine of your own has no option '{name}'"):
            read_for_adopted("x", {name: "1"})
    with pytest.raises(ConfigurationError, match="called answer_timeout here"):
        read_for_adopted("x", {"command_timeout": "1"})


@pytest.mark.parametrize("name", ["a", "_", "A1_", "x" * 63])
def test_plain_names_of_schemas_are_taken(name: str) -> None:
    options, _ = parsed(f"postgresql://host/db?schema={name}")
    assert options.schema == name  # type: ignore[attr-defined]
