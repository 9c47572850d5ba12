"""What `fence_schema` prints, option by option, and how names get into it."""

from __future__ import annotations

from typing import Any

import pytest

from leasehold.errors import ConfigurationError
from leasehold.sql import fence_schema, fence_statements
from leasehold.sql.guards.transaction_lock import LONGEST_NAME, _number
from leasehold.sql.guards.triggers import _function_name, _tag
from leasehold.sql.guards.triggers_mysql import _trigger_name, script


def as_hex(text: str) -> str:
    return f"X'{text.encode().hex()}'"


@pytest.mark.parametrize(
    ("words", "written"),
    [
        ({}, ["'leasehold:orders:' || CAST(NEW.\"id\" AS text)", "'leasehold:orders:' || CAST(OLD.\"id\" AS text)"]),
        ({"lock": "order-{id}-x"}, ["'leasehold:order-' || CAST(NEW.\"id\" AS text) || '-x'"]),
        ({"lock": "all"}, ["leasehold_check_fence('leasehold:all', true)"]),
        ({"namespace": "a:b%"}, ["'a%3Ab%25:orders:' || CAST("]),
        ({}, ['TABLE IF NOT EXISTS "public".leasehold_guard', 'ON "public"."orders"', "refused, with the code LH002"]),
        ({"schema": "shop"}, ['TABLE IF NOT EXISTS "shop".leasehold_guard', 'ON "shop"."orders"']),
        ({"guard_schema": "book"}, ['TABLE IF NOT EXISTS "book".leasehold_guard', 'ON "public"."orders"']),
        ({"schema": "shop", "guard_schema": "book"}, ['"book".leasehold_check_fence', 'ON "shop"."orders"']),
        ({}, ['"public"."leasehold_fence_orders"', "TRUNCATE has no single row to fence", ", true);"]),
        ({"strict": False}, ["let through: this is not the strict form", ", false);", "    NULL;"]),
    ],
    ids=str,
)
def test_each_option_is_in_the_statements_of_postgresql(words: dict[str, Any], written: list[str]) -> None:
    text = fence_schema("orders", "id", **words)
    for piece in written:
        assert piece in text
    (alone,) = fence_statements("orders", "id", **words)
    assert alone == text


@pytest.mark.parametrize(
    ("words", "written"),
    [
        ({}, [f"CONCAT({as_hex('leasehold:orders:')}, CONVERT(NEW.`id` USING utf8mb4), {as_hex('')})"]),
        ({"lock": "o-{id}-x"}, [f"CONCAT({as_hex('leasehold:o-')}, CONVERT(OLD.`id` USING utf8mb4), {as_hex('-x')})"]),
        ({"lock": "all"}, [f"leasehold_check_write(NULL, {as_hex('leasehold:all')}, TRUE)"]),
        ({"namespace": "a:b%"}, [as_hex("a%3Ab%25:orders:")]),
        ({}, ["CREATE TABLE IF NOT EXISTS leasehold_guard", "AFTER INSERT ON `orders`", "CALL leasehold_check_write"]),
        (
            {"schema": "shop"},
            ["EXISTS `shop`.leasehold_guard", "ON `shop`.`orders`", "CALL `shop`.leasehold_check_write"],
        ),
        (
            {"guard_schema": "book"},
            ["EXISTS `book`.leasehold_guard", "ON `orders`", "CALL `book`.leasehold_check_write"],
        ),
        ({"schema": "shop"}, ["TRIGGER `shop`.`leasehold_fence_insert_orders`"]),
        ({}, ["`leasehold_fence_update_orders` AFTER UPDATE", "`leasehold_fence_delete_orders` AFTER DELETE"]),
        ({"strict": False}, [", FALSE)", "let through: this is not the strict form"]),
    ],
    ids=str,
)
def test_each_option_is_in_the_statements_of_mysql(words: dict[str, Any], written: list[str]) -> None:
    text = "\n".join(fence_statements("orders", "id", dialect="mysql", **words))
    for piece in written:
        assert piece in text
    assert fence_schema("orders", "id", dialect="mysql", **words).startswith("DELIMITER //\n")


def test_statements_of_mysql_drop_what_they_make_and_are_parted_by_a_mark_that_is_in_none() -> None:
    parts = fence_statements("orders", "id", dialect="mysql")
    firsts = [" ".join(part.split("\n")[-1 if part.startswith("--") else 0].split()[:2]) for part in parts[1:]]
    assert firsts == ["DROP PROCEDURE", "CREATE PROCEDURE"] * 2 + ["DROP TRIGGER", "CREATE TRIGGER"] * 3
    assert "CREATE TABLE IF NOT EXISTS" in parts[0]
    assert script(["a", "b"]) == "DELIMITER //\na\n//\nb\n//\nDELIMITER ;\n"
    assert script(["a // b", "///"]) == "DELIMITER ////\na // b\n////\n///\n////\nDELIMITER ;\n"


@pytest.mark.parametrize(
    ("words", "why"),
    [
        ({"dialect": "sqlite"}, "postgresql and mysql, not 'sqlite'"),
        ({"lock": ""}, "must not be empty"),
        ({"lock": "{id}-{id}"}, "at most once"),
        ({"namespace": ""}, "the namespace must not be empty"),
        ({"table": ""}, "the name of a table"),
        ({"key": "a\0"}, "the name of a column"),
        ({"schema": "x" * 64}, "the name of a schema"),
        ({"schema": "x" * 64, "dialect": "mysql"}, "the name of a database"),
    ],
    ids=str,
)
def test_what_cannot_be_meant_is_refused_by_its_name(words: dict[str, Any], why: str) -> None:
    with pytest.raises(ConfigurationError, match=why):
        fence_statements(**{"table": "orders", "key": "id", **words})


def test_long_names_that_begin_alike_have_functions_and_triggers_of_their_own() -> None:
    assert _function_name("x" * 47) == "leasehold_fence_" + "x" * 47
    for name_of in (_function_name, lambda table: _trigger_name(table, "insert")):
        names = {name_of("x" * 60), name_of("x" * 61), name_of("é" * 31), name_of("é" * 30)}
        assert len(names) == 4
        assert max(len(name.encode()) for name in names) <= 63
    assert len({_trigger_name("x" * 60, event) for event in ("insert", "update", "delete")}) == 3


def test_text_cannot_end_the_quotes_around_a_function() -> None:
    assert _tag({"a": "x"}) == "$leasehold$"
    assert _tag({"a": "x $leasehold$", "b": "$leasehold1$"}) == "$leasehold2$"
    hostile = fence_schema("a$leasehold$b", "id")
    assert hostile.count("$leasehold1$") >= 4
    assert "\\n" in fence_schema("a\nb", "id").splitlines()[0], "a comment stays on its line"


def test_number_of_a_lock_of_a_transaction_is_that_of_its_name_and_namespace() -> None:
    pairs = [("a", "x"), ("b", "x"), ("a", "y"), ("xa", "x"), ("a", "ax"), ("x", "a")]
    numbers = {_number(name, namespace) for name, namespace in pairs}
    assert len(numbers) == len(pairs)
    assert all(-(2**63) <= number < 2**63 for number in numbers)
    assert _number("é" * (LONGEST_NAME // 2), "n") == _number("é" * (LONGEST_NAME // 2), "n")
    for name, namespace in (("", "n"), ("n", ""), ("x" * (LONGEST_NAME + 1), "n"), ("n", "é" * LONGEST_NAME)):
        with pytest.raises(ConfigurationError, match="1 to 512 bytes"):
            _number(name, namespace)
