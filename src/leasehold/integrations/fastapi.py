"""FastAPI: a lock as a dependency, named by the path.

    locks = Locks("redis://localhost")
    app = FastAPI(lifespan=locks.lifespan)
    locks.answer_errors(app)

    @app.post("/carts/{cart_id}/payment")
    async def pay(cart_id: int, lease: Annotated[AsyncLease, locks.held("cart:{cart_id}")]) -> Receipt:
        ...

The lock is given back when the function has returned and before the response is sent, so a lease that was lost
meanwhile is answered as such and never as a success.
"""

from __future__ import annotations

from collections.abc import AsyncIterator  # noqa: TC003 - FastAPI reads the annotations of a dependency
from inspect import signature
from string import Formatter
from typing import TYPE_CHECKING, Any, Unpack

from fastapi import Depends, routing
from fastapi.exceptions import RequestValidationError
from pydantic import TypeAdapter, ValidationError
from starlette.requests import HTTPConnection  # noqa: TC002 - the same
from starlette.routing import Mount

from leasehold import AsyncLease  # noqa: TC001 - the same
from leasehold.errors import ConfigurationError
from leasehold.integrations._options import ClientOptions  # noqa: TC001 - for Unpack
from leasehold.integrations.starlette import Locks as StarletteLocks

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from fastapi.dependencies.models import Dependant
    from starlette.applications import Starlette

    from leasehold._face.lock_spec import LockOptions, Timeout

__all__ = ["Locks"]

Reader = TypeAdapter[Any]

if "scope" not in signature(Depends).parameters:
    raise ImportError(
        "leasehold.integrations.fastapi needs FastAPI 0.121 or newer: with an older one a lock would end after the "
        "response was sent, and its loss could not be answered"
    )


class Locks(StarletteLocks):
    """The locks of one application, and a dependency that holds one of them."""

    def __init__(self, url_or_client: object = None, /, **options: Unpack[ClientOptions]) -> None:
        super().__init__(url_or_client, **options)
        self._templates: dict[object, _PathTemplate] = {}  # by the dependency that holds the lock

    def held(self, name: str | Callable[..., Any], *, timeout: Timeout = ..., **options: Unpack[LockOptions]) -> Any:
        """A dependency: the function runs under the lock, and gets the lease.

        `name` is a template of path parameters, as in `cart:{cart_id}`; when the application starts, it is checked
        against the path of every function that uses it. Values are read with the types that the function gives them,
        so that 7 and 007 are one cart. For any other name, it is a dependency of your own that returns the name.
        """
        if isinstance(name, str):
            return self._held_by_path(name, timeout, {"group": name, **options})
        lock_options: LockOptions = options

        async def held(name_of_lock: str = Depends(name)) -> AsyncIterator[AsyncLease]:
            async with self.client.lock(name_of_lock, **lock_options).hold(timeout) as lease:
                yield lease

        return Depends(held, scope="function")

    def _held_by_path(self, template: str, timeout: Timeout, options: LockOptions) -> Any:
        names = _PathTemplate(template)

        async def held(connection: HTTPConnection) -> AsyncIterator[AsyncLease]:
            async with self.client.lock(names.name(connection), **options).hold(timeout) as lease:
                yield lease

        self._templates[held] = names
        return Depends(held, scope="function")

    def _check(self, app: Starlette) -> None:
        for route, parents in _routes(app.routes, frozenset()):
            for dependant in _flat(route.dependant):
                names = self._templates.get(dependant.call)
                if names is not None:
                    names.check(route.path, parents | route.param_convertors.keys())


class _PathTemplate:
    """The name of a lock, made from the parameters of a path."""

    def __init__(self, template: str) -> None:
        self._template = template
        self._fields = _fields(template)
        self._readers: dict[Callable[..., Any], dict[str, Reader]] = {}  # by the function that uses the lock

    def check(self, path: str, known: Iterable[str]) -> None:
        """Refuse a template that the path cannot fill."""
        for field in self._fields:
            if field not in known:
                raise ConfigurationError(
                    f"held({self._template!r}) needs {field!r}, but {path} has no such parameter; it has "
                    f"{', '.join(sorted(known)) or 'none'}. For a name from elsewhere in the request, give held() a "
                    "dependency that returns the name"
                )

    def name(self, connection: HTTPConnection) -> str:
        """The name for one request."""
        route = connection.scope["route"]
        readers = self._readers.get(route.endpoint)
        if readers is None:
            readers = self._readers[route.endpoint] = _readers(route.dependant)
        found = connection.path_params
        self.check(route.path, found)  # a route that was added after the start
        return self._template.format_map({field: _read(readers, field, found[field]) for field in self._fields})


def _fields(template: str) -> tuple[str, ...]:
    """The parameters that a template names: names only, because a path has nothing but texts."""
    try:
        fields = [field for _, field, _, _ in Formatter().parse(template) if field is not None]
    except ValueError as error:
        raise ConfigurationError(f"the name template {template!r} cannot be read: {error}") from None
    for field in fields:
        if not field.isidentifier():
            raise ConfigurationError(f"the name template {template!r} may name path parameters only, not {field!r}")
    return tuple(fields)


def _routes(routes: Iterable[Any], parents: frozenset[str]) -> Iterator[tuple[Any, frozenset[str]]]:
    """Every route with dependencies, and the parameters of the paths that it is mounted under."""
    contexts = getattr(routing, "iter_route_contexts", iter)  # newer versions include routers late
    for route in contexts(list(routes)):
        if isinstance(getattr(route, "original_route", route), Mount):
            yield from _routes(route.routes or (), parents | route.param_convertors.keys())
        elif getattr(route, "dependant", None) is not None:
            yield route, parents


def _flat(dependant: Dependant) -> Iterator[Dependant]:
    yield dependant
    for inner in dependant.dependencies:
        yield from _flat(inner)


def _readers(dependant: Dependant) -> dict[str, Reader]:
    """How the function reads the parameters of its path."""
    fields = [field for part in _flat(dependant) for field in part.path_params]
    return {field.alias: TypeAdapter(field.field_info.annotation or Any) for field in reversed(fields)}


def _read(readers: dict[str, Reader], field: str, text: Any) -> Any:
    if field not in readers:
        return text
    try:
        return readers[field].validate_python(text)
    except ValidationError as error:
        wrong = [{**fault, "loc": ("path", field, *fault["loc"])} for fault in error.errors(include_url=False)]
        raise RequestValidationError(wrong) from None
