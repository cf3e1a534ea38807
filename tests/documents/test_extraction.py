"""The extraction of documents by models: corrected, escalated, and never believed blindly (mission A6)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.error import HTTPError

import pytest

from examples.documents import models
from examples.documents.models import Invoice
from examples.documents.samples import pdf
from onceward import Once, content_key
from tests.documents.pipeline_worker import (
    CHEAP,
    FILE,
    HASH,
    STRONG,
    PipelineWorker,
    api,
    invoice,
    start_worker,
)


@pytest.fixture(name="once")
def _once(tmp_path: Path) -> Iterator[Once]:
    with Once(f"sqlite:///{tmp_path}/once.db?synchronous=NORMAL", app="documents") as once:
        yield once


@pytest.fixture(name="worker")
def _worker(tmp_path: Path, once: Once) -> Iterator[PipelineWorker]:
    with start_worker(tmp_path, once) as worker:
        yield worker


# ── A6: extraction ──────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.mission("A6")
@pytest.mark.parametrize(
    ("printed", "asked"),
    [
        ({}, [CHEAP]),
        ({"date": "01.03.2026"}, [CHEAP, CHEAP]),
        ({"total": ""}, [CHEAP, CHEAP, STRONG]),
        ({"date": "01.03.2026", "total": ""}, [CHEAP, CHEAP, STRONG]),
    ],
    ids=["right immediately", "corrects itself", "escalated", "escalated with two faults"],
)
def test_the_cheap_model_is_asked_first_then_corrected_and_then_replaced_by_the_strong_one(
    worker: PipelineWorker, printed: dict[str, str], asked: list[str]
) -> None:
    outcome = worker.deliver(invoice(**printed))
    assert outcome.value is not None
    assert outcome.value["extract"] == Invoice("R-1", "Acme Ltd", "2026-03-01", 350)
    assert worker.calls() == asked


@pytest.mark.mission("A6", "A5")
@pytest.mark.parametrize(
    ("content", "said"),
    [
        (invoice(id=""), "id is empty"),
        (pdf([]), "no text"),
        (b"%PDF-1.4 but no more", "not a readable PDF"),
        (b"", "not a readable PDF"),
    ],
    ids=["no model finds its number", "no text", "damaged", "empty"],
)
def test_an_unreadable_document_ends_failed_and_leaves_nothing(
    worker: PipelineWorker, content: bytes, said: str
) -> None:
    assert worker.deliver(content).kind == "failed"
    record = worker.record(content_key(content))
    assert record["status"] == "FAILED"
    assert said in record["error_message"]
    assert (worker.files(), worker.rows()) == ({}, [])


GOOD = {"id": "R-1", "company": "Acme Ltd", "date": "2026-03-01", "cents": 350}


@pytest.mark.mission("A6")
@pytest.mark.parametrize(
    "answer",
    [
        "I am sorry",
        "",
        "[" * 100_000,
        json.dumps({**GOOD, "date": "20260301"}),
        json.dumps({**GOOD, "date": "2026-W09-7"}),
        json.dumps({**GOOD, "cents": 10**30}),
        json.dumps({**GOOD, "cents": 3.5}),
        None,
    ],
    ids=["no JSON", "empty", "deep", "short date", "week", "too much", "half a cent", "blocked"],
)
def test_an_answer_that_cannot_be_true_is_corrected_by_the_next_model(
    tmp_path: Path, once: Once, answer: str | None
) -> None:
    def at_first(_model: str, turns: list[str]) -> Any:
        return answer if len(turns) == 1 else json.dumps(GOOD)

    with start_worker(tmp_path, once, rules=at_first) as worker:
        assert worker.deliver().executed
        assert (worker.calls(), worker.rows()) == ([CHEAP, CHEAP], [(HASH, FILE)])


@pytest.mark.mission("A6")
def test_values_that_a_model_invents_are_rejected(tmp_path: Path, once: Once) -> None:
    def inventive(model: str, turns: list[str]) -> str:
        asked.append(turns[-1])
        return json.dumps(
            {"id": "R-1", "company": "Acme Ltd" if model == STRONG else "A Me", "date": "2026-03-01", "cents": 1}
        )

    asked: list[str] = []
    with start_worker(tmp_path, once, rules=inventive) as worker:
        assert worker.deliver().executed
    assert ["company is not in the document" in turn for turn in asked] == [False, True, True]


@pytest.mark.mission("A6", "A4")
def test_a_busy_api_is_asked_again_and_no_answer_is_paid_for_twice(tmp_path: Path, once: Once) -> None:
    with start_worker(tmp_path, once, busy_every=2) as worker:
        for number in range(6):
            assert worker.deliver(invoice(id=f"R-{number}"), f"{number}.pdf").executed
        assert (len(worker.calls()), len(worker.calls("429"))) == (6, 5)


@pytest.mark.mission("A6")
def test_pauses_grow_but_are_at_least_as_long_as_the_api_asks_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    slept: list[float] = []
    monkeypatch.setattr(models, "time", SimpleNamespace(sleep=slept.append, monotonic=slept.__len__))
    for retry_after, patience in ((0, 4), (7, 2)):
        with api.stand_in(tmp_path / "calls", busy_every=1, retry_after=retry_after) as url:
            asking = models.Models(url, pause=1.0, retry_for=patience)
            with pytest.raises(HTTPError, match="Too Many Requests"):
                asking.ask(CHEAP, ["?"], lambda: None)
        growing = [0.5 <= pause / 2**number <= 1.5 for number, pause in enumerate(slept)]
        assert all(growing) if not retry_after else slept == [7.0, 7.0, 7.0], slept
        slept.clear()
