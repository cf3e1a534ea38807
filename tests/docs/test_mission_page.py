"""Every code location and test that the mission page names exists."""

from __future__ import annotations

import ast

import pytest

from docs.make_mission_page import PAGE, ROOT, Point, documents, marked_tests, page

POINTS = {"A": 9, "B": 8, "C": 10, "D": 6, "E": 7}
EVERY = [point for document in documents() for point in document.points]


def test_the_page_is_what_its_generator_writes() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "run `python docs/make_mission_page.py`"


def test_no_point_is_missing() -> None:
    assert [point.id for point in EVERY] == [f"{of}{n + 1}" for of, number in POINTS.items() for n in range(number)]


@pytest.mark.parametrize("place", sorted({place for point in EVERY for place in point.code}))
def test_the_code_is_there(place: str) -> None:
    path, _, name = place.partition(":")
    text = (ROOT / path).read_text(encoding="utf-8")
    if name:
        nodes = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.stmt)]
        named = {getattr(node, "name", None) for node in nodes}
        targets = [target for node in nodes if isinstance(node, ast.Assign) for target in node.targets]
        assert name in named | {getattr(target, "id", None) for target in targets}


@pytest.mark.parametrize("point", EVERY, ids=lambda point: point.id)
def test_its_tests_say_themselves_that_they_show_it(point: Point) -> None:
    assert point.code
    assert point.shown
    assert set(point.shown) <= marked_tests()[point.id]
