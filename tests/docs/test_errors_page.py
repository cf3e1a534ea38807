"""The page about errors lists every exception, with the code and status that it really has."""

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


def test_the_tree_on_top_of_the_file_and_the_public_names_have_every_error_too() -> None:
    for name in every_error():
        assert re.search(rf"(^|\s){name}(\s|$)", errors.__doc__ or "", re.MULTILINE), f"{name} is not in the tree"
        assert name in onceward.__all__


def test_codes_are_unique() -> None:
    codes = [code for code, _ in every_error().values()]
    assert len(codes) == len(set(codes))
