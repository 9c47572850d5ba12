"""House rules that a syntax tree can show."""

from __future__ import annotations

import ast
import re
from functools import cache
from itertools import pairwise
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[2] / "src" / "leasehold"
MODULES = sorted(SOURCE.rglob("*.py"))
MAKERS = {"guard", "Lock", "RLock", "allocate_lock", "Condition"}  # `runtime.guard()` and the locks behind it
GUARD_TYPES = ("AbstractContextManager", "LockType", "RLock")
NOT_GUARDS = {
    "lease",
    "_client",
    "bank",
    "connection",
    "transaction",
    "_calls",
    "CALLS",
}  # other context managers, and counters of calls


def names(path: Path) -> str:
    return str(path.relative_to(SOURCE))


def last_name(node: ast.AST) -> str | None:
    """`guard` of `self._session.keeper.guard`; None for a call, which makes a context manager of its own."""
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else None


def is_made_here(value: ast.AST | None) -> bool:
    return isinstance(value, ast.Call) and last_name(value.func) in MAKERS


def handed_in(function: ast.FunctionDef | ast.AsyncFunctionDef) -> set[str]:
    """The parameters that are guards by their annotation."""
    arguments = function.args
    everyone = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
    return {
        argument.arg
        for argument in everyone
        if argument.annotation is not None and any(kind in ast.unparse(argument.annotation) for kind in GUARD_TYPES)
    }


def guard_names(tree: ast.AST) -> set[str]:
    """Every name that is given to a guard: where it is made, and where it is kept after it was handed in."""
    found: set[str] = set()
    parameters: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            parameters |= handed_in(node)
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign):
            targets = node.targets
        elif isinstance(node, ast.AnnAssign):
            targets = [node.target]
        else:
            continue
        kept = isinstance(node.value, ast.Name) and node.value.id in parameters
        if is_made_here(node.value) or kept:
            found |= {name for target in targets if (name := last_name(target)) is not None}
    return found | parameters


@cache  # read by the one process that runs this file, not by every one that collects it
def trees() -> dict[Path, ast.Module]:
    return {path: ast.parse(path.read_text()) for path in MODULES}


@cache
def guards() -> set[str]:
    return set().union(*map(guard_names, trees().values()))


def bare_names(block: ast.With) -> set[str]:
    return {name for item in block.items if (name := last_name(item.context_expr)) is not None}


def guarded_blocks(tree: ast.AST) -> list[ast.With]:
    withs = [node for node in ast.walk(tree) if isinstance(node, ast.With)]
    return [
        block
        for block in withs
        if bare_names(block) & guards() or any(is_made_here(item.context_expr) for item in block.items)
    ]


def inside(block: ast.With) -> list[ast.AST]:
    return [node for statement in block.body for node in ast.walk(statement)]


def awaits_in_guards(tree: ast.AST) -> list[int]:
    kinds = (ast.Await, ast.AsyncFor, ast.AsyncWith, ast.Yield, ast.YieldFrom)
    return [node.lineno for block in guarded_blocks(tree) for node in inside(block) if isinstance(node, kinds)]


def loops_in_guards(tree: ast.AST) -> list[int]:
    kinds = (ast.For, ast.While, ast.ListComp, ast.SetComp, ast.DictComp)
    return [node.lineno for block in guarded_blocks(tree) for node in inside(block) if isinstance(node, kinds)]


def test_nothing_awaits_inside_a_guard() -> None:
    assert [f"{names(path)}:{line}" for path, tree in trees().items() for line in awaits_in_guards(tree)] == []


def test_nothing_loops_inside_a_guard() -> None:
    """A signal handler that raises at the jump of a loop would leave the guard taken, from Python 3.12 on.

    What only tests use is left out: they have no such handlers.
    """
    shipped = {path: tree for path, tree in trees().items() if "testing" not in path.parts}
    assert [f"{names(path)}:{line}" for path, tree in shipped.items() for line in loops_in_guards(tree)] == []


def test_no_guard_has_a_name_that_the_two_rules_above_do_not_know() -> None:
    """A `with` over a bare name is a guard that was found, or one of the few things that are known to be none."""
    strange = {
        f"{names(path)}:{block.lineno}: {name}"
        for path, tree in trees().items()
        for block in ast.walk(tree)
        if isinstance(block, ast.With)
        for name in bare_names(block) - guards() - NOT_GUARDS
    }
    assert strange == set()
    assert {"guard", "_guard", "_mutex", "_turn"} <= guards(), "names that are known to be in use"


@pytest.mark.parametrize(
    "source",
    [
        "class A:\n    def __init__(self, runtime):\n        self._door = runtime.guard()\n",
        "import threading\n_DOOR = threading.Lock()\n",
        "class A:\n    def __init__(self, door: AbstractContextManager[Any]):\n        self._door = door\n",
        "class A:\n    def __init__(self):\n        self._door: RLock = RLock()\n",
    ],
)
def test_a_guard_is_found_however_it_is_called_and_wherever_it_was_made(source: str) -> None:
    assert guard_names(ast.parse(source)) & {"_door", "_DOOR"}


def test_the_two_rules_above_can_fail() -> None:
    tree = ast.parse("async def f(self):\n    with self.guard:\n        await x\n        for y in z: pass\n")
    assert awaits_in_guards(tree) == [3]
    assert loops_in_guards(tree) == [4]


def test_the_core_has_no_async_generators() -> None:
    """The finalisation of one needs a loop."""
    found = [
        f"{names(path)}: {function.name}"
        for path, tree in trees().items()
        if path.parent.name == "_core"
        for function in ast.walk(tree)
        if isinstance(function, ast.AsyncFunctionDef)
        and any(isinstance(node, (ast.Yield, ast.YieldFrom)) for node in ast.walk(function))
    ]
    assert found == []


def test_cleanup_that_awaits_lets_generator_exit_pass() -> None:
    """`except BaseException: await ...` would await while the coroutine is being closed."""
    found = [
        f"{names(path)}:{node.lineno}"
        for path, tree in trees().items()
        for node in ast.walk(tree)
        if isinstance(node, ast.Try) and not _is_closed_safely(node)
    ]
    assert found == []


def _is_closed_safely(node: ast.Try) -> bool:
    seen_generator_exit = False
    for handler in node.handlers:
        caught = ast.unparse(handler.type) if handler.type is not None else "BaseException"
        seen_generator_exit = seen_generator_exit or "GeneratorExit" in caught
        awaits = any(isinstance(inner, ast.Await) for statement in handler.body for inner in ast.walk(statement))
        if "BaseException" in caught and awaits and not seen_generator_exit:
            return False
    return True


def size(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    return (function.end_lineno or function.lineno) - function.lineno + 1


def test_files_and_functions_are_short() -> None:
    long_files = [names(path) for path in MODULES if path.read_text().count("\n") > 400]
    assert long_files == [], "split them by purpose"
    long_functions = [
        f"{names(path)}: {node.name} has {size(node)} lines"
        for path, tree in trees().items()
        for node in ast.walk(tree)
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and size(node) > 60
    ]
    assert long_functions == []


def test_every_module_says_what_it_is() -> None:
    assert [names(path) for path, tree in trees().items() if not ast.get_docstring(tree)] == []


def test_the_core_stays_small() -> None:
    lines = sum(path.read_text().count("\n") for path in (SOURCE / "_core").glob("*.py"))
    assert lines <= 3_750  # of which the local queue has 650, and lingering 300


def test_every_test_file_has_a_name_of_its_own() -> None:
    """Two of one name cannot be run together by their paths, as a second look at failures does."""
    tests = [path.name for path in (SOURCE.parents[1] / "tests").rglob("test_*.py")]
    assert sorted(tests) == sorted(set(tests))


def bare_articles(tree: ast.AST) -> list[int]:
    """The lines of texts that put `a` before the name of a type, whatever its first letter is."""
    return [
        value.lineno
        for text in ast.walk(tree)
        if isinstance(text, ast.JoinedStr)
        for before, value in pairwise(text.values)
        if isinstance(before, ast.Constant)
        and re.search(r"\b[Aa]n? $", str(before.value))
        and isinstance(value, ast.FormattedValue)
        and re.search(r"\btype\(|__(qual)?name__", ast.unparse(value))
    ]


@pytest.mark.parametrize("path", MODULES, ids=names)
def test_a_message_has_the_article_that_the_name_of_a_type_wants(path: Path) -> None:
    assert bare_articles(trees()[path]) == [], "say it with leasehold._words.kind_of"


def test_a_bare_article_is_found() -> None:
    assert bare_articles(ast.parse('f"not a {type(tx).__name__}: " "x"')) == [1]
    assert bare_articles(ast.parse('f"not {kind_of(tx)}, a {name}"')) == []
