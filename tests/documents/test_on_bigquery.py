"""The rows of documents in BigQuery, as the document asks: on its emulator."""

from __future__ import annotations

from pathlib import Path
from uuid import uuid4

import pytest

from examples.documents import stand_in as api
from examples.documents.models import Models
from examples.documents.pipeline import Documents
from onceward import Once
from onceward.objects import open_objects
from onceward.warehouse import ComparesRows, open_warehouse
from tests.documents.pipeline_worker import FILE, HASH, PDF
from tests.servers.bigquery import shared as shared_bigquery


@pytest.mark.mission("A6")
def test_a_document_that_is_delivered_twice_is_one_row_in_bigquery(tmp_path: Path) -> None:
    (tmp_path / "scan.pdf").write_bytes(PDF)
    (tmp_path / "renamed.pdf").write_bytes(PDF)
    url = f"bigquery://onceward-test/d{uuid4().hex[:12]}?endpoint={shared_bigquery().endpoint}"
    house = open_warehouse(url)
    assert isinstance(house, ComparesRows)
    with (
        Once(f"sqlite:///{tmp_path}/once.db", app="documents") as once,
        open_objects((tmp_path / "bucket").as_uri()) as objects,
        api.stand_in(tmp_path / "calls") as models,
    ):
        documents = Documents(once, objects, house, Models(models, pause=0.01))
        kinds = [documents.process(tmp_path / name).kind for name in ("scan.pdf", "renamed.pdf")]
        rows = house.query("SELECT hash, id, company, date, cents, file FROM documents")
    house.close()
    assert kinds == ["executed", "replayed"]
    assert rows == [(HASH, "R-1", "Acme Ltd", "2026-03-01", 350, FILE)]
