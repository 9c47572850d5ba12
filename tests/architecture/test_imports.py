"""The arrows between modules, read from their imports."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Sequence

SOURCE = Path(__file__).parents[2] / "src" / "leasehold"

# Who may know whom, by first part of the module path below `leasehold`; modules of `_face` each by its own name. The
# order is the order of the layers.
FOR_ALL = {"_record", "_lazy", "_log", "_words"}  # know nothing of leasehold
MAY_IMPORT = {
    **{name: set() for name in FOR_ALL},
    "_error_roots": set(),
    "errors": {"_error_roots", "_reservation_errors", "values"},
    "_reservation_errors": {"_error_roots"},
    "values": set(),
    "findings": set(),
    "store_url": {"errors"},
    "_durations": {"errors"},
    "_backoff": {"errors", "_durations", "_runtimes"},
    "name_template": {"errors"},
    "_fingerprint": {"errors"},
    "_fence_command": {"_core"},
    "_homes": set(),
    "spi": {"values", "errors", "_homes"},
    "kit": {"values", "errors", "spi", "findings", "store_url", "_durations", "kit"},
    "_core": {"values", "errors", "spi", "_durations", "_backoff", "_core"},
    "_runtimes": {"values", "errors", "spi", "_runtimes"},
    "_backends": {"values", "errors", "spi", "findings", "store_url", "kit", "_backends"},
    "_urls": {"values", "errors", "_durations", "spi", "store_url"},
    "events": {"_core", "operator_events", "_patterns"},
    "operator_events": {"_core"},
    "foreign_words": set(),
    "lock_words": {"foreign_words"},
    "hold": {"values", "errors", "_durations", "spi", "_core"},
    "lease": {"values", "errors", "_durations", "spi", "_core", "hold"},
    "lock_spec": {"values", "errors", "_durations", "_backoff", "spi", "_core", "foreign_words"},
    "lock": {
        "values", "errors", "_durations", "_backoff", "spi", "_core", "hold", "lease", "lock_spec", "lock_words",
        "client",
    },
    "held": {"_core"},
    "client": {
        "values", "errors", "_durations", "spi", "_core", "_runtimes", "name_template", "hold", "lease", "lock_spec",
        "lock", "_urls", "operators", "_patterns", "signals", "departure", "this_process",
        "_backoff",
    },
    "this_process": {"values", "_core"},
    "departure": {"values", "errors", "_core"},
    "signals": {"errors", "_durations", "_core", "_runtimes", "departure"},
    "operators": {
        "values", "errors", "_durations", "spi", "_core", "lock_spec", "operator_events", "client", "held", "_patterns",
    },
    "_patterns": {
        "values", "errors", "_durations", "spi", "_core", "name_template", "hold", "lease", "lock_spec", "lock",
        "operator_events", "client", "_patterns", "_fence_command",
    },
    "_blocking": {
        "values", "errors", "_durations", "spi", "_core", "_runtimes", "name_template", "hold", "lease", "lock_spec",
        "lock", "lock_words", "client", "_urls", "operators", "_blocking", "_patterns",
    },
    "fencing": {"_fence_command", "values", "errors", "spi", "lease", "_blocking", "_runtimes", "fencing"},
    "sql": {
        "values", "errors", "_durations", "_fingerprint", "spi", "lease", "_blocking", "_runtimes", "fencing", "sql",
        "_backoff", "_core",
    },
    "telemetry": {
        "values", "errors", "lock_spec", "events", "_core", "fencing", "client", "_blocking", "telemetry", "",
    },
    "fleet": {"values", "errors", "_blocking"},
    "_shown": set(),
    "web": {"values", "errors", "findings", "_shown", "_blocking", "sql", "fleet", "web", ""},
    "cli": {
        "values", "errors", "_durations", "_shown", "events", "findings", "_blocking", "sql", "cli", "fleet", "web", "",
    },
    "integrations": {
        "values", "errors", "_durations", "name_template", "store_url", "_patterns", "sql", "cli", "integrations", "",
    },
    "testing": {
        "values", "errors", "_durations", "spi", "_core", "_runtimes", "held", "hold", "lease", "lock_spec", "lock",
        "client", "_urls", "_blocking", "_backends", "store_url", "testing", "_backoff", "",
    },
    "__main__": {"cli"},
    "": {"foreign_words"},  # for a name that is not there; the others come when they are used
}  # fmt: skip

# One arrow more: decisions over several nodes are the core's, so that they can be searched and tested without a node.
# And one to the text of a store's tables, which their owner prints; one to the events of a pattern, which are public.
ALLOWED_TOO = {
    ("_backends/redlock", "leasehold._core.quorum"),
    ("sql", "leasehold._backends.mysql"),
    ("sql", "leasehold._backends.postgres.ddl"),
    (".", "leasehold._patterns.cache_events"),
}

# These four are friends, and so are the ports: `spi` and `lock` mention later layers only for the type checker.
NOT_IN_CORE = {"asyncio", "threading", "time", "random", "_thread", "concurrent", "multiprocessing", "selectors"}


def modules() -> list[Path]:
    return sorted(SOURCE.rglob("*.py"))


def layer_of(path: Path) -> str:
    return layer(path.relative_to(SOURCE).with_suffix("").parts)


def layer(parts: Sequence[str]) -> str:
    """The part of the package that a module belongs to, by the parts of its path below `leasehold`."""
    first = parts[0] if parts else ""
    if first == "_face" and len(parts) > 1:
        first = parts[1]
    return "" if first == "__init__" else first


def runtime_imports(path: Path) -> list[tuple[int, str]]:
    """Every module that is really imported: what stands under `if TYPE_CHECKING` does not count."""
    found: list[tuple[int, str]] = []

    def visit(node: ast.AST) -> None:
        if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
            return
        if isinstance(node, ast.Import):
            found.extend((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno}: imports are absolute"
            found.append((node.lineno, node.module or ""))
            if node.module == "leasehold":
                found.extend((node.lineno, f"leasehold.{alias.name}") for alias in node.names)
        for child in ast.iter_child_nodes(node):
            visit(child)

    visit(ast.parse(path.read_text()))
    return found


def wrong_arrows(path: Path) -> list[str]:
    allowed = MAY_IMPORT[layer_of(path)] | {layer_of(path)} | FOR_ALL
    wrong = []
    for line, module in runtime_imports(path):
        if module.split(".")[0] != "leasehold":
            continue
        target = layer(module.split(".")[1:])
        if target not in MAY_IMPORT:
            target = ""  # a public name of the package itself
        if target not in allowed and (str(path.parent.relative_to(SOURCE)), module) not in ALLOWED_TOO:
            wrong.append(f"{path.relative_to(SOURCE)}:{line} imports {module}")
    return wrong


def test_a_module_knows_only_the_layers_below_it() -> None:
    unknown = {layer_of(path) for path in modules()} - set(MAY_IMPORT)
    assert not unknown, "a new part of the package needs a line in the table of arrows"
    assert [wrong for path in modules() for wrong in wrong_arrows(path)] == []


@pytest.mark.parametrize("folder", ["_core", "_patterns"])
def test_the_core_takes_time_threads_and_chance_only_from_the_runtime(folder: str) -> None:
    wrong = [
        f"{path.name}:{line} imports {module}"
        for path in (SOURCE / folder).glob("*.py")
        for line, module in runtime_imports(path)
        if module.split(".")[0] in NOT_IN_CORE
    ]
    assert wrong == []


def test_wrong_arrows_are_found() -> None:
    """The test above can fail: the memory store would be wrong in the place of the core."""
    text = "import threading\nfrom leasehold._face.client import AsyncClient\n"
    path = SOURCE / "_core" / "imaginary.py"
    found = [module for _, module in _imports_of_text(text, path)]
    assert found == ["threading", "leasehold._face.client"]


def _imports_of_text(text: str, path: Path) -> list[tuple[int, str]]:
    return [
        (node.lineno, node.names[0].name if isinstance(node, ast.Import) else node.module or "")
        for node in ast.walk(ast.parse(text, str(path)))
        if isinstance(node, (ast.Import, ast.ImportFrom))
    ]


def loaded_by(code: str) -> set[str]:
    script = f"{code}\nimport sys; print(' '.join(sys.modules))"
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    return set(result.stdout.split())


def test_importing_the_package_loads_neither_asyncio_nor_a_store() -> None:
    loaded = loaded_by("import leasehold")
    assert "asyncio" not in loaded
    assert [name for name in loaded if name.startswith("leasehold.")] == ["leasehold._lazy"]


def test_a_blocking_program_never_loads_asyncio() -> None:
    code = "import leasehold\nwith leasehold.connect('memory://').lock('x').hold(): pass"
    loaded = loaded_by(code)
    assert "asyncio" not in loaded
    assert "leasehold._backends.memory" in loaded


def test_every_public_name_exists_and_is_sorted() -> None:
    import leasehold

    assert sorted(leasehold.__all__) == sorted(set(leasehold.__all__))
    for name in leasehold.__all__:
        assert getattr(leasehold, name) is not None
    with pytest.raises(AttributeError):
        _ = leasehold.nonsense  # type: ignore[attr-defined]


def test_a_program_that_guards_loads_no_queue() -> None:
    loaded = loaded_by("from leasehold.sql import guard")
    assert "leasehold.sql.guards.guard" in loaded
    assert not [name for name in loaded if name.startswith(("leasehold.sql.queue", "leasehold.sql.reservations"))]


def test_every_name_of_the_sql_ways_exists() -> None:
    import leasehold.sql

    assert sorted(leasehold.sql.__all__) == sorted(set(leasehold.sql.__all__))
    assert all(getattr(leasehold.sql, name) is not None for name in leasehold.sql.__all__)
