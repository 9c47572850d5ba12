"""`client.locked` for functions that are decorated before there is a client: at import, long before the settings."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from leasehold._face.name_template import NameTemplate

if TYPE_CHECKING:
    from collections.abc import Callable

    from leasehold import Client

__all__ = ["locked_by"]

P = ParamSpec("P")
R = TypeVar("R")


def locked_by(
    find_client: Callable[[], Client], template: str, **options: Any
) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """The decorator of `find_client().locked(template, **options)`, made at the first call.

    The template is checked against the function at once, so that a typing error shows at import all the same.
    """

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        NameTemplate(template, function)

        @functools.lru_cache(maxsize=4)  # a client per process, or a few in tests
        def decorated(client: Client) -> Callable[P, R]:
            return client.locked(template, **options)(function)

        @functools.wraps(function)
        def under_lock(*args: P.args, **kwargs: P.kwargs) -> R:
            return decorated(find_client())(*args, **kwargs)

        return under_lock

    return decorate
