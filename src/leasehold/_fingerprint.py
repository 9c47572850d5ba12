"""The fingerprint of a payload: what tells a request that is repeated from another one under the same key."""

from __future__ import annotations

import json
from hashlib import sha256

from leasehold.errors import ConfigurationError

__all__ = ["fingerprint_of"]


def fingerprint_of(value: object) -> str:
    """The SHA-256 of bytes as they are, of text as UTF-8, and of anything else as JSON, whatever the order of its keys.

    The payload itself is not kept anywhere. Two values that are written alike in JSON have the same fingerprint.
    """
    return sha256(_bytes_of(value)).hexdigest()


def _bytes_of(value: object) -> bytes:
    if isinstance(value, (bytes, bytearray, memoryview)):
        return bytes(value)
    if isinstance(value, str):
        return value.encode(errors="surrogatepass")
    try:
        return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False).encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise ConfigurationError(
            f"a fingerprint is made of bytes, text or what JSON can write, and this {type(value).__name__} is none of "
            f"them ({error}): pass the bytes of the request, or the fields that count"
        ) from error
