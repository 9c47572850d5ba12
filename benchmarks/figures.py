"""How figures are written, in tables and in plots."""

from __future__ import annotations

__all__ = ["number", "times"]


def times(ratio: float | None) -> str:
    """How many times the floor."""
    return "" if ratio is None else f"{number(ratio)} x" if ratio >= 10 or ratio < 0.1 else f"{ratio:.2f} x"


def number(value: float | None) -> str:
    """Three digits, or whole thousands."""
    if value is None:
        return ""
    return f"{value:,.0f}" if value >= 999.5 else f"{value:.3g}"
