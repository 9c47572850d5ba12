"""Django: settings, the order of locks and transactions, async views, checks, `manage.py leasehold`."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from django.core.checks import run_checks
from django.core.exceptions import SynchronousOnlyOperation
from django.core.management import CommandError, call_command
from django.db import connections, transaction
from django.http import HttpResponse
from django.test import AsyncClient, Client, TestCase, override_settings
from django.urls import path

import leasehold
from leasehold.errors import AcquireTimeout, ConfigurationError, LeaseLost, StaleFence
from leasehold.integrations.django import aclient, ahold, client, guard, hold, locked
from leasehold.integrations.django.checks import _check_atomic_requests, _check_url, _may_be_pooled
from leasehold.integrations.django.clients import read_settings
from leasehold.integrations.django.management.commands import leasehold as command
from leasehold.integrations.django.middleware import LockErrorMiddleware
from leasehold.store_url import StoreURL
from leasehold.testing.manual import ManualStore
from tests.sql.desks import django_alias, fresh_schema

if TYPE_CHECKING:
    from collections.abc import Iterator

    from django.http import HttpRequest

    from verification.lab.postgres import PostgresServer

ROOT = Path(__file__).parents[2]
SOURCE = Path(leasehold.__file__).parents[1]
APP = "leasehold.integrations.django"
MIDDLEWARE = [f"{APP}.middleware.LockErrorMiddleware"]


@pytest.fixture
def store() -> ManualStore:
    return ManualStore()


@contextmanager
def databases(tmp_path: Path) -> Iterator[None]:
    """Two databases and no others, `default` and `other`, in this thread and in those that the test starts."""
    before = dict(connections.settings)
    urls = {name: django_alias(f"sqlite:///{tmp_path}/{name}.db") for name in ("default", "other")}
    found = {name: dict(connections.settings[url]) for name, url in urls.items()}
    _drop_connections()
    connections.settings.clear()
    connections.settings.update(found)
    try:
        yield
    finally:
        _drop_connections()
        connections.settings.clear()
        connections.settings.update(before)


def _drop_connections() -> None:
    for name in ("default", "other", "one", "two"):
        if hasattr(connections._connections, name):
            connections[name].close()
            del connections[name]


@pytest.fixture(autouse=True)
def project(store: ManualStore, tmp_path: Path) -> Iterator[None]:
    django_alias("sqlite://")  # configures Django, unless another file of this process has done so
    options = {"URL": store, "NAMESPACE": "shop", "TIMEOUT": 0}
    changed = override_settings(
        LEASEHOLD=options, INSTALLED_APPS=[APP], MIDDLEWARE=MIDDLEWARE, ROOT_URLCONF=__name__, ALLOWED_HOSTS=["*"]
    )
    with databases(tmp_path), changed:
        yield
        client().close()


# --- views


def pay(request: HttpRequest, cart_id: int) -> HttpResponse:
    with hold(f"cart:{cart_id}") as lease, transaction.atomic():
        if "lose" in request.GET:
            LOSE[0].lose(lease)
        return HttpResponse(lease.name)


@transaction.non_atomic_requests(using="other")
@locked("cart:{cart_id}")
def pay_in_order(request: HttpRequest, cart_id: int, lease: leasehold.Lease = leasehold.CURRENT) -> HttpResponse:
    with transaction.atomic(using="other"):
        return HttpResponse(lease.name)


@locked("cart:{cart_id}")
def decorated(request: HttpRequest, cart_id: int) -> HttpResponse:
    return HttpResponse("done")


async def pay_async(request: HttpRequest, cart_id: int) -> HttpResponse:
    async with ahold(f"cart:{cart_id}") as lease:
        return HttpResponse(lease.name)


async def block_the_loop(request: HttpRequest, cart_id: int) -> HttpResponse:
    with hold(f"cart:{cart_id}"):
        return HttpResponse("never")


LOSE: list[ManualStore] = []
urlpatterns = [
    path("carts/<int:cart_id>", pay),
    path("ordered/<int:cart_id>", pay_in_order),
    path("decorated/<int:cart_id>", decorated),
    path("async/<int:cart_id>", pay_async),
    path("wrong/<int:cart_id>", block_the_loop),
]


def test_a_view_runs_under_its_lock_and_a_busy_one_is_409(store: ManualStore) -> None:
    assert Client().post("/carts/7").content == b"cart:7"
    with store.connect(namespace="shop") as other, other.lock("cart:7").hold():
        busy = Client().post("/carts/7")
    assert busy.status_code == 409
    assert int(busy["Retry-After"]) >= 1
    assert busy["Content-Type"] == "application/problem+json"


def test_a_lease_that_was_lost_is_never_a_success(store: ManualStore) -> None:
    LOSE[:] = [store]
    assert Client().post("/carts/7?lose").status_code == 503


def test_a_template_that_the_view_cannot_fill_is_refused_at_import() -> None:
    with pytest.raises(ConfigurationError, match="cart_id"):
        locked("cart:{cart_id}")(lambda request, cart: None)


# --- transactions


@pytest.mark.parametrize("alias", ["default", "other"])
def test_a_lock_inside_a_transaction_is_refused_with_the_right_order(store: ManualStore, alias: str) -> None:
    with transaction.atomic(using=alias):
        with pytest.raises(ConfigurationError, match=rf"database '{alias}'.*Take the lock first: `with hold"):
            hold("cart:7").__enter__()
        with pytest.raises(ConfigurationError, match="released before its commit"):
            decorated(None, cart_id=7)
        assert client().inspect("cart:7") is None, "it was not even asked for"


def test_the_order_that_is_refused_loses_an_update_and_the_other_does_not(postgres: PostgresServer) -> None:
    url = fresh_schema(postgres)
    words = connections.settings[django_alias(url)]
    connections.settings.update(one=dict(words), two=dict(words))
    one, two = connections["one"].cursor(), connections["two"].cursor()
    one.execute("CREATE TABLE stock (amount INTEGER)")
    one.execute("INSERT INTO stock VALUES (10)")

    def left(cursor: Any) -> int:
        cursor.execute("SELECT amount FROM stock")
        return int(cursor.fetchone()[0])

    def write(cursor: Any, amount: int) -> None:
        cursor.execute("UPDATE stock SET amount = %s", [amount])

    with transaction.atomic(using="two"), ExitStack() as first:
        first.enter_context(transaction.atomic(using="one"))
        with hold("stock", inside_transaction=True):
            write(one, left(one) - 1)
        with hold("stock", inside_transaction=True):  # the next holder, while the first has not committed
            seen = left(two)
            first.close()
            write(two, seen - 1)
    assert left(one) == 9, "two were sold, and one is missing"
    for cursor, alias in ((one, "one"), (two, "two")):
        with hold("stock"), transaction.atomic(using=alias):
            write(cursor, left(cursor) - 1)
    assert left(one) == 7
    for alias in ("one", "two"):
        connections[alias].close()


def test_transaction_inside_the_lock_ends_before_the_lock_does() -> None:
    with hold("cart:7") as lease:
        with transaction.atomic(using="other"):
            lease.check()
        assert not connections["other"].in_atomic_block


def test_transaction_of_another_thread_is_none_of_our_business() -> None:
    names: list[str] = []

    def work() -> None:
        with hold("cart:7") as lease:
            names.append(lease.name)

    with transaction.atomic():
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
    assert names == ["cart:7"]


def test_a_lock_that_protects_nothing_in_the_database_may_say_so() -> None:
    with transaction.atomic(), hold("mail", inside_transaction=True) as lease:
        lease.check()


def test_the_transaction_around_a_test_of_django_is_no_reason_to_refuse(tmp_path: Path) -> None:
    class Case(TestCase):
        databases = frozenset({"default"})

        def runTest(self) -> None:
            with hold("cart:7"), transaction.atomic():
                pass
            with transaction.atomic(), pytest.raises(ConfigurationError):
                hold("cart:7").__enter__()

    Case().debug()


def test_atomic_requests_refuse_the_lock_and_non_atomic_requests_cure_it() -> None:
    connections.settings["other"]["ATOMIC_REQUESTS"] = True
    with pytest.raises(ConfigurationError, match="non_atomic_requests"):
        Client().post("/decorated/7")
    assert Client().post("/ordered/7").content == b"cart:7"


def test_guard_by_alias_refuses_a_late_writer() -> None:
    with hold("cart:7") as first:
        pass
    with hold("cart:7") as second, transaction.atomic(using="other"):
        guard(second, using="other")
    with pytest.raises(StaleFence), transaction.atomic(using="other"):
        guard(first, using="other")
    with pytest.raises(ConfigurationError, match="transaction"):
        guard(second, using="other")


# --- async views


def test_an_async_view_has_an_async_lock_and_a_blocking_one_is_refused() -> None:
    async def main() -> None:
        assert (await AsyncClient().post("/async/7")).content == b"cart:7"
        async with aclient().lock("cart:7").hold():
            assert (await AsyncClient().post("/async/7")).status_code == 409
        with pytest.raises(SynchronousOnlyOperation, match="async with ahold"):
            await AsyncClient().post("/wrong/7")
        await aclient().close()

    asyncio.run(main())


def test_an_async_view_under_wsgi_has_a_loop_for_each_request() -> None:
    assert [Client().post("/async/7").content for _ in range(2)] == [b"cart:7"] * 2
    asyncio.run(aclient().close())


# --- settings and checks


def test_there_is_one_client_until_the_settings_change(store: ManualStore) -> None:
    assert client() is client()
    with override_settings(LEASEHOLD={"URL": store, "TTL": "1m"}):
        assert client().lock("x").ttl == 60
    with override_settings(LEASEHOLD={"URL": store}), pytest.raises(AcquireTimeout):
        held = client().lock("x").acquire()
        try:
            with hold("x", timeout=0):
                """Never entered."""
        finally:
            held.release()


@pytest.mark.parametrize(
    ("given", "read"),
    [
        ({}, {"timeout": 5.0}),
        ({"TIMEOUT": "1s"}, {"timeout": "1s"}),
        ({"TIMEOUT": 0}, {"timeout": 0}),
        ({"TIMEOUT": None}, {"timeout": None}),
        ({"TTL": "1m"}, {"timeout": 5.0, "ttl": "1m"}),
    ],
)
def test_the_settings_of_the_project_count_more_than_our_defaults(given: Any, read: Any) -> None:
    with override_settings(LEASEHOLD={"URL": "memory://", **given}):
        assert read_settings() == ("memory://", read)


@pytest.mark.parametrize(
    ("options", "found"),
    [
        ({"URL": "redis://localhost"}, []),
        ({"URL": "memory://"}, ["leasehold.W001"]),
        ({"URL": "local:"}, ["leasehold.W002"]),
        ({"URL": "postgresql://db:6432/shop?mode=session"}, ["leasehold.W003"]),
        ({"URL": "postgresql://db:5432/shop?mode=session"}, []),
        ({"URL": "postgresql://pooled:5433/shop?mode=session"}, ["leasehold.W003"]),
        ({"URL": "postgresql://db:6432/shop"}, []),
        ({"URL": "nonsense"}, ["leasehold.E001"]),
        ({"URL": "redis://localhost", "TLL": 5}, ["leasehold.E001"]),
        ({"URL": "redis://localhost", "TTL": 0}, ["leasehold.E001"]),
        ("redis://localhost", ["leasehold.E001"]),
    ],
)
def test_checks_name_what_cannot_work_and_what_is_dangerous(options: Any, found: list[str]) -> None:
    connections.settings["other"].update(HOST="pooled", PORT=5433, DISABLE_SERVER_SIDE_CURSORS=True)
    with override_settings(LEASEHOLD=options, DEBUG=False):
        assert [message.id for message in run_checks() if message.id.startswith("leasehold.")] == found


def test_checks_mention_atomic_requests() -> None:
    connections.settings["other"]["ATOMIC_REQUESTS"] = True
    assert [message.id for message in run_checks() if message.id.startswith("leasehold.")] == ["leasehold.I001"]


def test_a_check_says_what_to_do() -> None:
    with override_settings(LEASEHOLD={"URL": "nonsense"}):
        (error,) = [message for message in run_checks() if message.id == "leasehold.E001"]
        assert error.is_serious()
        assert "LEASEHOLD" in str(error.hint)
    with override_settings(LEASEHOLD={"URL": "memory://"}):
        (warning,) = [message for message in run_checks() if message.id == "leasehold.W001"]
        assert not warning.is_serious()
    connections.settings["other"]["ATOMIC_REQUESTS"] = True
    (hint,) = _check_atomic_requests()
    assert "'other'" in str(hint.msg)
    assert "non_atomic_requests" in str(hint.hint)


@pytest.mark.parametrize(
    ("url", "debug", "found"),
    [
        ("local:", True, []),
        ("sqlite:////tmp/x.db", True, []),
        ("sqlite:////tmp/x.db", False, ["leasehold.W002"]),
        ("memory://", True, ["leasehold.W001"]),
        ("postgres://db:6432/shop?mode=session", False, ["leasehold.W003"]),
        ("postgresql+asyncpg://db:6432/shop?mode=session", False, ["leasehold.W003"]),
        ("mysql://db:6432/shop?mode=session", False, []),
        ("postgresql://db:6432/shop?mode=other", False, []),
    ],
)
def test_only_what_is_dangerous_here_is_warned_of(url: str, debug: bool, found: list[str]) -> None:
    with override_settings(DEBUG=debug):
        assert [message.id for message in _check_url(StoreURL.parse(url))] == found


@pytest.mark.parametrize(
    ("database", "is_pooled"),
    [
        ({"HOST": "db", "PORT": "5432", "DISABLE_SERVER_SIDE_CURSORS": True}, True),
        ({"HOST": "db", "PORT": 5432, "DISABLE_SERVER_SIDE_CURSORS": True}, True),
        ({"HOST": "db", "PORT": 5432, "DISABLE_SERVER_SIDE_CURSORS": False}, False),
        ({"HOST": "db", "PORT": 5432}, False),
        ({"HOST": "other", "PORT": 5432, "DISABLE_SERVER_SIDE_CURSORS": True}, False),
        ({"HOST": "db", "PORT": 5433, "DISABLE_SERVER_SIDE_CURSORS": True}, False),
        ({"HOST": "db", "DISABLE_SERVER_SIDE_CURSORS": True}, False),
    ],
    ids=str,
)
def test_a_pooler_is_known_by_how_the_project_uses_it(database: dict[str, Any], is_pooled: bool) -> None:
    connections.settings["other"].update(HOST=None, PORT=None)
    connections.settings["other"].update(database)
    url = StoreURL.parse("postgresql://db:5432/shop?mode=session")
    assert _may_be_pooled(url) is is_pooled


def test_without_a_url_in_the_settings_that_of_the_environment_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LEASEHOLD_URL", "memory://from-the-environment")
    with override_settings(LEASEHOLD={"TTL": 7}):
        assert client().store == "memory://from-the-environment"
        assert client().lock("x").ttl == 7
        assert aclient().lock("x").ttl == 7
        assert [message.id for message in run_checks() if message.id.startswith("leasehold.")] == ["leasehold.W001"]


def test_another_setting_changes_no_client(store: ManualStore) -> None:
    first, second = client(), aclient()
    with override_settings(DEBUG=True):
        assert (client(), aclient()) == (first, second)
    with override_settings(LEASEHOLD={"URL": store, "TTL": 7}):
        assert aclient() is not second
        assert aclient().lock("x").ttl == 7


def test_the_options_of_a_lock_are_passed_on(store: ManualStore) -> None:
    with store.connect(namespace="shop") as other:
        with hold("x", ttl=7, reason="why") as lease:
            state = other.inspect("x")
            assert state is not None
            assert (lease.ttl, state.holdings[0].holder.reason) == (7, "why")

            @locked("x", timeout=0.3, on_busy=str, ttl=8)
            def work(lease: leasehold.Lease = leasehold.CURRENT) -> Any:
                """What is done."""
                return lease.ttl

            assert "within 0." in str(work()), "and not at once, as the settings say"
            with pytest.raises(AcquireTimeout) as late:
                hold("x", timeout=0.2).__enter__()
            assert "within 0." in str(late.value)
            with transaction.atomic(), pytest.raises(ConfigurationError):
                work()
        assert work() == 8
        assert (work.__name__, work.__doc__) == ("work", "What is done.")
        inside = locked("x", inside_transaction=True)(lambda: "done")
        with transaction.atomic():
            assert inside() == "done"

    async def main() -> None:
        async with ahold("x", ttl=9) as lease:
            assert lease.ttl == 9
            with pytest.raises(AcquireTimeout) as busy:
                async with ahold("x", timeout=0.2):
                    """Never entered."""
            assert "within 0." in str(busy.value), "and not at once, as the settings say"
        await aclient().close()

    asyncio.run(main())


def test_a_guard_may_name_its_resource_and_trust_what_was_read() -> None:
    with hold("cart:7") as first:
        pass
    with hold("cart:7") as second, transaction.atomic():
        guard(second, resource="stock")
    with transaction.atomic():
        guard(first)  # of another resource
    with pytest.raises(StaleFence), transaction.atomic():
        guard(first, resource="stock")


def test_what_is_no_answer_to_a_caller_is_left_to_django() -> None:
    middleware = LockErrorMiddleware(lambda _: HttpResponse())
    request: Any = None
    assert middleware.process_exception(request, ValueError()) is None
    answer = middleware.process_exception(request, AcquireTimeout("busy", retry_after=7))
    assert (answer.status_code, answer["Retry-After"], answer["Content-Type"]) == (409, "7", "application/problem+json")


# --- the command


@pytest.mark.parametrize(
    ("words", "given"),
    [
        (["ls", "--json"], ["ls", "--namespace", "shop", "--json"]),
        (["run", "x", "--", "true"], ["run", "--namespace", "shop", "x", "--", "true"]),
        (["demo"], ["demo"]),
        (["nonsense"], ["nonsense"]),
        ([], []),
    ],
)
def test_the_namespace_of_the_settings_goes_to_verbs_that_ask_the_store(
    words: list[str], given: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[list[str]] = []

    def main(words: list[str]) -> int:
        seen.append(words)
        return 3

    monkeypatch.setattr(command, "main", main)
    monkeypatch.setenv("LEASEHOLD_URL", "memory://before")
    with override_settings(LEASEHOLD={"URL": "memory://of-the-settings", "NAMESPACE": "shop"}):
        assert command._run(words) == 3
    assert seen == [given]
    assert os.environ["LEASEHOLD_URL"] == "memory://of-the-settings"
    with override_settings(LEASEHOLD={"URL": "memory://of-the-settings"}):
        command._run(words)
    assert seen[1] == words
    with override_settings(LEASEHOLD={"URL": "memory://x"}), pytest.raises(SystemExit) as ended:
        command.Command().run_from_argv(["manage.py", "leasehold", *words])
    assert ended.value.code == 3
    assert seen[2] == words


def test_manage_py_shows_the_locks_of_the_project(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/locks.db"
    environment = {
        **os.environ,
        "SHOP_LOCKS": url,
        "DJANGO_SETTINGS_MODULE": "tests.integrations.django_settings",
        "PYTHONPATH": os.pathsep.join([str(ROOT), str(SOURCE)]),
    }

    def manage(*words: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "django", "leasehold", *words]
        return subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=60)

    with leasehold.connect(url, namespace="shop") as ours, leasehold.connect(url) as others:
        with ours.lock("cart:7").hold(), others.lock("of another namespace").hold():
            shown = manage("ls", "--json")
            busy = manage("run", "cart:7", "-n", "--", "true")
    assert shown.returncode == 0, shown.stderr
    assert "cart:7" in shown.stdout
    assert "of another namespace" not in shown.stdout
    assert busy.returncode == 75, busy.stderr


def test_call_command_raises_with_the_exit_code(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = os.environ.get("LEASEHOLD_URL")
    try:
        with override_settings(LEASEHOLD={"URL": f"sqlite:///{tmp_path}/locks.db"}):
            with leasehold.connect(f"sqlite:///{tmp_path}/locks.db") as other, other.lock("cart:7").hold():
                call_command("leasehold", "ls")
                with pytest.raises(CommandError) as failed:
                    call_command("leasehold", "nonsense")
    finally:
        os.environ.pop("LEASEHOLD_URL", None)
        if before is not None:
            os.environ["LEASEHOLD_URL"] = before
    assert "cart:7" in capsys.readouterr().out
    assert failed.value.returncode == 64


def test_loss_is_told_also_outside_a_view(store: ManualStore) -> None:
    with pytest.raises(LeaseLost), hold("cart:7") as lease:
        store.lose(lease)
