"""The public API changes on purpose only: names and signatures are compared with a committed text."""

from __future__ import annotations

import difflib
from pathlib import Path

import pytest

import onceward
from tests.public_api import describe

SNAPSHOT = Path(__file__).parent.parent / "public_api.txt"


def test_the_public_api_is_the_committed_one() -> None:
    committed = SNAPSHOT.read_text(encoding="utf-8").splitlines()
    current = "\n".join(describe()).strip().splitlines()
    changes = [*difflib.unified_diff(committed, current, "tests/public_api.txt", "the code", lineterm="", n=1)]
    assert not changes, "\n".join(
        ["the public API changed; if that is intended: python -m tests.public_api > tests/public_api.txt", *changes]
    )


@pytest.mark.finding("N60")
def test_the_top_level_has_at_most_50_names() -> None:
    assert len(onceward.__all__) <= 50
    assert [name for name in onceward.__all__ if not hasattr(onceward, name)] == []
