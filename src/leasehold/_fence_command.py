"""The command that an operator runs when the fences of a name have to be raised, for messages."""

from __future__ import annotations

from leasehold._core.names import DEFAULT_NAMESPACE, name_of, namespace_of

__all__ = ["raise_command"]


def raise_command(key: str, fence: int, store: str) -> str:
    """Ready to be pasted into a shell; the URL lacks password and options, as all that is shown of a store."""
    import shlex  # noqa: PLC0415 - only for this mistake

    words = ["leasehold", "fence", "raise", name_of(key), str(fence), "--url", store]
    if (namespace := namespace_of(key)) != DEFAULT_NAMESPACE:
        words += ["--namespace", namespace]
    return f"{shlex.join(words)} --reason replaced"
