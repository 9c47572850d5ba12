"""House rules that a syntax tree can show."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[2] / "src" / "leasehold"
MODULES = sorted(SOURCE.rglob("*.py"))
GUARDS = ("guard", "_mutex", "_opening", "_lock")


def names(path: Path) -> str:
    return str(path.relative_to(SOURCE))


def guarded_blocks(tree: ast.AST) -> list[ast.With]:
    return [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.With)
        and any(
            isinstance(item.context_expr, ast.Attribute) and item.context_expr.attr in GUARDS for item in node.items
        )
    ]


def inside(block: ast.With) -> list[ast.AST]:
    return [node for statement in block.body for node in ast.walk(statement)]


def awaits_in_guards(tree: ast.AST) -> list[int]:
    kinds = (ast.Await, ast.AsyncFor, ast.AsyncWith, ast.Yield, ast.YieldFrom)
    return [node.lineno for block in guarded_blocks(tree) for node in inside(block) if isinstance(node, kinds)]


def loops_in_guards(tree: ast.AST) -> list[int]:
    kinds = (ast.For, ast.While, ast.ListComp, ast.SetComp, ast.DictComp)
    return [node.lineno for block in guarded_blocks(tree) for node in inside(block) if isinstance(node, kinds)]


@pytest.mark.parametrize("path", MODULES, ids=names)
def test_nothing_awaits_inside_a_guard(path: Path) -> None:
    assert awaits_in_guards(ast.parse(path.read_text())) == []


@pytest.mark.parametrize("path", [path for path in MODULES if "testing" not in path.parts], ids=names)
def test_nothing_loops_inside_a_guard(path: Path) -> None:
    """A signal handler that raises at the jump of a loop would leave the guard taken, from Python 3.12 on.

    What only tests use is left out: they have no such handlers.
    """
    assert loops_in_guards(ast.parse(path.read_text())) == []


def test_the_two_rules_above_can_fail() -> None:
    tree = ast.parse("async def f(self):\n    with self.guard:\n        await x\n        for y in z: pass\n")
    assert awaits_in_guards(tree) == [3]
    assert loops_in_guards(tree) == [4]


@pytest.mark.parametrize("path", sorted((SOURCE / "_core").glob("*.py")), ids=names)
def test_the_core_has_no_async_generators(path: Path) -> None:
    for function in ast.walk(ast.parse(path.read_text())):
        if isinstance(function, ast.AsyncFunctionDef):
            yields = [node for node in ast.walk(function) if isinstance(node, (ast.Yield, ast.YieldFrom))]
            assert not yields, f"{function.name} is an async generator: its finalisation needs a loop"


@pytest.mark.parametrize("path", MODULES, ids=names)
def test_cleanup_that_awaits_lets_generator_exit_pass(path: Path) -> None:
    """`except BaseException: await ...` would await while the coroutine is being closed."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Try):
            assert _is_closed_safely(node), f"{names(path)}:{node.lineno}"


def _is_closed_safely(node: ast.Try) -> bool:
    seen_generator_exit = False
    for handler in node.handlers:
        caught = ast.unparse(handler.type) if handler.type is not None else "BaseException"
        seen_generator_exit = seen_generator_exit or "GeneratorExit" in caught
        awaits = any(isinstance(inner, ast.Await) for statement in handler.body for inner in ast.walk(statement))
        if "BaseException" in caught and awaits and not seen_generator_exit:
            return False
    return True


def functions(path: Path) -> list[ast.FunctionDef | ast.AsyncFunctionDef]:
    tree = ast.parse(path.read_text())
    return [node for node in ast.walk(tree) if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))]


@pytest.mark.parametrize("path", MODULES, ids=names)
def test_files_and_functions_are_short(path: Path) -> None:
    assert path.read_text().count("\n") <= 400, "split it by purpose"
    for function in functions(path):
        size = (function.end_lineno or function.lineno) - function.lineno + 1
        assert size <= 60, f"{function.name} has {size} lines"


@pytest.mark.parametrize("path", MODULES, ids=names)
def test_every_module_says_what_it_is(path: Path) -> None:
    assert ast.get_docstring(ast.parse(path.read_text()))


def test_the_core_stays_small() -> None:
    lines = sum(path.read_text().count("\n") for path in (SOURCE / "_core").glob("*.py"))
    assert lines <= 2_000
