"""Which functions of the store pin their search path, read from their text, so that no entry is missed.

A function that pins it may use plain names. One that does not is either called with whatever path its caller has, and
qualifies every name; or it is called by pinned ones only, and inherits their path, because setting it costs time.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

import pytest

from leasehold._backends import postgres
from leasehold._backends.postgres.ddl import FOLDER, STEPS, VERSION
from leasehold._backends.postgres.statements import Statements

PIN = "SET search_path = pg_catalog, pg_temp"
FUNCTION = re.compile(
    r"CREATE OR REPLACE FUNCTION @schema@\.(\w+)\((.*?)\bAS\s+(?:\$\$(.*?)\$\$|'((?:[^']|'')*)');", re.DOTALL
)
ASSIGNMENTS = re.compile(r"\bSET\b.*?(?=\bWHERE\b|\bFROM\b|\bRETURNING\b|;|$)", re.DOTALL)
SYNTAX = r"as|by|case|cast|coalesce|conflict|else|exists|from|greatest|key|least|not|or|and|values|where|when"
UNQUALIFIED = {
    "an operator": r"(?<![:=])[<>=!~|*/%^&#?+-]+(?!\()",
    "a cast": "::",
    "an operator in disguise": (
        r"\bIN\s*\(|\bDISTINCT\s+FROM\b|\bBETWEEN\b|\bI?LIKE\b|\bNULLIF\b|\bUSING\s*\(|\bCASE\s+(?!WHEN)"
    ),
    "a function": rf"(?<![.\w@])(?!(?:{SYNTAX})\b)[a-z_]\w*\s*\(",
    "a type": r"(?<![.\w@])(?:text|bytea|record|json|jsonb|uuid|numeric|date|oid)\b(?!\s*[,.(])",
    "a relation": r"\b(?:FROM|JOIN|INTO|UPDATE)\s+(?:lock|claim|record|about|pg_\w+)\b(?!\.)",
}


class Function(NamedTuple):
    pinned: bool
    body: str

    @property
    def calls(self) -> set[str]:
        return set(re.findall(r"@schema@\.(\w+)\s*\(", self.body))


def texts() -> dict[str, str]:
    return {name: (FOLDER / name).read_text() for name in STEPS[VERSION]}


def functions(files: dict[str, str]) -> dict[str, Function]:
    """All functions of the present version; the number of them is that of the words that make one."""
    whole = re.sub(r"--[^\n]*", "", "\n".join(files.values()))
    found = {
        name: Function(PIN in head, body or quoted.replace("''", "'"))
        for name, head, body, quoted in FUNCTION.findall(whole)
    }
    assert len(found) == whole.count("FUNCTION")
    return found


def entries(known: set[str], earlier: str) -> set[str]:
    """Those that a client calls: named in Python, or made for clients that were not upgraded yet."""
    python = "\n".join(file.read_text() for file in Path(str(postgres.__file__)).parent.glob("*.py"))
    called = {name for name in known if re.search(rf"\b{name}\b", python)}
    return called | set(functions({"": earlier}))


def plain_names(sql: str) -> list[str]:
    """What is looked up in the search path: names and operators that are not qualified."""
    text = re.sub(r"'(?:[^']|'')*'", "0", sql)
    text = re.sub(r"OPERATOR\(pg_catalog\.[^)]+\)", ",", text)
    text = re.sub(r":=|=>|\.\.", ",", text)  # no operators: plpgsql and names of arguments
    text = ASSIGNMENTS.sub(lambda found: re.sub(r"(\bSET|,)\s*\w+ =", ",", found[0]), text)
    text = re.sub(r"\b(?:AS\s+\w+|INTO\s+@schema@\.\w+(?:\s+AS\s+\w+)?)\s*\(", "(", text)  # lists of columns
    text = re.sub(r"\b(?:SELECT|RETURNING)\s+(?:\w\.)?\*|\(\*\)", ",", text)
    return [f"{kind}: {hit[0]}" for kind, bad in UNQUALIFIED.items() for hit in re.finditer(bad, text)]


def faults(files: dict[str, str]) -> list[str]:
    """Every way by which a name could be looked up in the search path of whoever locks."""
    known = functions(files)
    plain = {name for name, function in known.items() if not function.pinned and plain_names(function.body)}
    begins = entries(set(known), files["earlier.sql"])
    found = [f"{name} is called by clients and has plain names" for name in plain & begins]
    for caller, function in known.items():
        if not function.pinned and caller not in plain:  # it has whatever path its caller has
            found += [f"{caller} calls {name}, which has plain names" for name in function.calls & plain]
    called = set().union(*(function.calls for function in known.values()))
    return found + [f"nobody calls {name}" for name in set(known) - called - begins]


def test_every_name_is_looked_up_in_a_search_path_that_we_set_or_is_qualified() -> None:
    assert faults(texts()) == []


def test_statements_of_clients_qualify_every_name() -> None:
    statements = [text for text in vars(Statements("leasehold")).values() if not isinstance(text, str)]
    assert len(statements) > 15
    for statement in statements:
        text = statement.text.decode().replace('"leasehold".', "@schema@.")
        assert plain_names(text) == [], text


@pytest.mark.parametrize(
    ("file", "old", "new", "fault"),
    [
        (
            "verbs.sql",
            f"LANGUAGE plpgsql {PIN} SET enable_seqscan = off SET enable_nestloop",
            "LANGUAGE plpgsql SET enable_nestloop",
            "turns_5 is called by clients and has plain names",
        ),
        (
            "verbs.sql",
            "attempt OPERATOR(pg_catalog.=) 1 OR NOT waits",
            "attempt = 1 OR NOT waits",
            "acquire_5 is called by clients and has plain names",
        ),
        (
            "verbs.sql",
            "at := pg_catalog.clock_timestamp();\n    IF named",
            "at := @schema@.enter_3(the_key);\n    IF named",
            "release_5 calls enter_3, which has plain names",
        ),
        (
            "rules.sql",
            "RETURN pg_catalog.pg_try_advisory_xact_lock_shared(the_session)",
            "RETURN pg_try_advisory_xact_lock_shared(the_session)",
            "acquire_5 calls is_over_3, which has plain names",
        ),
        (
            "earlier.sql",
            "RETURN @schema@.release_5(the_key",
            "RETURN 'x' || @schema@.release_5(the_key",
            "release_3 is called by clients and has plain names",
        ),
        ("rules.sql", "FUNCTION @schema@.micros_3(", "FUNCTION @schema@.micros_6(", "nobody calls micros_6"),
    ],
)
def test_a_function_that_is_not_pinned_any_more_is_found(file: str, old: str, new: str, fault: str) -> None:
    files = texts()
    assert files[file].count(old) == 1
    files[file] = files[file].replace(old, new)
    assert fault in faults(files)


@pytest.mark.parametrize(
    "plain",
    [
        "a = b", "a <> b", "a || 'x'", "a + 1", "a - b", "x::bigint", "a IN (1, 2)", "a IS DISTINCT FROM b", "now()",
        "CASE a WHEN 1 THEN 2 END", "CAST(a AS text)", "SELECT 1 FROM claim", "UPDATE @schema@.lock SET a = b = c",
        "UPDATE @schema@.lock SET a = 1 WHERE b = 2", "SELECT a FROM @schema@.lock WHERE a >= 1", "d jsonb;",
    ],
)  # fmt: skip
def test_a_plain_name_is_seen(plain: str) -> None:
    assert plain_names(plain)


@pytest.mark.parametrize(
    "qualified",
    [
        "a OPERATOR(pg_catalog.=) b", "a := greatest(b, 1);", "SELECT l.* INTO held FROM @schema@.lock AS l",
        "pg_catalog.make_interval(secs => 3)", "CAST(a AS bigint)", "CASE WHEN a IS NULL THEN 'a = b' END",
        "INSERT INTO @schema@.lock AS l (key) VALUES (k) ON CONFLICT (key) DO UPDATE SET a = excluded.a, b = 1",
        "UPDATE @schema@.lock AS l SET a = 0, b = NULL WHERE l.key OPERATOR(pg_catalog.=) k",
    ],
)  # fmt: skip
def test_a_qualified_one_is_not(qualified: str) -> None:
    assert plain_names(qualified) == []
