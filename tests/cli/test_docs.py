"""`onceward docs`: errors and alerts name a page, and the command prints it."""

from __future__ import annotations

import traceback
from importlib.resources import files
from pathlib import Path

import pytest

from onceward import LeaseLost, PayloadMismatch, errors
from onceward.cli.exit_codes import Exit
from onceward.observe.rules import RULES
from tests.cli.calls import as_json, call, line

PAGE = Path(__file__).parents[2] / "docs" / "howto" / "errors.md"


@pytest.mark.finding("N59")
def test_every_error_and_every_rule_has_a_topic() -> None:
    kinds = [
        kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, errors.OncewardError)
    ]
    topics = as_json("docs")
    assert set(topics) == {f"errors#{kind.code.replace('_', '-')}" for kind in kinds} | {
        f"runbooks#{rule.name.replace('_', '-')}" for rule in RULES
    }


@pytest.mark.finding("N59")
def test_a_traceback_names_the_page_that_the_command_prints() -> None:
    last = traceback.format_exception(LeaseLost("late"))[-1].strip()
    assert last == "Help: onceward docs errors#lease-lost"
    text = call(*last.split()[2:], "-o", "table").stdout
    assert text.startswith("LeaseLost (code lease_lost, HTTP status 409)\n\nStop and roll back")


def test_the_text_of_an_error_does_not_change() -> None:
    assert str(PayloadMismatch("other payload", key="k")) == "other payload [key k]"


def test_links_are_printed_as_text() -> None:
    for topic, section in ((topic, as_json("docs", topic)) for topic in as_json("docs")):
        assert "](" not in section["text"], topic


def test_once_the_documentation_is_published_errors_name_its_address(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(errors, "DOCS_URL", "https://docs.example/")
    assert LeaseLost("late").page == "https://docs.example/howto/errors.html#lease-lost"


def test_a_mistyped_topic_suggests_the_nearest_one() -> None:
    result = call("docs", "errors#lease-lots")
    assert result.exit_code == Exit.ABSENT
    assert "did you mean 'errors#lease-lost'?" in line(result)


def test_the_page_in_the_package_is_the_one_in_the_docs() -> None:
    shipped = files("onceward.cli").joinpath("pages", "errors.md").read_text(encoding="utf-8")
    assert PAGE.read_text(encoding="utf-8") == shipped, "copy docs/howto/errors.md over it"
