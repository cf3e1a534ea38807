"""The pipeline: content key → claim → text → extraction → file and row, both or neither → COMPLETED or FAILED.

The work is a saga of three steps, under the hash of the file's content.
"""

from __future__ import annotations

import logging
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, Literal

from msgspec import Struct

from examples.documents.models import Invoice, Models, Unreadable, extract
from examples.documents.text import text_of
from onceward import Content, Failed, NotAcquired, Once, Outcome, Parked, PayloadMismatch, current_claim
from onceward.errors import SourceError
from onceward.objects import Objects, safe_name
from onceward.observe import Event
from onceward.sagas import Step, StepContext
from onceward.warehouse import Table, Warehouse

NAME: Final = "processed_documents"
TABLE: Final = Table(
    name="documents",
    columns={"hash": "text", "id": "text", "company": "text", "date": "text", "cents": "integer", "file": "text"},
    key=("hash",),
)
LOGGED: Final = {
    "acquired": "lock_acquired",
    "skipped": "lock_skipped_duplicate",
    "renewed": "heartbeat_extended",
    "renewal_failed": "heartbeat_failed",
    "completed": "lock_released",
    "failed": "lock_released",
    "parked": "lock_released",
    "lost": "lock_lost",
    "unprotected": "processed_unprotected",
}
"""Onceward's events, and the names under which this system logs them."""

logger = logging.getLogger("documents")


class Arrival(Struct):
    """A file that arrived. `source` is where it came from, for display."""

    path: Path
    source: str = ""


PERMANENT: Final = (Unreadable, SourceError)
"""No model can read the document, or the warehouse rejects it. Another attempt would cost money and change nothing."""

FINAL: Final = (*PERMANENT, PayloadMismatch, FileNotFoundError)
"""Also: the file is missing, or its content has changed since the claim. It may be delivered again later."""


class Documents:
    """Process each document once.

    With `on_store_down="run"`, documents are processed without a claim while the store is down, and are appended to
    `unprotected_list`. `attempts` is the limit for each step; an attempt whose worker crashed counts.
    """

    def __init__(
        self,
        once: Once,
        objects: Objects,
        warehouse: Warehouse,
        models: Models,
        *,
        on_store_down: Literal["raise", "run"] = "raise",
        unprotected_list: Path | None = None,
        attempts: int = 20,
    ) -> None:
        self.once = once
        self._objects = objects
        self._warehouse = warehouse
        self.models = models
        self._unprotected_list = unprotected_list
        warehouse.prepare(TABLE)
        retries: Any = {"final": FINAL, "max_attempts": attempts}
        self.saga = once.saga(
            NAME,
            # whatever it raises, a request to a model has no lasting effect
            Step("extract", self._extract, undo=_undo_nothing, not_applied=(Exception, TimeoutError), **retries),
            Step("upload", self._upload, undo=self._remove, **retries),
            Step("load", self._load, kind="pivot", **retries),
            input_type=Arrival,
            key=Content("path"),  # a renamed file is the same file
            window="forever",
            on_running="raise",
            on_store_down=on_store_down,
        )
        once.subscribe(self._log)

    def process(self, path: Path, source: str = "") -> Outcome[dict[str, Any]]:
        """Process the file, and return the outcome. If an earlier delivery failed and a retry may help, retry it."""
        arrival = {"path": path, "source": source or path.absolute().as_uri()}
        outcome = self.saga.outcome(**arrival)
        if isinstance(outcome, Failed | Parked) and outcome.exception is None and not is_settled(outcome):
            with suppress(NotAcquired):  # another worker was faster, or an operator must resolve it
                self.saga.retry(**arrival)
            outcome = self.saga.outcome(**arrival)
        return outcome

    def record(self, hash: str) -> dict[str, str | None] | None:  # noqa: A002 (the name of the field)
        """Return the record of a document, with the field names of this system."""
        entry = self.once.read(hash, name=NAME)
        if entry is None:
            return None
        lease = entry.lease_until
        return {
            "hash": entry.key,
            "status": str(entry.state),
            "gcs_source_path": entry.note.get("gcs_source_path"),
            "gcs_output_path": entry.note.get("gcs_output_path") or None,
            "created_at": entry.created_at.isoformat(),
            "updated_at": entry.updated_at.isoformat(),
            "lock_expires_at": None if lease is None else lease.isoformat(),
            "error_message": entry.error or None,
        }

    # ── steps ──

    def _extract(self, step: StepContext) -> Invoice:
        current_claim().annotate(gcs_source_path=step.input.source)
        return extract(self.models, text_of(step.input.path), step.check)

    def _upload(self, step: StepContext) -> str:
        invoice: Invoice = step.results["extract"]
        put = self._objects.put(file_name(invoice), step.input.path, content=step.saga_key, if_other="rename")
        current_claim().annotate(gcs_output_path=f"{self._objects.name}/{put.name}")
        return put.name

    def _remove(self, step: StepContext) -> None:
        self._objects.delete(step.result, step.saga_key)
        current_claim().annotate(gcs_output_path="")

    def _load(self, step: StepContext) -> None:
        invoice: Invoice = step.results["extract"]
        row = {"hash": step.saga_key, **{name: getattr(invoice, name) for name in invoice.__struct_fields__}}
        self._warehouse.load(step.saga_key, TABLE, [row | {"file": step.results["upload"]}], fingerprint="none")

    # ── log ──

    def _log(self, event: Event) -> None:
        name = LOGGED.get(event.name)
        if name is None or event.scope != self.saga.scope.text:
            return
        facts = {"event": name, "doc_hash": event.key, "status": event.state}
        logger.log(event.level, "%s %s %s", *facts.values(), extra=facts)
        if event.name == "unprotected" and self._unprotected_list is not None:
            with self._unprotected_list.open("a", encoding="utf-8") as listed:
                listed.write(f"{event.key} {' '.join(event.reason.split())}\n")


def is_settled(outcome: Outcome[Any]) -> bool:
    """Whether another delivery of the same document would change nothing."""
    permanent = isinstance(outcome, Failed) and outcome.error_type in {kind.__qualname__ for kind in PERMANENT}
    return permanent or outcome.kind in ("executed", "replayed")


def file_name(invoice: Invoice) -> str:
    """Return `ID_Company_Date.pdf`. Any company name becomes a safe, short part of a path."""
    return f"{safe_name(invoice.id, longest=60)}_{safe_name(invoice.company, longest=120)}_{invoice.date}.pdf"


def _undo_nothing(_step: StepContext) -> None:
    """Do nothing: a request to a model has no effect that could be undone."""
