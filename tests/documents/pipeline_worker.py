"""The document pipeline for tests: real files, a real warehouse, and real HTTP to models that the test scripts."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from examples.documents import stand_in as api
from examples.documents.models import CHEAP, STRONG, Models
from examples.documents.pipeline import Documents
from examples.documents.samples import BLOCKED, pdf
from onceward import Once, Outcome, content_key
from onceward.objects import open_objects
from onceward.warehouse import open_warehouse
from onceward.warehouse.sqlite import SQLiteWarehouse


def invoice(
    *more: str, id: str = "R-1", company: str = "Acme Ltd", date: str = "2026-03-01", total: str = "350"
) -> bytes:
    """Return a PDF file with these lines; empty values are left out."""
    printed = (
        ("Invoice", id),
        ("Company", company),
        ("Date", date),
        ("Item", "100"),
        ("Item", "250"),
        ("Total", total),
    )
    return pdf([*(f"{word} {value}" for word, value in printed if value), *more])


PDF = invoice()
HASH = content_key(PDF)
FILE = "R-1_Acme Ltd_2026-03-01.pdf"

__all__ = ["BLOCKED", "CHEAP", "FILE", "HASH", "PDF", "STRONG", "PipelineWorker", "api", "invoice", "start_worker"]


class PipelineWorker:
    """One worker's pipeline; `deliver` processes an incoming file."""

    def __init__(self, folder: Path, once: Once, models: str, **choices: Any) -> None:
        self.folder = folder
        self.once = once
        self._models = models
        self._bucket = folder / "bucket"
        self.house = open_warehouse(f"sqlite:///{folder}/house.db?synchronous=NORMAL")
        assert isinstance(self.house, SQLiteWarehouse)
        self.house.connection.execute(
            "CREATE TABLE IF NOT EXISTS documents (hash text PRIMARY KEY, id text, date text, cents bigint, file text,"
            f" company text CHECK (company <> '{BLOCKED}'))"
        )
        objects = open_objects(self._bucket.as_uri())
        self.documents = Documents(once, objects, self.house, Models(models, pause=0.01), **choices)

    def another(self, once: Once, **choices: Any) -> PipelineWorker:
        """Return another worker on the same files and rows."""
        return PipelineWorker(self.folder, once, self._models, **choices)

    def deliver(self, content: bytes = PDF, name: str = "scan.pdf", source: str = "") -> Outcome[dict[str, Any]]:
        return self.documents.process(self.arrived(content, name), source)

    def arrived(self, content: bytes = PDF, name: str = "scan.pdf") -> Path:
        path = self.folder / "inbox" / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(content)
        return path

    def files(self) -> dict[str, bytes]:
        return {path.name: path.read_bytes() for path in self._bucket.glob("*") if path.is_file()}

    def rows(self) -> list[tuple[str, str]]:
        return self.house.connection.execute("SELECT hash, file FROM documents ORDER BY file").fetchall()  # type: ignore[attr-defined, no-any-return]  # it is SQLite's

    def calls(self, status: str = "200") -> list[str]:
        """Return the models that were asked and answered with this status."""
        log = self.folder / "calls"
        lines = [line.split() for line in log.read_text().splitlines()] if log.exists() else []
        return [model for answered, model, _ in lines if answered == status]

    def record(self, key: str = HASH) -> dict[str, Any]:
        found = self.documents.record(key)
        assert found is not None
        return found


@contextmanager
def start_worker(
    folder: Path, once: Once, *, busy_every: int = 0, rules: api.Rules = api.rules, **choices: Any
) -> Iterator[PipelineWorker]:
    with api.stand_in(folder / "calls", busy_every=busy_every, rules=rules) as models:
        worker = PipelineWorker(folder, once, models, **choices)
        try:
            yield worker
        finally:
            worker.house.close()
