"""One grammar for the options of a store's URL: a store lists its options once, and all else follows from the list.

The list says of each option what it takes, its default and what it means. From it come the reading of a URL, the
sentence that refuses a bad value or an unknown name, and the table in the reference. The same idea has the same name in
every store; the options that many stores share (`FENCE_FLOOR`, `TLS_OPTIONS`) are defined here.

    ANSWER_TIMEOUT = duration("answer_timeout", 5.0, "how long one answer of the server may take")
    OPTIONS = (ANSWER_TIMEOUT, FENCE_FLOOR)

    values = read_options(url.options, OPTIONS, f"{url.scheme}:")
    timeout = values[ANSWER_TIMEOUT]
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, TypeVar

from leasehold._durations import seconds
from leasehold._record import record
from leasehold.errors import ConfigurationError
from leasehold.values import MAX_FENCE

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

__all__ = [
    "FENCE_FLOOR",
    "TLS_OPTIONS",
    "Option",
    "TLSFiles",
    "Values",
    "choice",
    "duration",
    "flag",
    "read_options",
    "read_tls",
    "text",
    "whole",
]

T = TypeVar("T")

_FLAGS = {"1": True, "true": True, "yes": True, "on": True, "0": False, "false": False, "no": False, "off": False}


@record(frozen=True, slots=True)
class Option(Generic[T]):
    """One option: `takes` and `meaning` are words for the reference, `read` makes a value of a text or refuses it."""

    name: str
    default: T
    takes: str
    meaning: str
    read: Callable[[str], T]


class Values:
    """The values of one URL, by option; an option that was not given has its default."""

    def __init__(self, values: Mapping[str, Any]) -> None:
        self._values = values

    def __getitem__(self, option: Option[T]) -> T:
        value: T = self._values.get(option.name, option.default)
        return value

    def __contains__(self, option: Option[Any]) -> bool:
        """Whether it was given."""
        return option.name in self._values


def read_options(
    given: Mapping[str, str], options: Sequence[Option[Any]], owner: str, renamed: Mapping[str, str] | None = None
) -> Values:
    """Read all options that were given, or raise a `ConfigurationError` that names the first bad one.

    `owner` is the subject of that sentence, such as `etcd:`. `renamed` maps a name that once was valid, or is known
    from another library, to the option that took its place.
    """
    by_name = {option.name: option for option in options}
    for name in given:
        if name not in by_name:
            raise ConfigurationError(_unknown(name, owner, by_name, renamed or {}))
    return Values({name: by_name[name].read(value) for name, value in given.items()})


def _unknown(name: str, owner: str, known: Mapping[str, object], renamed: Mapping[str, str]) -> str:
    if name in renamed:
        return f"{owner} has no option {name!r}; it is called {renamed[name]} here"
    if not known:
        return f"{owner} has no option {name!r}; it takes none"
    from difflib import get_close_matches  # noqa: PLC0415 - only for mistakes

    near = get_close_matches(name, known, 1)
    hint = f"did you mean {near[0]}? " if near else ""
    return f"{owner} has no option {name!r}; {hint}it takes {', '.join(sorted(known))}"


# --- kinds of options ------------------------------------------------------------------------------------------------


def duration(name: str, default: float, meaning: str, *, least: float = 0.01, most: float = 3600.0) -> Option[float]:
    """A time: `2s`, `500ms`, `1m30s`, or a number of seconds."""

    def read(value: str) -> float:
        number = seconds(_bare_number(value), name)
        if not least <= number <= most:
            raise ConfigurationError(f"{name} must be from {least:g} s to {most:g} s, not {value!r}")
        return number

    return Option(name, default, "a duration: `2s`, `500ms`, or seconds", meaning, read)


def _bare_number(value: str) -> str | float:
    """The number of seconds, if it is nothing but that; other texts are for `seconds` to read or refuse."""
    return float(value) if value.isascii() and value.replace(".", "", 1).isdigit() else value


def flag(name: str, meaning: str, *, default: bool = False) -> Option[bool]:
    """A switch: `yes` or `no`."""

    def read(value: str) -> bool:
        if value.lower() not in _FLAGS:
            raise ConfigurationError(f"{name} must be yes or no, not {value!r}")
        return _FLAGS[value.lower()]

    return Option(name, default, "`yes` or `no`", meaning, read)


def whole(name: str, default: int, meaning: str, *, least: int = 0, most: int) -> Option[int]:
    """A whole number."""

    def read(value: str) -> int:
        if value.isascii() and value.isdigit() and least <= int(value) <= most:
            return int(value)
        raise ConfigurationError(f"{name} must be a whole number from {least} to {most}, not {value!r}")

    return Option(name, default, f"a whole number, at least {least}", meaning, read)


def choice(name: str, choices: Sequence[str], meaning: str) -> Option[str]:
    """One of a few words; the first is the default."""

    def read(value: str) -> str:
        if value not in choices:
            raise ConfigurationError(f"{name} must be one of {', '.join(choices)}, not {value!r}")
        return value

    return Option(name, choices[0], ", ".join(f"`{word}`" for word in choices), meaning, read)


def text(name: str, meaning: str, *, takes: str, check: Callable[[str], str] | None = None) -> Option[str | None]:
    """Any text that is not empty; `check` returns it, or raises a `ConfigurationError`."""

    def read(value: str) -> str:
        if not value:
            raise ConfigurationError(f"{name} is empty; it takes {takes}")
        return value if check is None else check(value)

    return Option(name, None, takes, meaning, read)


FENCE_FLOOR = whole(
    "fence_floor", 0, "fences start above this number: for a store that was set up anew", most=MAX_FENCE - 2**40
)


# --- TLS -------------------------------------------------------------------------------------------------------------

TLS_CA = text("tls_ca", "the certificates of the authorities to trust; the system's if not given", takes="a PEM file")
TLS_CERT = text("tls_cert", "our own certificate, for servers that ask for one", takes="a PEM file")
TLS_KEY = text("tls_key", "the key of our own certificate", takes="a PEM file")
TLS_KEY_PASSWORD = text("tls_key_password", "the password of that key", takes="a text")
TLS_VERIFY = flag("tls_verify", "whether the server's certificate and name are checked", default=True)
TLS_OPTIONS: tuple[Option[Any], ...] = (TLS_CA, TLS_CERT, TLS_KEY, TLS_KEY_PASSWORD, TLS_VERIFY)


@record(frozen=True, slots=True)
class TLSFiles:
    """What `TLS_OPTIONS` say."""

    ca: str | None = None
    cert: str | None = None
    key: str | None = None
    key_password: str | None = None
    verify: bool = True


def read_tls(values: Values, *, used: bool, secure_url: str) -> TLSFiles | None:
    """The TLS settings, None without TLS; `secure_url` tells how a URL asks for it, such as `write etcds://`."""
    given = [option.name for option in TLS_OPTIONS if option in values]
    if not used:
        if given:
            raise ConfigurationError(f"{given[0]} has no meaning without TLS; {secure_url}")
        return None
    if (values[TLS_CERT] is None) != (values[TLS_KEY] is None):
        raise ConfigurationError(
            "a client certificate needs its key, and a key its certificate: ?tls_cert=FILE&tls_key=FILE"
        )
    return TLSFiles(values[TLS_CA], values[TLS_CERT], values[TLS_KEY], values[TLS_KEY_PASSWORD], values[TLS_VERIFY])
