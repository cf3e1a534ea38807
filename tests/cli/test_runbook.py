"""`onceward runbook`: the runbooks of the installed package."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

import pytest

from onceward import errors
from onceward.cli.exit_codes import Exit
from onceward.observe.rules import RULES
from tests.cli.calls import as_json, call, line


@pytest.mark.finding("N28")
def test_every_rule_has_a_runbook_in_the_package() -> None:
    listed = call("runbook", "-o", "table").stdout.splitlines()
    assert set(listed) == {rule.name.replace("_", "-") for rule in RULES}
    for name in listed:
        text = call("runbook", name, "-o", "table").stdout
        assert text.startswith(f"{name}\n\n**")
        assert "\n1. " in text
        assert "](" not in text
    assert as_json("runbook") == listed


@pytest.mark.finding("N28")
def test_a_link_is_printed_as_a_command_or_as_the_place_of_its_page(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "Continue with `onceward runbook claim-errors`." in as_json("runbook", "unknown")["text"]
    assert as_json("runbook", "parked")["text"].endswith("see crashes (docs/howto/crashes.md).")
    monkeypatch.setattr(errors, "DOCS_URL", "https://docs.example/")
    assert "see crashes (https://docs.example/howto/crashes.html)." in as_json("docs", "runbooks#parked")["text"]


@pytest.mark.finding("N28")
def test_a_runbook_may_be_called_by_the_name_of_its_rule() -> None:
    assert as_json("runbook", "old_pending")["name"] == "old-pending"


@pytest.mark.finding("N28")
def test_a_mistyped_name_suggests_the_nearest_runbook() -> None:
    result = call("runbook", "parkd")
    assert result.exit_code == Exit.ABSENT
    assert "did you mean 'parked'?" in line(result)


@pytest.mark.finding("N28")
def test_the_page_in_the_docs_is_the_one_in_the_package() -> None:
    page = Path(__file__).parents[2] / "docs" / "howto" / "runbooks.md"
    shipped = files("onceward.observe").joinpath("shipped", "runbooks.md").read_text(encoding="utf-8")
    assert page.read_text(encoding="utf-8") == shipped, "copy docs/howto/runbooks.md over it"
