"""Lock names made from a function's arguments: `order:{order_id}`.

A template is checked against the function's signature when the decorator is applied, so that a typing error shows at
import and not at the first call.
"""

from __future__ import annotations

from string import Formatter
from typing import TYPE_CHECKING, Any

from leasehold._lazy import lazy
from leasehold.errors import ConfigurationError

if TYPE_CHECKING:
    import inspect
    from collections.abc import Callable, Container, Mapping, Sequence
else:
    inspect = lazy("inspect")

__all__ = ["CURRENT", "NameTemplate", "check_template"]


class _Current:
    """Stands for the lease of a call that is not there yet."""

    def __getattr__(self, name: str) -> Any:
        raise TypeError(
            f"leasehold.CURRENT has no {name}: it is the default of a parameter called `lease`, and the function was "
            "called without the decorator that puts the lease there"
        )

    def __repr__(self) -> str:
        return "leasehold.CURRENT"


CURRENT: Any = _Current()
"""The default of a parameter called `lease` in a function that `client.locked` or `client.once` decorates."""


def check_template(template: object, decorator: str) -> None:
    """Refuse a decorator that was written without its parentheses."""
    if not isinstance(template, str):
        raise ConfigurationError(f'{decorator} needs a name: write @client.{decorator}("order:{{order_id}}", ...)')


class _Fields(Formatter):
    """`str.format` that reaches public attributes and items only, and makes a name of None where it may be None."""

    def __init__(self, may_be_none: Container[str]) -> None:
        self._may_be_none = may_be_none

    def get_field(self, field_name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        if "._" in field_name:
            raise ConfigurationError(f"the name template may not reach the private attribute in {field_name!r}")
        found = super().get_field(field_name, args, kwargs)
        if found[0] is None and found[1] not in self._may_be_none:
            raise ConfigurationError(
                f"{field_name} is None in this call, and the name is made from it; give the parameter a default of "
                "None if that is what you mean"
            )
        return found


class NameTemplate:
    """A template bound to one function. A field must not be None, unless its parameter has that as its default."""

    def __init__(self, template: str, function: Callable[..., Any]) -> None:
        if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
            raise ConfigurationError(
                f"{function.__qualname__} is a generator: it would run after the lock is gone; take the lock inside it"
            )
        self._template = template
        self._signature = inspect.signature(function)
        parameters = self._signature.parameters.values()
        self._formatter = _Fields({each.name for each in parameters if each.default is None})
        known = set(self._signature.parameters)
        self._takes_lease = "lease" in known
        for field in self._fields():
            if field not in known:
                raise ConfigurationError(
                    f"the name template {template!r} uses {field!r}, but {function.__qualname__} takes "
                    f"{', '.join(sorted(known)) or 'no arguments'}"
                )

    def name(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
        """The name for one call."""
        bound = self._signature.bind_partial(*args, **kwargs)
        bound.apply_defaults()
        return self._formatter.vformat(self._template, (), bound.arguments)

    def with_lease(self, args: tuple[Any, ...], kwargs: dict[str, Any], lease: object) -> dict[str, Any]:
        """The keyword arguments, with the lease for a function that has a parameter for it and was not given one."""
        if self._takes_lease and "lease" not in self._signature.bind_partial(*args, **kwargs).arguments:
            return {**kwargs, "lease": lease}
        return kwargs

    def _fields(self) -> list[str]:
        try:
            parts = list(self._formatter.parse(self._template))
        except ValueError as error:
            raise ConfigurationError(f"the name template {self._template!r} cannot be read: {error}") from None
        fields = [field for _, field, _, _ in parts if field is not None]
        return [field.partition(".")[0].partition("[")[0] for field in fields]
