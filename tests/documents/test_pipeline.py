"""Documents, end to end: each is processed once; its file and its row both exist or neither does (mission A1–A6)."""

from __future__ import annotations

import asyncio
import logging
import threading
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from examples.documents.models import Invoice
from examples.documents.pipeline import NAME, file_name
from onceward import AlreadyRunning, AsyncOnce, NotAcquired, Once, StoreUnavailable, content_key
from tests.documents.pipeline_worker import (
    BLOCKED,
    CHEAP,
    FILE,
    HASH,
    PDF,
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


# ── A1: the key ─────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.mission("A1", "A6")
def test_a_renamed_file_is_the_same_document_and_costs_nothing(worker: PipelineWorker) -> None:
    first = worker.deliver(name="scan.pdf")
    again = worker.deliver(name="scan (1).pdf")
    assert (first.kind, again.kind, first.key, again.value) == ("executed", "replayed", HASH, first.value)
    assert (worker.files(), worker.rows(), worker.calls()) == ({FILE: PDF}, [(HASH, FILE)], [CHEAP])


@pytest.mark.mission("A1")
def test_a_large_document_is_processed_in_constant_memory(worker: PipelineWorker) -> None:
    parts, _, table = PDF.partition(b"xref\n0 6")
    parts += b"%" + b"x" * (24 << 20) + b"\n"
    large = parts + b"xref\n0 6" + table.partition(b"startxref")[0] + b"startxref\n%d\n%%%%EOF\n" % len(parts)
    tracemalloc.start()
    try:
        assert worker.deliver(large).executed
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 12 << 20, "half of the file"
    assert worker.rows() == [(content_key(large), FILE)]


# ── A2: the record ──────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.mission("A2")
def test_the_record_has_the_fields_that_its_operators_know(worker: PipelineWorker) -> None:
    worker.deliver(source="gs://bucket/input/file.pdf")
    record = worker.record()
    output = f"{(worker.folder / 'bucket').as_uri()}/{FILE}"
    times = [record.pop(name) for name in ("created_at", "updated_at")]
    assert times == sorted(times)
    assert all(time.endswith("+00:00") for time in times), "aware"
    assert record == {
        "hash": HASH,
        "status": "COMPLETED",
        "gcs_source_path": "gs://bucket/input/file.pdf",
        "gcs_output_path": output,
        "lock_expires_at": None,
        "error_message": None,
    }
    assert worker.documents.record("sha256:unknown") is None


@pytest.mark.mission("A2", "A3")
def test_while_a_document_is_processed_its_record_says_until_when(tmp_path: Path, once: Once) -> None:
    seen: list[dict[str, Any]] = []

    def look(model: str, turns: list[str]) -> str:
        seen.append(worker.record())
        return api.rules(model, turns)

    with start_worker(tmp_path, once, rules=look) as worker:
        worker.deliver(source="gs://in/a.pdf")
    assert (seen[0]["status"], seen[0]["gcs_source_path"]) == ("PENDING", "gs://in/a.pdf")
    assert seen[0]["lock_expires_at"] > seen[0]["updated_at"]
    assert (seen[0]["gcs_output_path"], seen[0]["error_message"]) == (None, None)


# ── A3, A5: the lock ────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.mission("A3", "A5", "A7")
def test_a_duplicate_that_comes_while_the_first_one_is_processed_is_reported_as_running(
    tmp_path: Path, once: Once
) -> None:
    results: list[Any] = []

    def twice(model: str, turns: list[str]) -> str:
        results.append(worker.deliver(name="again.pdf").kind)
        with pytest.raises(AlreadyRunning) as refused:
            worker.documents.saga(path=worker.folder / "inbox" / "again.pdf")
        results.append(isinstance(refused.value, NotAcquired))
        return api.rules(model, turns)

    with start_worker(tmp_path, once, rules=twice) as worker:
        assert worker.deliver().executed
        assert (results, worker.calls(), len(worker.files()), len(worker.rows())) == (["running", True], [CHEAP], 1, 1)


@pytest.mark.mission("A3", "A5")
async def test_a_document_that_another_program_has_claimed_is_left_alone_until_that_failed(
    tmp_path: Path, once: Once
) -> None:
    """The same lock as an async block, for programs that process documents outside the pipeline."""
    url = f"sqlite:///{tmp_path}/once.db"
    with start_worker(tmp_path, once) as worker:
        async with AsyncOnce(url, app="documents") as beside:
            with pytest.raises(ValueError, match="no invoice number"):
                async with beside.claim(HASH, name=NAME, note={"gcs_source_path": "gs://in/first.pdf"}):
                    assert (await asyncio.to_thread(worker.deliver)).kind == "running"
                    raise ValueError("no invoice number")
        failed = await asyncio.to_thread(worker.record)
        assert (await asyncio.to_thread(worker.deliver, source="gs://in/second.pdf")).executed
        done = await asyncio.to_thread(worker.record)
    assert (failed["status"], failed["error_message"]) == ("FAILED", "ValueError: no invoice number")
    assert (done["status"], done["error_message"], done["created_at"]) == ("COMPLETED", None, failed["created_at"])


@pytest.mark.mission("A3", "A6")
def test_a_document_that_failed_is_tried_again_unless_that_is_hopeless(tmp_path: Path, once: Once) -> None:
    with start_worker(tmp_path, once, attempts=2) as worker:
        path = worker.arrived()
        away = worker.documents.models
        worker.documents.models = _Away()  # type: ignore[assignment]  # the API cannot be reached
        assert worker.documents.process(path).kind == "failed"
        record = worker.record()
        assert (record["status"], record["error_message"]) == ("FAILED", "ConnectionRefusedError: not listening")
        worker.documents.models = away
        assert worker.documents.process(path).executed
        assert worker.record()["created_at"] == record["created_at"]
        unreadable = invoice(id="")
        assert worker.deliver(unreadable).kind == "failed"
        asked = len(worker.calls())
        assert (worker.deliver(unreadable).kind, len(worker.calls())) == ("failed", asked), (
            "a retry would only cost money"
        )


@pytest.mark.mission("A6")
def test_a_passing_trouble_of_the_api_is_waited_for(tmp_path: Path, once: Once) -> None:
    with start_worker(tmp_path, once) as worker:
        here = worker.documents.models

        class AwayOnce(_Away):
            def ask(self, *_: object) -> str:
                worker.documents.models = here
                return super().ask()

        worker.documents.models = AwayOnce()  # type: ignore[assignment]  # as above
        assert worker.deliver().executed


class _Away:
    order = (CHEAP, CHEAP, STRONG)

    def ask(self, *_: object) -> str:
        raise ConnectionRefusedError("not listening")


# ── A6: file and row, both or neither ───────────────────────────────────────────────────────────────────────────────


@pytest.mark.mission("A6")
def test_a_row_that_the_warehouse_refuses_undoes_the_file(
    worker: PipelineWorker, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "onceward")
    content = invoice(company=BLOCKED)
    outcome = worker.deliver(content)
    record = worker.record(outcome.key)
    assert (outcome.kind, record["status"], record["gcs_output_path"]) == ("failed", "FAILED", None)
    assert "documents rejects a row" in record["error_message"]
    assert (worker.files(), worker.rows()) == ({}, [])
    assert [one.message.split()[0] for one in caplog.records if one.name == "onceward"].count("step_undone") == 2


@pytest.mark.mission("A6", "A7")
@pytest.mark.fault("F51")
def test_while_the_warehouse_is_down_the_file_waits_for_its_row_and_no_model_is_asked_again(
    tmp_path: Path, once: Once, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(*_: object, **__: object) -> None:
        raise StoreUnavailable("the warehouse does not answer")

    with start_worker(tmp_path, once, attempts=2) as worker:
        with monkeypatch.context() as patched:
            patched.setattr(worker.house, "load", away)
            assert worker.deliver().kind == "parked"
        record = worker.record()
        assert (record["status"], list(worker.files()), worker.rows()) == ("PARKED", [FILE], [])
        assert "the warehouse does not answer" in record["error_message"]
        assert worker.deliver(name="again.pdf").executed
        assert (worker.calls(), worker.files(), worker.rows()) == ([CHEAP], {FILE: PDF}, [(HASH, FILE)])


@pytest.mark.mission("A6")
@pytest.mark.fault("F18")
def test_two_documents_of_one_name_are_two_files_and_none_is_overwritten(worker: PipelineWorker) -> None:
    page_2 = invoice("Page 2")
    mark = content_key(page_2).removeprefix("sha256:")[:12]
    for content in (PDF, page_2, PDF, page_2):
        worker.deliver(content)
    beside = FILE.replace(".pdf", f"-{mark}.pdf")
    assert worker.files() == {FILE: PDF, beside: page_2}
    assert worker.rows() == sorted([(HASH, FILE), (content_key(page_2), beside)], key=lambda row: row[1])


@pytest.mark.mission("A6")
@pytest.mark.parametrize(
    "company", ["../../../etc/cron.d/x", "..", "/", "A/B", "a\0b", "x" * 300, "ü" * 300, "\\..\\", "CON"]
)
def test_a_company_cannot_lead_out_of_the_folder_by_its_name(worker: PipelineWorker, company: str) -> None:
    name = file_name(Invoice("../R-1", company, "2026-03-01", 1))
    assert "/" not in name
    assert "\\" not in name
    assert name.isprintable()
    assert len(name.encode()) < 220
    assert name.endswith("_2026-03-01.pdf")
    (worker.folder / "bucket" / name).write_bytes(b"")
    assert set(worker.files()) == {name}


@pytest.mark.mission("A6")
def test_a_company_with_such_a_name_is_processed_like_any_other(worker: PipelineWorker) -> None:
    for company in ("../../../etc/cron.d/x", "Hooli " * 60, "a\0b"):
        assert worker.deliver(invoice(company=company)).executed
    assert sorted(path.name for path in worker.folder.iterdir()) == [
        "bucket", "calls", "house.db", "house.db-shm", "house.db-wal", "inbox", "once.db", "once.db-shm", "once.db-wal"
    ]  # fmt: skip
    assert len(worker.files()) == len(worker.rows()) == 3


@pytest.mark.mission("A6")
@pytest.mark.fault("F19")
def test_a_file_that_is_changed_while_it_is_processed_is_not_published_as_what_it_was(
    tmp_path: Path, once: Once
) -> None:
    other = invoice("Changed")

    def change(model: str, turns: list[str]) -> str:
        if not (worker.folder / "calls").exists():
            worker.arrived(other)
        return api.rules(model, turns)

    with start_worker(tmp_path, once, rules=change) as worker:
        path = worker.arrived()
        assert worker.documents.process(path).kind == "failed"
        assert (worker.files(), worker.rows()) == ({}, [])
        assert "the source is no longer sha256:" in worker.record()["error_message"]
        assert worker.documents.process(path).executed, "its content now"
        assert worker.files() == {FILE: other}
        assert worker.deliver(name="again.pdf").executed, "its former content, when it is delivered again"
        assert set(worker.files().values()) == {PDF, other}


@pytest.mark.mission("A6")
def test_a_file_that_is_gone_before_it_is_published_may_come_again(tmp_path: Path, once: Once) -> None:
    def take_away(model: str, turns: list[str]) -> str:
        (worker.folder / "inbox" / "scan.pdf").unlink(missing_ok=True)
        return api.rules(model, turns)

    with start_worker(tmp_path, once, rules=take_away) as worker:
        assert worker.deliver().kind == "failed"
        assert (worker.record()["status"], worker.files(), worker.rows()) == ("FAILED", {}, [])
        assert worker.deliver(name="another.pdf").executed


@pytest.mark.mission("A6", "A3")
def test_of_many_concurrent_deliveries_one_is_processed(tmp_path: Path, once: Once) -> None:
    arrived = threading.Barrier(6)
    kinds: list[str] = []

    def deliver(number: int) -> None:
        path = worker.arrived(PDF, f"{number}.pdf")
        arrived.wait(60)
        kinds.append(worker.documents.process(path).kind)

    with start_worker(tmp_path, once) as worker:
        pool = [threading.Thread(target=deliver, args=(number,)) for number in range(6)]
        for one in pool:
            one.start()
        for one in pool:
            one.join()
        assert kinds.count("executed") == 1
        assert set(kinds) <= {"executed", "running", "replayed"}
        assert (worker.calls(), worker.files(), worker.rows()) == ([CHEAP], {FILE: PDF}, [(HASH, FILE)])
