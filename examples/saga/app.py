"""Publish documents: a file in object storage (here a folder) and a row in the warehouse. Both, or neither."""

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
    """A document to publish."""

    number: int
    company: str
    date: str
    pages: int

    @property
    def file(self) -> str:
        return f"{self.number}_{self.company}_{self.date}.pdf"


class RowRefused(Exception):
    """The warehouse never accepts this row."""


def upload(step: StepContext) -> str:
    document: Document = step.input
    temporary = BUCKET / f".{step.key}"
    temporary.write_bytes(b"%PDF " * document.pages)
    temporary.replace(BUCKET / document.file)  # idempotent: the same name and the same bytes
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
    """Kill this process here, once, for the demonstration."""
    flag = FOLDER / f"crash {where} {document.number}"
    if flag.exists():
        flag.unlink()
        os.kill(os.getpid(), 9)


publish = once.saga(
    "publish",
    Step("upload", upload, undo=remove),
    Step("insert", insert, kind="pivot", final=RowRefused, after_crash=verify(find_row)),
    input_type=Document,
    key="document:{number}",
)
