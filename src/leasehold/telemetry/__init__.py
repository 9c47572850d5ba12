"""Metrics and traces of locks, switched on with one line for each client; nothing is loaded while they are off.

    from leasehold import telemetry

    telemetry.prometheus(client)       # into prometheus_client's registry; needs leasehold[prometheus]
    telemetry.opentelemetry(client)    # metrics and spans of the OpenTelemetry API; needs leasehold[otel]

Both take a client of either face, and return a function that switches them off again. The label of a lock is its
`group`, never its name; name and fence are in spans only.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, cast

from leasehold.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from leasehold._blocking import Client
    from leasehold._face.client import AsyncClient

__all__ = ["opentelemetry", "prometheus"]

MOST_GROUPS = 100


def prometheus(
    client: Client | AsyncClient, *, registry: Any = None, groups: Iterable[str] = (), max_groups: int = MOST_GROUPS
) -> Callable[[], None]:
    """Count what happens to this client's locks in metrics of `prometheus_client`; the result ends that.

    `registry`: the default one, unless another is given. Several clients share the metrics of a registry. `groups`
    are known from the start, so that their panels show 0 before the first lock; beyond `max_groups` different ones,
    further groups are counted together as `other`. A client that is in this registry already is refused.
    """
    return _switch_on("prometheus", client, groups, max_groups, registry=registry)


def opentelemetry(
    client: Client | AsyncClient,
    *,
    meter_provider: Any = None,
    tracer_provider: Any = None,
    spans: bool = True,
    groups: Iterable[str] = (),
    max_groups: int = MOST_GROUPS,
) -> Callable[[], None]:
    """Report what happens to this client's locks to OpenTelemetry; the result ends that.

    Each acquire is a span and each hold is one, below the span that is current where the lock is taken; with
    `spans=False` there are metrics only. Without providers, those are used that the program has set up globally.
    `groups` and `max_groups` are those of `prometheus`. A client that is reported there already is refused.
    """
    return _switch_on(
        "opentelemetry",
        client,
        groups,
        max_groups,
        meter_provider=meter_provider,
        tracer_provider=tracer_provider,
        spans=spans,
    )


def _switch_on(
    kind: str, client: Client | AsyncClient, groups: Iterable[str], max_groups: int, **options: Any
) -> Callable[[], None]:
    """Load the module of this kind and connect it to the client's events."""
    from leasehold.telemetry.recorder import switch_on  # noqa: PLC0415 - loaded only when it is used

    twin = cast("AsyncClient", getattr(client, "_twin", client))
    if not hasattr(twin, "_events"):
        raise ConfigurationError(f"telemetry needs a client of connect() or connect_async(), not {client!r}")
    try:
        sinks = import_module(f"leasehold.telemetry.{kind}_sink")
    except ImportError as error:
        extra = "otel" if kind == "opentelemetry" else kind
        raise ConfigurationError(f"{error.name} is not installed; run: pip install 'leasehold[{extra}]'") from error
    return switch_on(twin, sinks.find(**options), groups, max_groups)
