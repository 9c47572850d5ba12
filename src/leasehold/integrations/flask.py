"""Flask: an extension with one client per application, locks that end with the request, and answers to their errors.

locks = Locks()

def create_app():
    app = Flask(__name__)
    app.config["LEASEHOLD_URL"] = "redis://localhost"
    locks.init_app(app)
    return app

@shop.post("/carts/<int:cart_id>/payment")
@locks.locked("cart:{cart_id}")
def pay(cart_id):
    ...
"""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar, Unpack, cast

from flask import Response, current_app, g, has_request_context

from leasehold import Client, connect
from leasehold.errors import ConfigurationError, LeaseLost
from leasehold.integrations._deferred import locked_by
from leasehold.integrations._options import WEB_TIMEOUT, ClientOptions, read_options
from leasehold.integrations._refusals import ANSWERED, answer_to

if TYPE_CHECKING:
    from collections.abc import Callable

    from flask import Flask

    from leasehold import Lease
    from leasehold._face.lock_spec import LockOptions, OnBusy, Timeout

__all__ = ["Locks"]

EXTENSION = "leasehold"
ERROR = 400

P = ParamSpec("P")
R = TypeVar("R")


class Locks:
    """The extension. `url` and the options of `connect` are what `LEASEHOLD_URL`, `LEASEHOLD_TTL`, ... do not say.

    Unless `timeout` says otherwise, a request waits 5 seconds for a lock and is then refused.
    """

    def __init__(self, app: Flask | None = None, url: object = None, **options: Unpack[ClientOptions]) -> None:
        self._url = url
        self._options: ClientOptions = {"timeout": WEB_TIMEOUT, **options}
        if app is not None:
            self.init_app(app)

    def init_app(self, app: Flask) -> None:
        """Make the client of an application, without I/O; answer errors of locks; give leases back with the request."""
        found = app.config.get_namespace("LEASEHOLD_")
        url, options = read_options(found, "the configuration LEASEHOLD_*")
        merged: ClientOptions = {**self._options, **options}
        client = connect(self._url if url is None else url, **merged)
        app.extensions[EXTENSION] = client
        for kind in ANSWERED:
            app.register_error_handler(kind, _answer)
        app.after_request(_end_locks)
        app.teardown_request(_drop_locks)

    @property
    def client(self) -> Client:
        """The client of the current application; one in each process, also after a fork."""
        client = current_app.extensions.get(EXTENSION)
        if client is None:
            raise ConfigurationError(f"{current_app.name} has no locks: call locks.init_app(app) where it is made")
        return cast("Client", client)

    def locked(
        self,
        template: str,
        *,
        timeout: Timeout = ...,
        on_busy: OnBusy = None,
        **options: Unpack[LockOptions],
    ) -> Callable[[Callable[P, R]], Callable[P, R]]:
        """`client.locked` for views: each call runs under the lock that its arguments name, as in `cart:{cart_id}`.

        Put it below the route. It is checked at import against the parameters of the view.
        """
        return locked_by(lambda: self.client, template, timeout=timeout, on_busy=on_busy, **options)

    def acquire(self, name: str, *, timeout: Timeout = ..., **options: Unpack[LockOptions]) -> Lease:
        """Take a lock until the end of the request, whatever comes: it is given back before the response is sent.

        If it was lost by then, the response is 503, unless it is an error already.
        """
        if not has_request_context():
            raise ConfigurationError(
                "there is no request whose end could free the lock: use locks.client.lock().hold()"
            )
        if "leasehold" not in g:
            g.leasehold = ExitStack()
        stack: ExitStack = g.leasehold
        return stack.enter_context(self.client.lock(name, **options).hold(timeout))


def _answer(error: Exception) -> Response:
    answer = answer_to(error)
    if answer is None:
        raise error
    headers = [(name.decode("latin-1"), value.decode("latin-1")) for name, value in answer.headers]
    return Response(answer.body, answer.status, headers)


def _end_locks(response: Response) -> Response:
    """Before the response is sent."""
    try:
        _drop_locks()
    except LeaseLost as lost:
        return response if response.status_code >= ERROR else _answer(lost)
    return response


def _drop_locks(_: Any = None) -> None:
    """Also after a failure that made no response."""
    stack: ExitStack | None = g.pop("leasehold", None)
    if stack is not None:
        stack.close()
