"""Records behave as dataclasses do, for users and for the standard library."""

from __future__ import annotations

import copy
import dataclasses
import pickle
import subprocess
import sys
from typing import TYPE_CHECKING, Any, ClassVar

import pytest

import leasehold
from leasehold._record import field, record, replace

if TYPE_CHECKING:
    from pathlib import Path


@record(frozen=True, slots=True)
class Point:
    kind: ClassVar[str] = "point"

    x: int
    y: int = 2
    secret: str = field(default="s", repr=False)
    tags: list[str] = field(default_factory=list)
    note: str | None = field(default=None, kw_only=True)

    def total(self) -> int:
        return self.x + self.y


@record(frozen=True, slots=True)
class Place(Point):
    name: str = "here"


@record(slots=True, unsafe_hash=True)
class Loose:
    x: int

    def __post_init__(self) -> None:
        self.x += 1


@record(slots=True)
class Counter:
    count: int = 0


def test_a_record_takes_its_fields_in_order_and_by_name() -> None:
    assert (Point(1).x, Point(1).y, Point(1, 3).y, Point(1, note="n").note) == (1, 2, 3, "n")
    assert Place(1, 2, "s", [], "there").name == "there"
    assert Point(1).total() == 3
    assert Loose(1).x == 2
    with pytest.raises(TypeError, match=r"Point.__init__\(\) missing 1 required positional argument: 'x'"):
        Point()  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="positional arguments"):
        Point(1, 2, "s", [], "n")  # type: ignore[call-arg]


def test_a_default_that_is_made_is_made_for_each_instance() -> None:
    assert Point(1).tags == []
    assert Point(1).tags is not Point(1).tags


def test_a_frozen_record_refuses_changes_and_a_loose_one_does_not() -> None:
    point = Point(1)
    with pytest.raises(dataclasses.FrozenInstanceError, match="cannot assign to field 'x'"):
        point.x = 2  # type: ignore[misc]
    with pytest.raises(dataclasses.FrozenInstanceError, match="cannot delete field 'x'"):
        del point.x
    loose = Loose(1)
    loose.x = 9
    assert loose.x == 9
    with pytest.raises(AttributeError):
        loose.z = 1  # type: ignore[attr-defined]


def test_records_are_equal_by_their_fields_and_class() -> None:
    assert Point(1) == Point(1)
    assert Point(1) != Point(2)
    assert Point(1) != Place(1)
    assert Counter(1) == Counter(1)
    assert hash(Loose(1)) == hash(Loose(1))
    with pytest.raises(TypeError, match="unhashable"):
        hash(Counter(1))


def test_a_record_shows_its_fields_but_the_secret_ones() -> None:
    assert repr(Point(1)) == "Point(x=1, y=2, tags=[], note=None)"


def test_a_record_can_be_pickled_copied_and_matched() -> None:
    point = Point(1, 5, note="n")
    assert pickle.loads(pickle.dumps(point)) == point
    assert copy.deepcopy(point) == point
    match point:
        case Point(1, y):
            assert y == 5
        case _:
            pytest.fail("it did not match")


def test_a_dataclass_can_be_derived_from_a_record() -> None:
    @dataclasses.dataclass(frozen=True, slots=True)
    class Town(Place):
        people: int = 0

    town = Town(1, people=7)
    assert (town.x, town.y, town.name, town.people, town.total()) == (1, 2, "here", 7, 3)
    with pytest.raises(TypeError, match="cannot inherit non-frozen dataclass from a frozen one"):
        dataclasses.dataclass(type("Loose", (Point,), {}))


def test_what_works_on_dataclasses_works_on_records() -> None:
    assert dataclasses.is_dataclass(Place)
    assert [each.name for each in dataclasses.fields(Place)] == ["x", "y", "secret", "tags", "note", "name"]
    assert dataclasses.asdict(Point(1))["y"] == 2
    assert dataclasses.replace(Point(1), x=7) == replace(Point(1), x=7) == Point(7)


def test_a_program_that_locks_loads_nothing_that_it_does_not_use(tmp_path: Path) -> None:
    script = (
        "import sys, leasehold; client = leasehold.connect(sys.argv[1]); client.lock('a').acquire().release(); "
        "print(*sys.modules)"
    )
    url = f"sqlite:///{tmp_path}/locks.db"
    leasehold.connect(url).lock("a").acquire().release()
    words = [sys.executable, "-c", script, url]
    loaded = subprocess.run(words, capture_output=True, text=True, check=True).stdout.split()
    assert {"dataclasses", "inspect", "logging", "asyncio", "json", "pathlib", "difflib"} & set(loaded) == set()


def test_a_record_that_compares_in_its_own_way_is_hashed_as_a_dataclass_would_be() -> None:
    def made(decorator: Any, **options: bool) -> Any:
        body = {"__annotations__": {"x": "int"}, "__eq__": lambda *_: True, "__hash__": None}  # as a class statement
        return decorator(**options)(type("Made", (), body))

    for options in ({"frozen": True}, {"unsafe_hash": True}, {}):
        ours, theirs = made(record, **options), made(dataclasses.dataclass, **options)
        assert (ours.__hash__ is None) == (theirs.__hash__ is None) == (not options)
        assert ours(1) == ours(2)
