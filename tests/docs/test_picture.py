"""The pictures of the README: drawn from a run and from what the project declares, and whole by themselves."""

from __future__ import annotations

import re
from xml.etree import ElementTree as ET

from tools.draw_badges import badges
from tools.draw_demo import PICTURE, Recording, Step, draw


def story(*, guarded: bool) -> Recording:
    """Worker 1 sleeps after three additions, worker 2 makes 29, and then worker 1 writes late."""
    steps = [Step(n / 10, 1, "wrote", n, n) for n in range(1, 4)]
    steps.append(Step(0.4, 1, "stopped", 3, 4))
    steps += [Step(1 + n / 10, 2, "wrote", n, n) for n in range(4, 33)]
    steps.append(Step(9, 1, "refused" if guarded else "wrote", 33 if guarded else 4, 4))
    if guarded:
        steps += [Step(9 + n / 10, 1, "wrote", 32 + n, 33 + n) for n in range(1, 9)]
    return Recording(steps, balance=40 if guarded else 4, refused=int(guarded))


def words(picture: str) -> list[str]:
    root = ET.fromstring(picture)
    return ["".join(element.itertext()) for element in root.iter("{http://www.w3.org/2000/svg}text")]


def test_the_picture_tells_both_stories_with_their_numbers() -> None:
    lines = words(draw(story(guarded=False), story(guarded=True)))
    assert "4 of 40" in lines
    assert "29 confirmed additions lost" in lines
    assert "it writes 4 over 32: DAMAGE" in lines
    assert "40 of 40" in lines
    assert "no addition lost" in lines
    assert "it writes 4: REFUSED, a newer fence was here" in lines


def test_the_picture_in_the_repository_is_whole_by_itself() -> None:
    picture = PICTURE.read_text()
    lines = words(picture)
    assert "40 of 40" in lines
    assert len([line for line in lines if re.fullmatch(r"\d+ of 40", line)]) == 2
    assert re.findall(r"(?:https?:|url\(|@import)[^\"'\s]*", picture) == ["http://www.w3.org/2000/svg"]
    assert "prefers-color-scheme: dark" in picture
    assert "prefers-reduced-motion" in picture


def test_the_badges_say_what_the_project_declares() -> None:
    for path, drawing in badges().items():
        ET.fromstring(drawing)
        assert path.read_text() == drawing, "run python tools/draw_badges.py"
