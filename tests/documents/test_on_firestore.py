"""Documents on Firestore: with the URL of the README, the collection has the layout that its operators know."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from onceward import Once, content_key
from tests.documents.stage import BLOCKED, CHEAP, FILE, HASH, PDF, Stage, invoice, staged
from tests.firestore_backends import PROJECT, document, named
from tests.servers.firestore import shared

README = Path(__file__).resolve().parents[2] / "examples" / "documents" / "README.md"


@pytest.fixture(name="stage")
def _stage(tmp_path: Path) -> Iterator[Stage]:
    shared()
    [settings] = re.findall(r"firestore://my-project/processed_documents(\?[^']*)'", README.read_text(encoding="utf-8"))
    url = f"firestore://{PROJECT}/{named(tmp_path)}{settings}"
    with Once(url, app="documents") as once, staged(tmp_path, once) as stage:
        yield stage


@pytest.mark.mission("A1", "A2", "A3", "A6")
def test_the_records_of_documents_are_what_the_collection_has_always_had(stage: Stage) -> None:
    refused = invoice(company=BLOCKED)
    assert stage.deliver(source="gs://bucket/input/file.pdf").executed
    assert stage.deliver(name="renamed.pdf").replayed
    assert stage.deliver(refused, source="gs://bucket/input/refused.pdf").kind == "failed"
    assert (stage.calls(), stage.files(), stage.rows()) == ([CHEAP, CHEAP], {FILE: PDF}, [(HASH, FILE)])
    wanted = {"hash", "status", "gcs_source_path", "gcs_output_path", "created_at", "updated_at", "lock_expires_at"}
    for key, status in ((HASH, "COMPLETED"), (content_key(refused), "FAILED")):
        kept = document(named(stage.folder), key)
        assert kept is not None, "the document is named by the hash"
        shown = stage.record(key)
        assert kept.keys() - {"onceward", "expire_at"} == wanted | {"error_message"} == shown.keys()
        assert (kept["status"], shown["status"]) == (status, status)
        for name in ("hash", "gcs_source_path", "gcs_output_path", "lock_expires_at"):
            assert kept[name] == shown[name]
        assert (kept["error_message"] or "") in (shown["error_message"] or "")
