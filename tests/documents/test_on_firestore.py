"""Documents on Firestore: with the URL of the README, the collection has the layout that its operators know."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from examples.documents.__main__ import LEASE
from examples.documents.arrivals import Announcements, Inbox
from onceward import Once, content_key
from tests.documents.pipeline_worker import BLOCKED, CHEAP, FILE, HASH, PDF, PipelineWorker, api, invoice, start_worker
from tests.documents.test_arrivals import SECRET, Hook
from tests.firestore_backends import PROJECT, document, named
from tests.servers.firestore import EMULATOR, shared
from tests.servers.firestore_tap import tapped

README = Path(__file__).resolve().parents[2] / "examples" / "documents" / "README.md"


def url_of_the_readme(tmp_path: Path) -> str:
    shared()
    [settings] = re.findall(r"firestore://my-project/processed_documents(\?[^']*)'", README.read_text(encoding="utf-8"))
    return f"firestore://{PROJECT}/{named(tmp_path)}{settings}"


@pytest.fixture(name="worker")
def _worker(tmp_path: Path) -> Iterator[PipelineWorker]:
    with Once(url_of_the_readme(tmp_path), app="documents") as once, start_worker(tmp_path, once) as worker:
        yield worker


@pytest.mark.mission("A1", "A2", "A3", "A6")
def test_the_records_of_documents_are_what_the_collection_has_always_had(worker: PipelineWorker) -> None:
    refused = invoice(company=BLOCKED)
    assert worker.deliver(source="gs://bucket/input/file.pdf").executed
    assert worker.deliver(name="renamed.pdf").replayed
    assert worker.deliver(refused, source="gs://bucket/input/refused.pdf").kind == "failed"
    assert (worker.calls(), worker.files(), worker.rows()) == ([CHEAP, CHEAP], {FILE: PDF}, [(HASH, FILE)])
    wanted = {"hash", "status", "gcs_source_path", "gcs_output_path", "created_at", "updated_at", "lock_expires_at"}
    for key, status in ((HASH, "COMPLETED"), (content_key(refused), "FAILED")):
        kept = document(named(worker.folder), key)
        assert kept is not None, "the document is named by the hash"
        shown = worker.record(key)
        assert kept.keys() - {"onceward", "expire_at"} == wanted | {"error_message"} == shown.keys()
        assert (kept["status"], shown["status"]) == (status, status)
        for name in ("hash", "gcs_source_path", "gcs_output_path", "lock_expires_at"):
            assert kept[name] == shown[name]
        assert (kept["error_message"] or "") in (shown["error_message"] or "")
        assert [kept[name].isoformat() for name in ("created_at", "updated_at")] == [
            shown[name] for name in ("created_at", "updated_at")
        ]
        assert kept["gcs_source_path"].startswith("gs://bucket/input/")
    assert (document(named(worker.folder), HASH) or {})["gcs_output_path"].endswith(f"/{FILE}")


@pytest.mark.mission("A2", "A4")
def test_while_a_document_is_processed_the_collection_says_who_holds_it_and_for_how_long(tmp_path: Path) -> None:
    seen: list[Any] = []

    def look(model: str, turns: list[str]) -> str:
        seen.append(document(named(tmp_path), HASH))
        return api.rules(model, turns)

    with (
        Once(url_of_the_readme(tmp_path), app="documents", lease=LEASE) as once,
        start_worker(tmp_path, once, rules=look) as worker,
    ):
        assert worker.deliver(source="gs://bucket/input/file.pdf").executed
    [held] = seen
    assert (held["hash"], held["status"], held["gcs_source_path"]) == (HASH, "PENDING", "gs://bucket/input/file.pdf")
    assert (held["gcs_output_path"] or None, held["error_message"] or None) == (None, None)
    assert held["lock_expires_at"] - held["updated_at"] == timedelta(seconds=600)


@pytest.mark.mission("A7")
@pytest.mark.fault("F53")
def test_a_webhook_whose_claim_got_no_reply_from_firestore_is_sent_again_and_processed_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The claim may have been written, so the endpoint cannot know that no other worker has the event."""
    with tapped(shared()) as (tap, address):
        monkeypatch.setenv(EMULATOR, address)
        deliveries = f"firestore://{PROJECT}/{named(tmp_path, 'deliveries')}"
        with (
            Once(f"sqlite:///{tmp_path}/once.db", app="documents") as once,
            Once(deliveries, app="documents") as events,
            start_worker(tmp_path, once) as worker,
        ):
            worker.arrived()
            hook = Hook(worker)
            hook.endpoint = Announcements(Inbox(worker.documents, tmp_path / "inbox"), events, SECRET).endpoint
            assert hook.send("e0", "later.pdf")[0] == 503, "opens the store"
            tap.hold("Commit")
            assert hook.send("e1", "scan.pdf")[0] == 409
            assert 1 <= int(hook.headers["retry-after"]) <= 10
            assert (worker.calls(), worker.files()) == ([], {})
            assert hook.send("e1", "scan.pdf") == (200, "executed")
            assert (worker.calls(), worker.files(), worker.rows()) == ([CHEAP], {FILE: PDF}, [(HASH, FILE)])
