"""Write docs/explain/acceptance.md from docs/acceptance.toml: `python docs/make_acceptance_page.py`.

The page lists every requirement of the five documents: where it is kept, and which tests show it. A requirement that
cannot be tried here says why. A test of the docs checks that every named test exists.
"""

from __future__ import annotations

import ast
import tomllib
from functools import cache
from pathlib import Path
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).resolve().parents[1]
SOURCE: Final = ROOT / "docs" / "acceptance.toml"
PAGE: Final = ROOT / "docs" / "explain" / "acceptance.md"
NOT_TRIED: Final = "not tried here: "
COLUMNS: Final = 4

INTRODUCTION: Final = """\
# Every requirement of the five documents

This page is generated from `docs/acceptance.toml` by `docs/make_acceptance_page.py`; do not edit it.

Onceward began with five documents, and each of the five systems is an example. This page lists what each document asks
for, by its sections, where it is kept, and which tests show it. Of {total} requirements, {shown} have a test. The other
{untried} cannot be tried here, and say why. [The mission](mission.md) is the shorter list.
"""


class Requirement(NamedTuple):
    """One requirement. `tests` are `path::name`; without tests, `reason` says why."""

    section: str
    asked: str
    kept: str
    tests: list[str]
    reason: str


class Document(NamedTuple):
    """One of the five documents."""

    title: str
    example: str
    requirements: list[Requirement]


def documents() -> list[Document]:
    found = tomllib.loads(SOURCE.read_text(encoding="utf-8"))
    return [
        Document(
            one["title"],
            one["example"],
            [_requirement(line, found["aliases"]) for line in one["requirements"].strip().splitlines()],
        )
        for one in found["document"]
    ]


def _requirement(line: str, aliases: dict[str, str]) -> Requirement:
    parts = [part.strip() for part in line.split(" | ")]
    if len(parts) != COLUMNS or not all(parts):
        raise ValueError(f"a requirement has {COLUMNS} columns: {line}")
    section, asked, kept, shown = parts
    if shown.startswith(NOT_TRIED):
        return Requirement(section, asked, kept, [], shown.removeprefix(NOT_TRIED))
    return Requirement(section, asked, kept, [_test(name.strip(), aliases) for name in shown.split(";")], "")


def _test(name: str, aliases: dict[str, str]) -> str:
    """Return `path::test` for `alias::start`."""
    alias, _, start = name.partition("::")
    matching = [test for test in functions_in(aliases[alias]) if test.startswith(f"test_{start}")]
    if len(matching) != 1:
        raise ValueError(f"{name} names {len(matching)} tests of {aliases[alias]}: {', '.join(matching)}")
    return f"{aliases[alias]}::{matching[0]}"


@cache
def functions_in(path: str) -> tuple[str, ...]:
    tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
    return tuple(node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))


def page() -> str:
    everything = documents()
    all_requirements = [one for document in everything for one in document.requirements]
    untried = sum(not one.tests for one in all_requirements)
    total = len(all_requirements)
    parts = [INTRODUCTION.format(total=total, shown=total - untried, untried=untried)]
    parts += [_section(document) for document in everything]
    return "\n".join(parts)


def _section(document: Document) -> str:
    lines = [f"## {document.title}", f"Built in `{document.example}`.", ""]
    lines += ["| Section | Requirement | Kept in | Shown by |", "|---|---|---|---|"]
    for one in document.requirements:
        shown = "<br>".join(_link(test) for test in one.tests) or f"**Not tried here**: {one.reason}"
        lines.append(f"| {one.section} | {one.asked} | {one.kept} | {shown} |")
    return "\n".join(lines) + "\n"


def _link(test: str) -> str:
    path, _, name = test.partition("::")
    return f"[`{name}`](../../{path})"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
