"""A Prometheus server of our own, and promtool. They know nothing about locks."""

from __future__ import annotations

import json
import subprocess
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode
from urllib.request import urlopen

from verification.lab.process import ServerProcess, find_program

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

__all__ = ["PrometheusServer", "promtool"]

ASK_LIMIT = 10.0
PACKAGE = "prometheus"


def promtool(*words: str | Path) -> str:
    """Run promtool; its output, or an error that has it."""
    done = subprocess.run(
        [find_program("promtool", PACKAGE), *map(str, words)], capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise RuntimeError(f"promtool {words[0]} failed: {done.stdout}{done.stderr}")
    return done.stdout


class PrometheusServer(ServerProcess):
    """One server that scrapes `targets`, by job, every `interval` seconds; `rules` are files of rules."""

    def __init__(
        self, targets: Mapping[str, Sequence[str]], *, rules: Sequence[Path] = (), interval: float = 1.0
    ) -> None:
        super().__init__("prometheus")
        self._targets = targets
        self._rules = rules
        self._interval = f"{interval * 1000:.0f}ms"

    @property
    def url(self) -> str:
        """Where it answers."""
        return f"http://127.0.0.1:{self.port}"

    def command(self) -> Sequence[str]:
        """See `ServerProcess`."""
        config = {
            "global": {"scrape_interval": self._interval, "evaluation_interval": self._interval},
            "rule_files": [str(path) for path in self._rules],
            "scrape_configs": [
                {"job_name": job, "static_configs": [{"targets": list(targets)}]}
                for job, targets in self._targets.items()
            ],
        }
        (self.folder / "prometheus.yml").write_text(json.dumps(config))  # JSON is YAML
        return [
            find_program("prometheus", PACKAGE),
            f"--config.file={self.folder}/prometheus.yml",
            f"--storage.tsdb.path={self.folder}/data",
            f"--web.listen-address=127.0.0.1:{self.port}",
            "--log.level=warn",
        ]

    def is_ready(self) -> bool:
        """It has read its files."""
        with urlopen(f"{self.url}/-/ready", timeout=ASK_LIMIT) as answer:
            return bool(answer.status == 200)

    def query(self, expression: str) -> dict[tuple[tuple[str, str], ...], float]:
        """The present value of an expression: by labels, without the name of the metric."""
        found = self._ask("query", query=expression)["result"]
        return {
            tuple(sorted((key, value) for key, value in series["metric"].items() if key != "__name__")): float(
                series["value"][1]
            )
            for series in found
        }

    def value(self, expression: str) -> float | None:
        """The one value of an expression; None if there is none."""
        found = self.query(expression)
        return next(iter(found.values())) if len(found) == 1 else None

    def firing(self) -> set[str]:
        """The names of the alerts that fire."""
        return {alert["labels"]["alertname"] for alert in self._ask("alerts")["alerts"] if alert["state"] == "firing"}

    def _ask(self, what: str, **words: str) -> dict[str, Any]:
        with urlopen(f"{self.url}/api/v1/{what}?{urlencode(words)}", timeout=ASK_LIMIT) as answer:
            data: dict[str, Any] = json.load(answer)["data"]
        return data
