"""The command lists the file of the operations page as the page shows."""

from __future__ import annotations

from pathlib import Path

import pytest

from onceward.operations.table import FIELDS
from tests.cli.calls import call
from tests.docs.pages import ROOT, blocks, files

PAGE = ROOT / "docs" / "howto" / "operations.md"


@pytest.mark.mission("C9")
def test_the_file_of_the_page_is_listed_as_the_page_shows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    ((name, text),) = files(PAGE).items()
    (tmp_path / name).write_text(text, encoding="utf-8")
    (shell,) = [block for block in blocks(PAGE) if block.language == "sh"]
    command, *shown = shell.lines
    result = call(*command.split()[1:])
    assert result.exit_code == 0
    assert [f"# {line}" for line in result.stdout.splitlines()] == shown


def test_every_field_that_is_not_a_setting_is_told() -> None:
    text = PAGE.read_text(encoding="utf-8")
    for field in FIELDS[:4]:
        assert f"`{field}`" in text
