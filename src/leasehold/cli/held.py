"""What a command runs under: one lease, or several that are taken together."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from leasehold import Lease, LeaseSet
    from leasehold.values import Loss

__all__ = ["Held", "environment_of", "names_as_json", "shown_names"]


class Held:
    """One face for a lease and for a set of leases; it is over as soon as one of them is."""

    def __init__(self, lease: Lease | LeaseSet) -> None:
        self._lease = lease
        several: Mapping[str, Lease] | None = getattr(lease, "leases", None)
        self.leases = {cast("Lease", lease).name: cast("Lease", lease)} if several is None else several
        self.fences = {name: each.fence for name, each in self.leases.items()}
        self.title = shown_names(list(self.leases))

    @property
    def loss(self) -> Loss | None:
        """Why the first lost lease is lost, or None."""
        return self._lease.loss

    @property
    def abandoned(self) -> bool | None:
        """Whether a previous holder left without releasing; None if no store knows."""
        known = [lease.abandoned for lease in self.leases.values() if lease.abandoned is not None]
        return any(known) if known else None

    def remaining(self) -> float:
        """Seconds for which all of it is surely ours."""
        return self._lease.remaining()

    def release(self) -> None:
        """Give everything back."""
        self._lease.release()


def shown_names(names: Sequence[str]) -> str:
    """The names as they stand in messages."""
    return ", ".join(map(repr, names))


def environment_of(fences: Mapping[str, int]) -> dict[str, str]:
    """What a command learns of its grants; several names have no common fence, so they come as a list."""
    if len(fences) == 1:
        ((name, fence),) = fences.items()
        return {"LEASEHOLD_NAME": name, "LEASEHOLD_FENCE": str(fence)}
    import json  # noqa: PLC0415 - only with several names

    return {"LEASEHOLD_FENCES": json.dumps(dict(fences))}


def names_as_json(names: Sequence[str]) -> str:
    """A JSON list of names."""
    (name, *others) = names
    if not others and name.isascii() and name.isprintable() and not set(name) & set('"\\'):
        return f'["{name}"]'  # the common case, without loading json
    import json  # noqa: PLC0415

    return json.dumps(list(names))
