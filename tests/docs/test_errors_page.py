"""The errors page lists every exception with its actual code and status."""

from __future__ import annotations

import re

import onceward
from onceward import errors
from tests.docs.pages import ROOT


def every_error() -> dict[str, tuple[str, int]]:
    return {
        name: (kind.code, kind.http_status)
        for name, kind in vars(errors).items()
        if isinstance(kind, type) and issubclass(kind, errors.OncewardError)
    }


def test_the_page_lists_every_error_with_its_code_and_status() -> None:
    page = (ROOT / "docs/howto/errors.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(\w+)` \| `(\w+)` \| (\d+) \| \S", page, re.MULTILINE)
    assert {name: (code, int(status)) for name, code, status in rows} == every_error()
    assert len(rows) == len(every_error())


def test_the_tree_in_the_module_docstring_has_every_error() -> None:
    for name in every_error():
        assert re.search(rf"(^|\s){name}(\s|$)", errors.__doc__ or "", re.MULTILINE), f"{name} is not in the tree"


def test_errors_at_the_top_level_are_those_of_the_module() -> None:
    common = [name for name in onceward.__all__ if name in every_error()]
    assert len(common) == 14
    for name in common:
        assert getattr(onceward, name) is getattr(errors, name)


def test_codes_are_unique() -> None:
    codes = [code for code, _ in every_error().values()]
    assert len(codes) == len(set(codes))
