"""Flask: the extension, locks that end with their request, and what the caller is told."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import pytest
from flask import Blueprint, Flask

import leasehold
from leasehold import events
from leasehold.errors import BackendRejected, ConfigurationError, StaleFence
from leasehold.integrations.flask import Locks
from leasehold.testing.manual import ManualStore
from tests.waiting import eventually

if TYPE_CHECKING:
    from flask.testing import FlaskClient

locks = Locks()
shop = Blueprint("shop", __name__)


class Scene:
    """What the views of a test do, and have done."""

    store: ManualStore
    trouble: str | Exception = ""
    entered: threading.Event
    go: threading.Event
    leases: list[leasehold.Lease]


@shop.post("/carts/<int:cart_id>")
@locks.locked("cart:{cart_id}", timeout=0)
def pay(cart_id: int, lease: leasehold.Lease = leasehold.CURRENT) -> dict[str, Any]:
    Scene.leases.append(lease)
    Scene.entered.set()
    Scene.go.wait(60)
    if isinstance(Scene.trouble, Exception):
        raise Scene.trouble
    if Scene.trouble == "lost":
        Scene.store.lose(lease)
    return {"lock": lease.name}


@shop.post("/orders/<order>")
def order(order: str) -> tuple[dict[str, Any], int]:
    lease = locks.acquire(f"order:{order}", timeout=0)
    Scene.leases.append(lease)
    if Scene.trouble == "released":
        lease.release()
    if Scene.trouble == "lost":
        Scene.store.lose(lease)
    if isinstance(Scene.trouble, Exception):
        raise Scene.trouble
    return {"lock": lease.name}, 404 if Scene.trouble == "missing" else 200


@pytest.fixture
def app() -> Flask:
    Scene.store, Scene.trouble, Scene.leases = ManualStore(), "", []
    Scene.entered, Scene.go = threading.Event(), threading.Event()
    Scene.go.set()
    app = Flask("shop")
    app.config.update(TESTING=True, LEASEHOLD_URL=Scene.store, LEASEHOLD_NAMESPACE="shop")
    locks.init_app(app)
    app.register_blueprint(shop)
    return app


@pytest.fixture
def http(app: Flask) -> FlaskClient:
    return app.test_client()


def is_free(name: str) -> bool:
    with Scene.store.connect(namespace="shop") as other:
        lease = other.lock(name).try_acquire()
        return lease is not None and lease.release()


def test_a_view_runs_under_the_lock_that_its_arguments_name(http: FlaskClient) -> None:
    Scene.go.clear()
    answers: list[Any] = []
    first = threading.Thread(target=lambda: answers.append(http.post("/carts/007")))
    first.start()
    eventually(Scene.entered.is_set)
    assert not is_free("cart:7")
    busy = http.post("/carts/7")
    Scene.go.set()
    first.join()
    assert busy.status_code == 409
    assert int(busy.headers["Retry-After"]) >= 1
    assert busy.mimetype == "application/problem+json"
    assert answers[0].json == {"lock": "cart:7"}
    assert is_free("cart:7")


def test_a_template_that_the_view_cannot_fill_is_refused_at_import() -> None:
    with pytest.raises(ConfigurationError, match="cart_id"):

        @locks.locked("cart:{cart_id}")
        def view(cart: int) -> None:
            """Never called."""


@pytest.mark.parametrize("path", ["/carts/7", "/orders/7"])
def test_a_lease_that_was_lost_is_never_a_success(http: FlaskClient, path: str) -> None:
    Scene.trouble = "lost"
    assert http.post(path).status_code == 503


@pytest.mark.parametrize("path", ["/carts/7", "/orders/7"])
def test_an_error_of_the_view_is_answered_and_the_lock_is_free(http: FlaskClient, path: str) -> None:
    Scene.trouble = StaleFence("late")
    assert http.post(path).status_code == 412
    assert is_free("cart:7")
    assert is_free("order:7")


def test_what_an_operator_has_to_see_is_not_answered_away(http: FlaskClient) -> None:
    Scene.trouble = BackendRejected("no rights")
    with pytest.raises(BackendRejected):
        http.post("/orders/7")
    assert is_free("order:7")


@pytest.mark.parametrize(("trouble", "status"), [("", 200), ("released", 200), ("missing", 404)])
def test_a_lock_taken_for_the_request_is_free_when_its_response_comes(
    http: FlaskClient, trouble: str, status: int
) -> None:
    Scene.trouble = trouble
    assert http.post("/orders/7").status_code == status
    assert Scene.leases[0].loss is None
    assert is_free("order:7")


def test_outside_a_request_no_lock_can_end_with_it(app: Flask) -> None:
    with app.app_context(), pytest.raises(ConfigurationError, match="no request"):
        locks.acquire("x")


def test_configuration_comes_from_the_application_and_mistakes_are_named(app: Flask) -> None:
    with app.app_context():
        assert locks.client.lock("x").ttl == 30
    other = Flask("other")
    other.config.update(LEASEHOLD_URL="memory://", LEASEHOLD_TTL="1m")
    mine = Locks(other, ttl="2m")
    with other.app_context():
        assert mine.client.lock("x").ttl == 60
    wrong = Flask("wrong")
    wrong.config.update(LEASEHOLD_URL="memory://", LEASEHOLD_TLL="1m")
    with pytest.raises(ConfigurationError, match=r"'TLL'.*TTL"):
        Locks(wrong)
    with Flask("without").app_context(), pytest.raises(ConfigurationError, match="init_app"):
        _ = locks.client


@pytest.mark.parametrize(
    ("config", "options", "ttl", "timeout"),
    [
        ({}, {}, 30, 5.0),
        ({"LEASEHOLD_TIMEOUT": 2}, {}, 30, 2.0),
        ({"LEASEHOLD_TIMEOUT": None}, {}, 30, None),
        ({"LEASEHOLD_TIMEOUT": None}, {"timeout": 3}, 30, None),
        ({}, {"timeout": None}, 30, None),
        ({}, {"timeout": 3, "ttl": 10}, 10, 3.0),
        ({"LEASEHOLD_TIMEOUT": "4s", "LEASEHOLD_TTL": 20}, {"timeout": 3, "ttl": 10}, 20, 4.0),
    ],
)
def test_the_configuration_counts_more_than_what_is_given_in_code(
    config: dict[str, Any], options: Any, ttl: float, timeout: float | None
) -> None:
    app = Flask("shop")
    app.config.update(config)
    store = ManualStore()
    mine = Locks(app, store, **options)
    with app.app_context():
        assert mine.client.lock("x").ttl == ttl
        assert mine.client._twin._timeout == timeout
        assert app.extensions["leasehold"] is mine.client


def test_the_store_of_the_configuration_counts_more_than_the_one_in_code() -> None:
    mine, urls = Locks(None, "memory://flask-code"), list[object]()
    for config in ({}, {"LEASEHOLD_URL": "memory://flask-configuration"}):
        app = Flask("shop")
        app.config.update(config)
        mine.init_app(app)
        with app.app_context():
            urls.append(mine.client.store)
    assert urls == ["memory://flask-code", "memory://flask-configuration"]


def test_none_is_a_timeout_and_not_the_usual_one() -> None:
    app, timeouts = Flask("shop"), list[float | None]()
    for options in ({"timeout": None}, {"timeout": 0}, {}):
        mine = Locks(app, ManualStore(), **options)
        with app.app_context():
            timeouts.append(mine.client._twin._timeout)
    assert timeouts == [None, 0.0, 5.0], "and an application that is set up again has its new client"


def test_a_lock_of_a_request_has_the_options_that_were_given(app: Flask) -> None:
    seen: list[Any] = []

    @app.post("/options")
    def view() -> str:
        lease = locks.acquire("x", timeout=0, ttl=7, reason="why")
        with Scene.store.connect(namespace="shop") as other:
            state = other.inspect("x")
            assert state is not None
            seen.append((lease.ttl, state.holdings[0].holder.reason))
            locks.client.on_event(lambda event: seen.append(event) if isinstance(event, events.TimedOut) else None)
            try:
                locks.acquire("x", timeout=0)
            except leasehold.AcquireTimeout as busy:
                seen.append(busy.name)
        return "done"

    assert app.test_client().post("/options").status_code == 200
    assert (seen[0], seen[2]) == ((7, "why"), "x")
    assert seen[1].at_once, "and not after the five seconds of a request"
    assert is_free("x")


def test_all_locks_of_a_request_are_free_when_its_response_comes_the_last_first(app: Flask) -> None:
    released: list[str] = []

    @app.post("/several")
    def view() -> str:
        locks.client.on_event(lambda event: released.append(event.name) if isinstance(event, events.Released) else None)
        for name in ("a", "b"):
            locks.acquire(name)
        return "done"

    assert app.test_client().post("/several").status_code == 200
    assert released == ["b", "a"]


@pytest.mark.parametrize(("status", "answered"), [(200, 503), (302, 503), (399, 503), (400, 400), (500, 500)])
def test_a_loss_is_told_unless_the_response_is_an_error_already(app: Flask, status: int, answered: int) -> None:
    @app.post("/status")
    def view() -> tuple[str, int]:
        Scene.store.lose(locks.acquire("x"))
        return "done", status

    assert app.test_client().post("/status").status_code == answered


def test_what_to_do_for_a_busy_lock_may_be_chosen(app: Flask) -> None:
    @app.post("/busy")
    @locks.locked("cart", timeout=0, on_busy=lambda busy: f"busy: {busy.name}", ttl=7)
    def view(lease: leasehold.Lease = leasehold.CURRENT) -> str:
        return f"{lease.ttl}"

    http = app.test_client()
    assert http.post("/busy").text == "7.0"
    with Scene.store.connect(namespace="shop") as other, other.lock("cart").hold():
        assert http.post("/busy").text == "busy: cart"
