"""The places of a module where one small change is a plausible bug, found in its syntax tree."""

from __future__ import annotations

import ast
import copy
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["Place", "optional_parameters", "places_of"]

_BOUNDARY: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In,
}  # fmt: skip
_ARITHMETIC: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult, ast.FloorDiv: ast.Mult,
}  # fmt: skip
_TWINS = {"min": "max", "max": "min", "any": "all", "all": "any"}
_LOGGERS = frozenset({"log", "_log", "logger", "_logger", "LOG"})
_FOR_READERS = frozenset({"__repr__", "__str__", "__all__", "__slots__", "__match_args__"})
_OTHER_ERROR = "ZeroDivisionError"  # no part of the library raises or expects it
_A_LIMIT = 10
_ABSTRACT = frozenset({"overload", "abstractmethod"})
# What the arguments decide here is how a text looks, or who is told of it.
_FOR_EYES = frozenset({"stacklevel", "exc_info", "help", "metavar", "description", "doc", "name", "daemon"})


@dataclass(frozen=True, slots=True)
class Place:
    """One change: the bytes from `start` to `end` become `new`."""

    file: str  # under src/leasehold
    line: int
    start: int
    end: int
    old: str
    new: str
    kind: str
    function: str  # the outermost function around it; "" at the level of the module or a class
    names: tuple[str, ...] = ()  # what a statement outside of functions defines

    @property
    def id(self) -> str:
        """The same in another run as long as nobody changes the file."""
        return f"{self.file}:{self.line}:{self.kind}:{self.start}:{self.new}"

    def text(self, source: bytes) -> bytes:
        """The whole module with the change."""
        return source[: self.start] + self.new.encode() + source[self.end :]


def optional_parameters(root: Path) -> frozenset[str]:
    """The names of parameters that have a default somewhere: only these can be left out of a call."""
    found: set[str] = set()
    for path in root.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_bytes())):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                given = node.args
                found |= {one.arg for one, value in zip(given.kwonlyargs, given.kw_defaults, strict=True) if value}
                found |= {one.arg for one in given.args[len(given.args) - len(given.defaults) :] if given.defaults}
            elif isinstance(node, ast.ClassDef):  # the fields of a dataclass
                fields = [one for one in node.body if isinstance(one, ast.AnnAssign) and one.value is not None]
                found |= {one.target.id for one in fields if isinstance(one.target, ast.Name)}
    return frozenset(found) - _FOR_EYES


def places_of(file: str, source: bytes, optional: frozenset[str]) -> list[Place]:
    """All of a module, in the order of its lines; what does not compile is left out."""
    finder = _Finder(file, source, optional)
    finder.block(ast.parse(source).body)
    found = {(place.start, place.end, place.new): place for place in finder.found if _compiles(place, source)}
    return sorted(found.values(), key=lambda place: (place.line, place.start, place.kind, place.new))


def _compiles(place: Place, source: bytes) -> bool:
    text = place.text(source)
    try:
        return ast.dump(ast.parse(text)) != ast.dump(ast.parse(source)) and bool(compile(text, place.file, "exec"))
    except (SyntaxError, ValueError):
        return False


class _Finder:
    """Walks a tree and notes what could be changed."""

    def __init__(self, file: str, source: bytes, optional: frozenset[str]) -> None:
        self.file, self.source, self.optional = file, source, optional
        self.found: list[Place] = []
        self._starts = [0]
        for line in source.splitlines(keepends=True):
            self._starts.append(self._starts[-1] + len(line))
        self._path: list[str] = []  # of classes and functions
        self._function = ""
        self._names: tuple[str, ...] = ()
        self._last: ast.stmt | None = None  # of the function that is read

    def _note(self, node: ast.expr | ast.stmt | ast.excepthandler, new: str, kind: str) -> None:
        start = self._starts[node.lineno - 1] + node.col_offset
        end = self._starts[(node.end_lineno or node.lineno) - 1] + (node.end_col_offset or 0)
        old = self.source[start:end].decode()
        place = Place(self.file, node.lineno, start, end, old, new, kind, self._function, self._names)
        self.found.append(place)

    # Statements

    def block(self, body: list[ast.stmt]) -> None:
        for statement in body:
            self._statement(statement)

    def _statement(self, node: ast.stmt) -> None:
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                self._definition(node)
            case ast.ClassDef():
                self._path.append(node.name)
                self.block(node.body)
                self._path.pop()
            case ast.If(test=ast.Name(id="TYPE_CHECKING")) | ast.Import() | ast.ImportFrom():
                pass
            case ast.Expr(value=ast.Constant()) | ast.Assert():
                pass
            case _:
                self._removal(node)
                self._names = _defined(node) if not self._function else ()
                if not set(self._names) & _FOR_READERS:
                    self._inside(node)
                self._names = ()

    def _definition(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        if node.name in _FOR_READERS or any(_last_name(one) in _ABSTRACT for one in node.decorator_list):
            return
        outermost = not self._function
        self._path.append(node.name)
        if outermost:
            self._names = (node.name,)
            for default in (*node.args.defaults, *(one for one in node.args.kw_defaults if one)):
                self._expression(default)
            self._names = ()
            self._function = ".".join(self._path)
        outer, self._last = self._last, node.body[-1]
        self.block(node.body)
        self._last = outer
        if outermost:
            self._function = ""
        self._path.pop()

    def _inside(self, node: ast.stmt) -> None:
        match node:
            case ast.If(test=test) | ast.While(test=test):
                self._condition(test)
            case ast.Try(handlers=handlers, finalbody=final):
                for handler in handlers:
                    self._handler(handler)
                if final:
                    self._emptied(final, "finally")
            case ast.Raise(exc=ast.Call(func=ast.Name() as raised)) if raised.id[:1].isupper():
                self._note(raised, _OTHER_ERROR, "raise")
                return  # the rest is the message
            case ast.Raise():
                return
            case ast.AnnAssign(value=value):
                if value is not None:
                    self._expression(value)
                return
        for _, value in ast.iter_fields(node):
            for one in value if isinstance(value, list) else [value]:
                if isinstance(one, ast.stmt):
                    self._statement(one)
                elif isinstance(one, ast.ExceptHandler | ast.match_case):
                    self.block(one.body)
                elif isinstance(one, ast.withitem):
                    self._expression(one.context_expr)
                elif isinstance(one, ast.expr):
                    self._expression(one)

    def _removal(self, node: ast.stmt) -> None:
        if not self._function or _is_logging(node):
            return
        match node:
            case ast.Expr(value=ast.Yield() | ast.YieldFrom()):
                pass
            case ast.Expr() | ast.AugAssign() | ast.Delete() | ast.Raise() | ast.Continue() | ast.Break():
                self._note(node, "pass", "removed")
            case ast.Assign(targets=[ast.Attribute() | ast.Subscript()]):
                self._note(node, "pass", "removed")
            case ast.Return() if node is not self._last:  # without the last one all callers get None
                self._note(node, "pass", "return removed")

    def _emptied(self, body: list[ast.stmt], kind: str) -> None:
        if len(body) > 1:  # a single statement is removed as any other
            whole = ast.Pass(lineno=body[0].lineno, col_offset=body[0].col_offset)
            whole.end_lineno, whole.end_col_offset = body[-1].end_lineno, body[-1].end_col_offset
            self._note(whole, "pass", kind)

    def _handler(self, handler: ast.ExceptHandler) -> None:
        match handler.type:
            case ast.Tuple(elts=kinds):
                for kind in kinds:
                    rest = [ast.unparse(one) for one in kinds if one is not kind]
                    self._note(handler.type, f"({', '.join(rest)},)", "except")
            case ast.expr():
                self._note(handler.type, _OTHER_ERROR, "except")

    # Expressions

    def _condition(self, test: ast.expr) -> None:
        if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
            self._note(test, f"({ast.unparse(test.operand)})", "negated")
        elif not (isinstance(test, ast.Compare) and len(test.ops) == 1 and type(test.ops[0]) in _EQUALITIES):
            self._note(test, f"(not ({ast.unparse(test)}))", "negated")

    def _expression(self, node: ast.expr) -> None:
        match node:
            case ast.JoinedStr() | ast.Lambda(body=ast.Constant()):
                return
            case ast.Constant():
                self._constant(node)
            case ast.Compare(ops=[one]) if type(one) in _BOUNDARY:
                self._with(node, "comparison", ops=[_BOUNDARY[type(one)]()])
            case ast.Compare(ops=[first, second]):
                self._with(node, "comparison", ops=[_BOUNDARY[type(first)](), second])
                self._with(node, "comparison", ops=[first, _BOUNDARY[type(second)]()])
            case ast.BoolOp():
                self._boolean(node)
            case ast.IfExp():
                self._condition(node.test)
            case ast.BinOp(op=sign) if type(sign) in _ARITHMETIC and not _is_text(node):
                self._with(node, "arithmetic", op=_ARITHMETIC[type(sign)]())
            case ast.UnaryOp(op=ast.Not()):
                self._note(node, f"(bool({ast.unparse(node.operand)}))", "negated")
            case ast.Call():
                self._call(node)
            case ast.ListComp() | ast.SetComp() | ast.GeneratorExp() | ast.DictComp():
                for loop in node.generators:
                    for test in loop.ifs:
                        self._note(test, "True", "filter")
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.expr):
                self._expression(child)
            elif isinstance(child, ast.keyword):
                self._expression(child.value)
            elif isinstance(child, ast.comprehension):
                self._expression(child.iter)
                for test in child.ifs:
                    self._expression(test)

    def _with(self, node: ast.expr, kind: str, **changes: object) -> None:
        changed = copy.copy(node)
        for field, value in changes.items():
            setattr(changed, field, value)
        self._note(node, f"({ast.unparse(changed)})", kind)

    def _boolean(self, node: ast.BoolOp) -> None:
        self._with(node, "and/or", op=ast.Or() if isinstance(node.op, ast.And) else ast.And())
        for dropped in node.values:
            rest = [one for one in node.values if one is not dropped]
            self._with(node, "part of a condition", values=rest)

    def _constant(self, node: ast.Constant) -> None:
        match node.value:
            case bool(value):
                self._note(node, str(not value), "constant")
            case int(value) if not self._function and value >= _A_LIMIT:
                pass  # how large a limit is, or how long a pause, is a choice
            case float() if not self._function:
                pass
            case int(value):
                self._note(node, str(value + 1), "constant")
                if value > 0:
                    self._note(node, str(value - 1), "constant")
            case float(value) if value:
                self._note(node, repr(value * 2), "constant")
                self._note(node, repr(value / 2), "constant")

    def _call(self, node: ast.Call) -> None:
        match node.func:
            case ast.Name(id=name) if name in _TWINS:
                self._note(node.func, _TWINS[name], "min/max")
                if name in ("min", "max") and len(node.args) == 2:
                    for one in node.args:
                        self._note(node, f"({ast.unparse(one)})", "min/max")
        for given in node.keywords:
            if given.arg in self.optional:
                kept = [one for one in node.keywords if one is not given]
                self._with(node, "argument", keywords=kept)


_EQUALITIES = (ast.Eq, ast.NotEq, ast.Is, ast.IsNot, ast.In, ast.NotIn)  # flipping the sign negates them already


def _defined(node: ast.stmt) -> tuple[str, ...]:
    match node:
        case ast.Assign(targets=targets):
            return tuple(one.id for target in targets for one in ast.walk(target) if isinstance(one, ast.Name))
        case ast.AnnAssign(target=ast.Name(id=name)):
            return (name,)
    return ()


def _last_name(node: ast.expr) -> str:
    match node:
        case ast.Call(func=called):
            return _last_name(called)
        case ast.Attribute(attr=name) | ast.Name(id=name):
            return name
    return ""


def _is_logging(node: ast.stmt) -> bool:
    match node:
        case ast.Expr(value=ast.Call(func=ast.Attribute(value=ast.Name(id=name)))):
            return name in _LOGGERS
    return False


def _is_text(node: ast.BinOp) -> bool:
    parts = [one for one in ast.walk(node) if isinstance(one, ast.JoinedStr | ast.Constant | ast.Tuple | ast.List)]
    return any(not isinstance(one, ast.Constant) or isinstance(one.value, str | bytes) for one in parts)
