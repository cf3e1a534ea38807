"""Write docs/explain/mission.md from docs/mission.toml: `python docs/make_mission_page.py`.

The page lists each point of the five documents that Onceward was built for: the requirement, the code that implements
it, and tests that check it. A test of the docs checks that the code exists, and that each test exists and is marked
with the point.
"""

from __future__ import annotations

import ast
import tomllib
from functools import cache
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
SOURCE = ROOT / "docs" / "mission.toml"
PAGE = ROOT / "docs" / "explain" / "mission.md"

INTRODUCTION = """\
# The mission, point by point

This page is generated from `docs/mission.toml` by `docs/make_mission_page.py`; do not edit it.

Onceward began with five documents, each about one system in which work is delivered at least once and must have its
effect once. All five are built on it, in `examples/`, and `make demo` runs each through a storm. This page lists what
the documents ask for, line by line, with the code that implements it and a test that checks it. The tests are marked
with the point, `@pytest.mark.mission("A1")`, and there are more of each than are listed here. `pytest -k NAME` runs
one.
"""


class Point(NamedTuple):
    """One line of a document. `code` is `path` or `path:name`; `shown` is `path::test`."""

    id: str
    asked: str
    code: list[str]
    shown: list[str]


class Document(NamedTuple):
    """One of the five systems."""

    title: str
    example: str
    about: str
    points: list[Point]


def documents() -> list[Document]:
    found = tomllib.loads(SOURCE.read_text(encoding="utf-8"))["document"]
    return [
        Document(one["title"], one["example"], one["about"], [Point(**point) for point in one["point"]])
        for one in found
    ]


@cache
def marked_tests() -> dict[str, set[str]]:
    """Return the marked tests of each point, as `path::name`."""
    found: dict[str, set[str]] = {}
    for path in sorted((ROOT / "tests").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                for id in _points(node.decorator_list):
                    found.setdefault(id, set()).add(f"{path.relative_to(ROOT)}::{node.name}")
    return found


def _points(decorators: list[ast.expr]) -> list[str]:
    return [
        str(argument.value)
        for one in decorators
        if isinstance(one, ast.Call) and isinstance(one.func, ast.Attribute) and one.func.attr == "mission"
        for argument in one.args
        if isinstance(argument, ast.Constant)
    ]


def page() -> str:
    parts = [INTRODUCTION]
    for document in documents():
        parts.append(f"\n## {document.title}\n\n{document.about} Runs as `{document.example}`.\n\n")
        parts.append("| Point | Requirement | Code | Tests |\n|---|---|---|---|\n")
        for point in document.points:
            code = ", ".join(_linked(*one.partition(":")) for one in point.code)
            shown = ", ".join(_linked(*one.partition("::")) for one in point.shown)
            parts.append(f"| {point.id} | {point.asked} | {code} | {shown} |\n")
    return "".join(parts)


def _linked(path: str, _: str, name: str) -> str:
    text = name or path.removeprefix("src/onceward/")
    return f"[`{text}`](../../{path})"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
