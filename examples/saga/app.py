"""Documents are published: a file in object storage (a folder here) and a row in the warehouse. Both, or neither."""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from pathlib import Path

from msgspec import Struct

from onceward import Once, applied, not_applied, verify
from onceward.sagas import Step, StepContext

FOLDER = Path(os.environ.get("SAGA_FOLDER", "."))
BUCKET = FOLDER / "bucket"
WAREHOUSE = FOLDER / "warehouse.db"

once = Once(f"sqlite:///{FOLDER / 'once.db'}", app="documents", lease="500ms")


class Document(Struct):
    """What is known of a document when it is published."""

    number: int
    company: str
    date: str
    pages: int

    @property
    def file(self) -> str:
        return f"{self.number}_{self.company}_{self.date}.pdf"


class RowRefused(Exception):
    """The warehouse will never take this row."""


def upload(step: StepContext) -> str:
    document: Document = step.input
    made = BUCKET / f".{step.key}"
    made.write_bytes(b"%PDF " * document.pages)
    made.replace(BUCKET / document.file)  # by nature idempotent: the same name, the same bytes
    crash_if_asked("uploaded", document)
    return document.file


def remove(step: StepContext) -> None:
    (BUCKET / step.result).unlink(missing_ok=True)


def insert(step: StepContext) -> int:
    document: Document = step.input
    if document.pages == 0:
        raise RowRefused(f"{document.file} has no pages")
    with closing(warehouse()) as connection, connection:
        connection.execute(
            "INSERT INTO documents VALUES (?, ?, ?, ?)",
            (step.key, document.number, document.company, step.results["upload"]),
        )
    crash_if_asked("inserted", document)
    return document.pages


def find_row(step: StepContext) -> object:
    with closing(warehouse()) as connection:
        rows = connection.execute("SELECT 1 FROM documents WHERE step_key = ?", (step.key,)).fetchall()
    return applied(step.input.pages) if rows else not_applied


def warehouse() -> sqlite3.Connection:
    connection = sqlite3.connect(WAREHOUSE, timeout=30)
    connection.execute("CREATE TABLE IF NOT EXISTS documents (step_key TEXT, number INTEGER, company TEXT, file TEXT)")
    return connection


def crash_if_asked(where: str, document: Document) -> None:
    """For the demonstration: this process dies here, once."""
    mark = FOLDER / f"crash {where} {document.number}"
    if mark.exists():
        mark.unlink()
        os.kill(os.getpid(), 9)


publish = once.saga(
    "publish",
    Step("upload", upload, undo=remove),
    Step("insert", insert, kind="pivot", final=RowRefused, after_crash=verify(find_row)),
    input_type=Document,
    key="document:{number}",
)
