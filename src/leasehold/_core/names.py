"""Names (as the user writes them) and keys (as the store keeps them).

A name is any non-empty text of at most 512 bytes of UTF-8, compared byte by byte: no normalisation, no case folding, no
trimming, so two names that differ in any way are two locks. A key is the namespace and the name joined so that no two
pairs give the same key. What else a store needs (hash tags, path separators, hashing) is that store's business.
"""

from __future__ import annotations

from leasehold.errors import ConfigurationError

__all__ = ["DEFAULT_NAMESPACE", "check_fact", "check_name", "check_namespace", "key_for", "name_of", "namespace_of"]

MAX_NAME_BYTES = 512
MAX_FACT_CHARACTERS = 256
DEFAULT_NAMESPACE = "leasehold"


def check_name(name: object) -> str:
    """Return a usable name, or refuse it with the reason."""
    return _check_text(name, "a lock name")


def check_namespace(namespace: object) -> str:
    """Return a usable namespace, or refuse it with the reason."""
    return _check_text(namespace, "a namespace")


def check_fact(value: object, what: str) -> str | None:
    """Return a label or reason short enough to be stored with every grant."""
    if value is None:
        return None
    if not isinstance(value, str):
        raise ConfigurationError(f"{what} must be text, not {type(value).__name__}")
    if len(value) > MAX_FACT_CHARACTERS:
        raise ConfigurationError(
            f"{what} has {len(value)} characters; at most {MAX_FACT_CHARACTERS} are kept with a lock"
        )
    _encoded(value, what)
    return value


def key_for(namespace: str, name: str) -> str:
    """Join namespace and name. Only the first colon separates, and no escaped namespace contains one."""
    return f"{namespace.replace('%', '%25').replace(':', '%3A')}:{name}"


def name_of(key: str) -> str:
    """Take the name back out of a key."""
    return key.partition(":")[2]


def namespace_of(key: str) -> str:
    """Take the namespace back out of a key."""
    return key.partition(":")[0].replace("%3A", ":").replace("%25", "%")


def _check_text(value: object, what: str) -> str:
    if not isinstance(value, str):
        raise ConfigurationError(f"{what} must be text, not {type(value).__name__}")
    if not value:
        raise ConfigurationError(f"{what} must not be empty")
    size = len(_encoded(value, what))
    if size > MAX_NAME_BYTES:
        raise ConfigurationError(f"{what} has {size} bytes of UTF-8; at most {MAX_NAME_BYTES} are allowed")
    return value


def _encoded(value: str, what: str) -> bytes:
    try:
        return value.encode()
    except UnicodeEncodeError:
        raise ConfigurationError(
            f"{what} contains a lone surrogate, or a stray byte of a command line, which UTF-8 cannot store"
        ) from None
