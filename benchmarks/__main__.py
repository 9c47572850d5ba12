"""The command: `python -m benchmarks [SCENARIO…] [--rounds N] [--quick] [--json FILE] [--svg DIR]`."""

from __future__ import annotations

import argparse
import sys
import tempfile
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, TextIO, cast

from benchmarks.harness import Settings
from benchmarks.report import as_markdown, as_text, facts_of_this_machine, write_json, write_plots
from benchmarks.scenarios import SCENARIOS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from benchmarks.harness import Table

__all__ = ["main"]

RESULTS = Path("benchmarks/results")


class Bar:
    """A progress bar for a terminal; silent anywhere else."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._shown = stream.isatty()

    def step(self, title: str, done: int, total: int) -> None:
        if self._shown:
            filled = 30 * done // max(total, 1)
            self._write(f"[{'#' * filled}{'.' * (30 - filled)}] {title[:46]}")

    def clear(self) -> None:
        if self._shown:
            self._write("")

    def _write(self, text: str) -> None:
        self._stream.write(f"\r\x1b[K{text}")
        self._stream.flush()


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print, and write the files."""
    options = _parser().parse_args(arguments)
    bar = Bar(sys.stderr)
    results: dict[str, list[Table]] = {}
    sys.stdout.write(f"{facts_of_this_machine()}\n\n")
    for name in options.scenarios or SCENARIOS:
        results[name] = _run(name, options, bar)
    write_json(options.json, _command(options), results)
    write_plots(options.svg, results)
    sys.stdout.write(f"written: {options.json} and the plots in {options.svg}\n")
    return 0


def _command(options: argparse.Namespace) -> str:
    """What to type to measure the same again; where the files were put is no concern of those who read the figures."""
    rounds = [] if options.rounds is None else ["--rounds", str(options.rounds)]
    return " ".join(["python -m benchmarks", *options.scenarios, *rounds, *(["--quick"] if options.quick else [])])


def _run(name: str, options: argparse.Namespace, bar: Bar) -> list[Table]:
    module, _, store = SCENARIOS[name].partition(":")
    scenario = cast("Callable[..., Iterable[Table]]", import_module(module).run)
    tables = []
    render = as_markdown if options.markdown else as_text
    with tempfile.TemporaryDirectory(prefix="leasehold-bench-") as directory:
        rounds = options.rounds or (1 if options.quick else 5)
        settings = Settings(Path(directory), rounds, options.quick, bar)
        for table in scenario(settings, store) if store else scenario(settings):
            bar.clear()
            sys.stdout.write(render(table) + "\n")
            sys.stdout.flush()
            tables.append(table)
    return tables


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("python -m benchmarks", description="Ours, the peers and the floor in one run.")
    known = ", ".join(SCENARIOS)
    parser.add_argument("scenarios", nargs="*", type=_scenario, metavar="SCENARIO", help=f"which of: {known}; or all")
    parser.add_argument("--rounds", type=_count, metavar="N", help="how often each candidate has its turn (5)")
    parser.add_argument("--quick", action="store_true", help="only show that everything works; figures mean nothing")
    parser.add_argument("--markdown", action="store_true", help="print the tables for a document")
    parser.add_argument("--json", type=Path, default=RESULTS / "results.json", metavar="FILE", help="every figure")
    parser.add_argument("--svg", type=Path, default=RESULTS, metavar="DIR", help="one plot for each scenario")
    return parser


def _scenario(text: str) -> str:
    if text.lower() not in SCENARIOS:
        raise argparse.ArgumentTypeError(f"no scenario {text!r}; there are {', '.join(SCENARIOS)}")
    return text.lower()


def _count(text: str) -> int:
    if not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"not a number of rounds: {text!r}")
    return int(text)


if __name__ == "__main__":
    sys.exit(main())
