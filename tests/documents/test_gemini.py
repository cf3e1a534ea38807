"""The models' client against a server that answers like the public Gemini API. The real API is not asked here."""

from __future__ import annotations

import json
import time
from typing import Any
from urllib.error import HTTPError

import pytest

from examples.documents.models import Models, Unreadable, extract
from tests.documents.gemini_server import KEY, Answer, Gemini, blocked, error, text, too_many

TEXT = "Invoice R-1 Company Acme Date 2026-03-01 Total 350"
RIGHT = json.dumps({"id": "R-1", "company": "Acme", "date": "2026-03-01", "cents": 350})


def ask(*answers: Answer, key: str = KEY, **choices: Any) -> tuple[Any, list[str]]:
    """Extract the invoice; return it, and the models that were asked."""
    with Gemini(*answers) as server:
        try:
            found: Any = extract(Models(server.url, key, pause=0.001, **choices), TEXT, lambda: None)
        except Unreadable as unreadable:
            found = unreadable
        assert all(body["generationConfig"] == {"responseMimeType": "application/json"} for _, body in server.asked)
        return found, [model for model, _ in server.asked]


@pytest.mark.mission("A6")
def test_an_answer_may_have_several_parts_and_thoughts() -> None:
    found, asked = ask(text(RIGHT[:10], RIGHT[10:], thoughts="It looks like an invoice."))
    assert (found.id, asked) == ("R-1", ["gemini-2.5-flash"])


@pytest.mark.mission("A6")
def test_a_wrong_or_blocked_answer_is_corrected_and_then_the_strong_model_is_asked() -> None:
    found, asked = ask(text("{}"), blocked(), text(RIGHT), cheap="cheap-1", strong="strong-1")
    assert (found.company, asked) == ("Acme", ["cheap-1", "cheap-1", "strong-1"])
    found, asked = ask(*[blocked()] * 3)
    assert isinstance(found, Unreadable)


@pytest.mark.mission("A4", "A6")
def test_a_busy_api_is_asked_again_after_the_time_that_it_names(monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []
    monkeypatch.setattr(time, "sleep", slept.append)
    found, asked = ask(too_many("31s"), too_many("0.5s"), error(503, "UNAVAILABLE", "overloaded"), text(RIGHT))
    assert (found.id, len(asked)) == ("R-1", 4)
    assert slept[:2] == [31.0, 0.5]
    assert slept[2] < 0.1, "without a time, the client's own pause"


@pytest.mark.mission("A6")
def test_a_wrong_key_is_an_error_and_not_asked_again() -> None:
    with pytest.raises(HTTPError, match="400"):
        ask(text(RIGHT), key="wrong")
