"""The Lua scripts as they are sent to the server: constants are replaced by their values, texts in quotes stay."""

from __future__ import annotations

import re

import pytest

from onceward.stores.redis import scripts


def test_constants_are_replaced_except_in_texts_and_comments() -> None:
    text = "local FREE, PENDING = 0, 1\nreturn {FREE, PENDING, 'PENDING', READER}  -- a PENDING record\n"
    assert scripts.assemble(text).source.decode().split() == ["return", "{0,", "1,", "'PENDING',", "1}"]


@pytest.mark.parametrize("name", scripts.SCRIPT_FILES)
def test_no_script_declares_a_constant_twice(name: str) -> None:
    """The second value would replace the first one everywhere."""
    text = re.sub(scripts.COMMENT, "", scripts.script_text(name))
    declared = [word for names, _ in re.findall(scripts.DECLARATION, text) for word in names.split(", ")]
    assert sorted(declared) == sorted({*declared} - scripts.CONSTANTS.keys())


@pytest.mark.parametrize("name", scripts.SCRIPT_FILES)
def test_no_text_of_a_script_contains_two_dashes(name: str) -> None:
    """They would be removed as a comment."""
    code = re.sub(r"(^|\s)--(\s.*|$)", "", scripts.script_text(name), flags=re.MULTILINE)
    assert "--" not in code
