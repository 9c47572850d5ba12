"""`python -m verification.models`: search every instance, compare with what it must show, write down what was found."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING, Any

from verification.models.catalogue import INSTANCES, RESULTS, Instance
from verification.models.explorer import Result, explore

if TYPE_CHECKING:
    from collections.abc import Iterable


def main(arguments: list[str] | None = None) -> int:
    """0: every instance shows what it must. 1: one does not, or a search was not complete."""
    options = _parser().parse_args(arguments)
    chosen = [each for each in INSTANCES if options.only in each.id and (each.fast or not options.fast)]
    wrong = []
    found: list[tuple[Instance, Result[Any]]] = []
    for instance in chosen:
        result = explore(instance.model, instance.limits, _Progress(instance.id))
        found.append((instance, result))
        print(_line(instance, result), flush=True)
        if options.trace:
            for number, step in enumerate(result.trace, 1):
                print(f"    {number:2}. {step}")
        if not as_expected(instance, result):
            wrong.append(instance.id)
    if options.write:
        RESULTS.write_text(_as_toml(found))
    print(f"{len(chosen)} instances, {sum(result.states for _, result in found):,} states")
    for name in wrong:
        print(f"not as expected: {name}")
    return 1 if wrong or not chosen else 0


def as_expected(instance: Instance, result: Result[Any]) -> bool:
    """A sound instance must be searched completely; a broken one must be seen to break."""
    return result.sound if instance.holds else result.violation is not None


def _line(instance: Instance, result: Result[Any]) -> str:
    verdict = "holds" if result.sound else "not complete"
    if result.violation is not None:
        verdict = f"breaks in {len(result.trace)} steps: {result.violation}"
    return f"{instance.id:28} {result.states:>10,} states, depth {result.depth:>3}, {result.seconds:6.1f} s  {verdict}"


def _as_toml(found: Iterable[tuple[Instance, Result[Any]]]) -> str:
    lines = ["# Written by `python -m verification.models --write`; the tests compare the fast part with it.", ""]
    for instance, result in found:
        lines += [f"[{instance.id}]", f"states = {result.states}", f"depth = {result.depth}"]
        lines += [f"steps = {len(result.trace)}"] if result.violation is not None else []
        lines += [""]
    return "\n".join(lines)


class _Progress:
    """Shows how far a long search is, on stderr."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __call__(self, states: int, depth: int) -> None:
        end = "\r" if sys.stderr.isatty() else "\n"
        print(f"  {self._name}: {states:,} states, depth {depth}", file=sys.stderr, end=end, flush=True)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m verification.models", description=__doc__)
    parser.add_argument("--fast", action="store_true", help="only the part that runs with the tests")
    parser.add_argument("--only", default="", help="only instances whose name contains this text")
    parser.add_argument("--trace", action="store_true", help="print the way to each violation")
    parser.add_argument("--write", action="store_true", help="write results.toml (of all that was searched)")
    return parser


if __name__ == "__main__":
    sys.exit(main())
