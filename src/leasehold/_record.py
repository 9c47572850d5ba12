"""Records: classes with fields, as the standard library's dataclasses, that cost next to nothing before they are used.

`dataclasses` writes and compiles about six methods for every class when its module is imported, and loads `inspect` for
it. That was half of the start of `leasehold run`, for sixty classes of which one run uses ten. Here a class gets its
`__init__` compiled when the first instance is made, and the other methods are not compiled at all. What others expect
of a dataclass holds: `dataclasses.fields`, `replace` and `asdict` work, a dataclass may be derived from a record, and
type checkers see a dataclass. See docs/adr/0090.

The subset: `init`, `frozen`, `slots`, `eq`, `unsafe_hash`, `field(default, default_factory, repr, kw_only)`,
inheritance, `ClassVar`, `__post_init__`. Annotations must be strings (`from __future__ import annotations`).
"""

from __future__ import annotations

from operator import attrgetter
from typing import TYPE_CHECKING, Any, TypeVar, dataclass_transform

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["field", "record", "replace"]

T = TypeVar("T")
_MISSING: Any = object()


class _Field:
    __slots__ = ("default", "factory", "kw_only", "name", "repr", "type")

    def __init__(self, default: Any, factory: Any, repr: bool, kw_only: bool) -> None:  # noqa: A002, FBT001 - their names
        self.name, self.type = "", ""
        self.default = default
        self.factory = factory
        self.repr = repr
        self.kw_only = kw_only


def field(
    *,
    default: Any = _MISSING,
    default_factory: Any = _MISSING,
    repr: bool = True,  # noqa: A002 - the name that type checkers know
    kw_only: bool = False,
) -> Any:
    """A field with a default that is made anew for each instance, that is not shown, or that is given by name only."""
    return _Field(default, default_factory, repr, kw_only)


@dataclass_transform(field_specifiers=(field,))
def record(
    *, init: bool = True, frozen: bool = False, slots: bool = False, eq: bool = True, unsafe_hash: bool = False
) -> Callable[[type[T]], type[T]]:
    """A class decorator, as `dataclasses.dataclass`; a method that the class has itself is kept."""

    def made(cls: type[T]) -> type[T]:
        own = _own_fields(cls)
        if slots:
            cls = _slotted(cls, own)
        fields = {
            name: each
            for ancestor in reversed(cls.__mro__[1:])
            for name, each in getattr(ancestor, "__record_fields__", {}).items()
        } | own
        cls.__record_fields__ = fields  # type: ignore[attr-defined]
        methods = {
            "__repr__": _repr,
            "__match_args__": tuple(each.name for each in fields.values() if not each.kw_only),
            "__dataclass_fields__": _DataclassFields(),
            "__dataclass_params__": _FROZEN if frozen else _LOOSE,
            **_comparing(tuple(fields), eq=eq, hashes=unsafe_hash or (eq and frozen)),
        }
        if init:
            methods["__init__"] = _init_on_first_use(cls, fields, frozen=frozen, slots=slots)
        if frozen:
            methods |= {"__setattr__": _refuse_to_set, "__delattr__": _refuse_to_delete}
        if frozen and slots:
            methods |= {"__getstate__": _state, "__setstate__": _set_state}
        for name, method in methods.items():
            if name not in cls.__dict__ or (name == "__hash__" and cls.__dict__[name] is None):
                setattr(cls, name, method)
        return cls

    return made


def replace(instance: T, /, **changes: Any) -> T:
    """Another instance with some of its fields changed."""
    fields: dict[str, _Field] = type(instance).__record_fields__  # type: ignore[attr-defined]
    return type(instance)(**({name: getattr(instance, name) for name in fields} | changes))


def _own_fields(cls: type) -> dict[str, _Field]:
    own = {}
    for name, annotation in cls.__annotations__.items():
        if annotation.startswith("ClassVar"):
            continue
        given = cls.__dict__.get(name, _MISSING)
        each = given if isinstance(given, _Field) else _Field(given, _MISSING, repr=True, kw_only=False)
        each.name, each.type = name, annotation
        own[name] = each
        if each.default is not _MISSING:
            setattr(cls, name, each.default)
        elif given is not _MISSING:
            delattr(cls, name)
    return own


def _slotted(cls: type[T], own: dict[str, _Field]) -> type[T]:
    """The class made again: slots cannot be added later."""
    body = {name: value for name, value in cls.__dict__.items() if name not in own and name not in _NOT_COPIED}
    made: Any = type(cls)
    again: type[T] = made(cls.__name__, cls.__bases__, {**body, "__slots__": tuple(own)})
    again.__qualname__ = cls.__qualname__
    return again


_NOT_COPIED = {"__dict__", "__weakref__"}


def _init_on_first_use(cls: type, fields: dict[str, _Field], *, frozen: bool, slots: bool) -> Callable[..., None]:
    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:  # noqa: N807 - it becomes the method
        init = _compiled_init(cls, fields, frozen=frozen, slots=slots)
        cls.__init__ = init  # type: ignore[misc]
        init(self, *args, **kwargs)

    return __init__


def _compiled_init(cls: type, fields: dict[str, _Field], *, frozen: bool, slots: bool) -> Callable[..., None]:
    known: dict[str, Any] = {"_missing": _MISSING}
    parameters: list[str] = []
    keywords: list[str] = []
    body: list[str] = []
    for name, each in fields.items():
        parameter, value = name, name
        if each.factory is not _MISSING:
            known[f"_make_{name}"] = each.factory
            parameter, value = f"{name}=_missing", f"_make_{name}() if {name} is _missing else {name}"
        elif each.default is not _MISSING:
            known[f"_default_{name}"] = each.default
            parameter = f"{name}=_default_{name}"
        (keywords if each.kw_only else parameters).append(parameter)
        if not frozen:
            body.append(f" self.{name} = {value}")
        elif slots:  # the slot itself can be set: what is refused is an assignment
            known[f"_set_{name}"] = getattr(cls, name).__set__
            body.append(f" _set_{name}(self, {value})")
        else:
            body.append(f" _set(self, {name!r}, {value})")
    if hasattr(cls, "__post_init__"):
        body.append(" self.__post_init__()")
    words = ", ".join(["self", *parameters, *(["*", *keywords] if keywords else [])])
    known["_set"] = object.__setattr__
    exec(f"def __init__({words}):\n" + ("\n".join(body) or " pass"), known)  # noqa: S102 - from names of our own classes
    init: Callable[..., None] = known["__init__"]
    init.__qualname__ = f"{cls.__qualname__}.__init__"
    return init


def _comparing(names: tuple[str, ...], *, eq: bool, hashes: bool) -> dict[str, Any]:
    if not eq:
        return {}
    values = attrgetter(*names) if names else lambda _: ()

    def __eq__(self: object, other: object) -> bool:  # noqa: N807
        return values(self) == values(other) if other.__class__ is self.__class__ else NotImplemented

    def __hash__(self: object) -> int:  # noqa: N807
        return hash(values(self))

    return {"__eq__": __eq__, "__hash__": __hash__ if hashes else None}


def _repr(self: Any) -> str:
    shown = (f"{each.name}={getattr(self, each.name)!r}" for each in self.__record_fields__.values() if each.repr)
    return f"{type(self).__qualname__}({', '.join(shown)})"


def _refuse_to_set(self: Any, name: str, value: Any) -> None:  # noqa: ARG001 - the shape of the method
    from dataclasses import FrozenInstanceError  # noqa: PLC0415 - only for mistakes

    raise FrozenInstanceError(f"cannot assign to field {name!r}")


def _refuse_to_delete(self: Any, name: str) -> None:  # noqa: ARG001
    from dataclasses import FrozenInstanceError  # noqa: PLC0415

    raise FrozenInstanceError(f"cannot delete field {name!r}")


def _state(self: Any) -> list[Any]:
    return [getattr(self, name) for name in self.__record_fields__]


def _set_state(self: Any, state: list[Any]) -> None:
    for name, value in zip(self.__record_fields__, state, strict=True):
        object.__setattr__(self, name, value)


class _Params:
    """What a dataclass asks of its base class: whether it is frozen."""

    def __init__(self, *, frozen: bool) -> None:
        self.frozen = frozen


_FROZEN, _LOOSE = _Params(frozen=True), _Params(frozen=False)


class _DataclassFields:
    """What makes `dataclasses.fields`, `replace` and `asdict` work; built when one of them asks."""

    def __get__(self, _: object, owner: type) -> dict[str, Any]:
        import dataclasses  # noqa: PLC0415 - the point of this module

        found = {}
        for name, each in owner.__record_fields__.items():  # type: ignore[attr-defined]
            given = {"default": each.default, "default_factory": each.factory}
            known = {word: value for word, value in given.items() if value is not _MISSING}
            made: Any = dataclasses.field(**known, repr=each.repr, kw_only=each.kw_only)
            made.name, made.type, made._field_type = name, each.type, dataclasses._FIELD  # type: ignore[attr-defined]  # noqa: SLF001
            found[name] = made
        return found
