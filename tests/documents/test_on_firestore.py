"""Documents on Firestore: with the URL of the README, the collection has the layout that its operators know."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from onceward import Once, content_key
from tests.documents.pipeline_worker import BLOCKED, CHEAP, FILE, HASH, PDF, PipelineWorker, invoice, start_worker
from tests.firestore_backends import PROJECT, document, named
from tests.servers.firestore import shared

README = Path(__file__).resolve().parents[2] / "examples" / "documents" / "README.md"


@pytest.fixture(name="worker")
def _worker(tmp_path: Path) -> Iterator[PipelineWorker]:
    shared()
    [settings] = re.findall(r"firestore://my-project/processed_documents(\?[^']*)'", README.read_text(encoding="utf-8"))
    url = f"firestore://{PROJECT}/{named(tmp_path)}{settings}"
    with Once(url, app="documents") as once, start_worker(tmp_path, once) as worker:
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
