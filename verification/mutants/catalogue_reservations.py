"""Known bugs that named tests must see: reservations of stock."""

from __future__ import annotations

from verification.mutants.catalogue import Mutant

__all__ = ["RESERVATION_MUTANTS"]

_STEPS = "sql/reservations/steps.py"
_RECORD = "sql/reservations/record.py"
_SQLITE = "sql/reservations/sqlite.py"
_MYSQL = "sql/reservations/mysql.py"
_TESTS = "tests/sql/test_reservations.py"

RESERVATION_MUTANTS: tuple[Mutant, ...] = (
    Mutant(
        "RV-basket-half-taken",
        "a basket of which one item is lacking keeps the others: they are never sold",
        _STEPS,
        "                await self._take_back(wanted, changes, done)\n",
        "",
        (_TESTS, "-k", "all_or_nothing and psycopg"),
    ),
    Mutant(
        "RV-freed-and-forgotten",
        "what was freed for a basket that stays short is given to nobody",
        _STEPS,
        "wanted.get(item, 0) + (0 if item in done else change)",
        "wanted.get(item, 0) if item in done else 0",
        (_TESTS, "-k", "stays_short and sqlite3"),
    ),
    Mutant(
        "RV-cancelled-twice",
        "what is cancelled twice comes back twice, and is sold twice",
        _RECORD,
        "    return found.state == HELD\n",
        "    return found.state in (HELD, CANCELLED)\n",
        (_TESTS, "-k", "cancelled_comes_back and sqlite3"),
    ),
    Mutant(
        "RV-late-confirm-for-nothing",
        "a late confirm whose hold was given back sells what another has",
        _STEPS,
        "        if found.state == EXPIRED and await self._take(found.items) is not None:\n",
        "        if False:\n",
        (_TESTS, "-k", "late_confirm and sqlite3"),
    ),
    Mutant(
        "RV-request-not-compared",
        "a key that was used for other items is answered with the wrong reservation",
        _RECORD,
        "    if write_items(found.items) != items:\n",
        "    if False:\n",
        (_TESTS, "-k", "another_request_is_refused and sqlite3"),
    ),
    Mutant(
        "RV-below-zero-by-hand",
        "the database lets a program of its own sell below zero",
        _SQLITE,
        " CHECK (available >= 0)",
        "",
        (_TESTS, "-k", "itself_lets_no_stock_below_zero and sqlite3"),
    ),
    Mutant(
        "RV-half-committed",
        "an error of MariaDB between two steps leaves a hold without its stock, and a program can commit it",
        _MYSQL,
        '    await wire.query("ROLLBACK", {})\n',
        "    del wire\n",
        (_TESTS, "-k", "cannot_be_committed and mysql"),
    ),
    Mutant(
        "RV-any-order",
        "baskets are taken in the order in which they were written, and two of them wait for each other",
        _STEPS,
        "while (item := min((each for each in changes if each not in done), key=in_order, default=None)) is not None:",
        "while (item := min(set(changes) - set(done), key=lambda x: hash((x, id(wanted))), default=None)) is not None:",
        ("tests/unit/test_reservation_steps.py::test_a_basket_is_taken_in_one_order_however_it_was_written",),
    ),
    Mutant(
        "RV-records-are-not-kept",
        "a sweep removes the records of reservations as soon as they are over, and their keys are free again",
        "sql/reservations/mysql.py",
        '{_NOW} - {_LATER.format("keep")}',
        "{_NOW}",
        ("tests/sql/test_clocks_of_servers.py", "-k", "keeps_records and mysql"),
    ),
)
