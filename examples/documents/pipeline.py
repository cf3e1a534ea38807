"""The pipeline: content key → claim → text → extraction → file and row, both or neither → COMPLETED or FAILED."""

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
"""Events of Onceward, as the operators of this system know them."""

logger = logging.getLogger("documents")


class Arrival(Struct):
    """A file that has come. `source` is where from, for people."""

    path: Path
    source: str = ""


HOPELESS: Final = (Unreadable, SourceError)
"""Nobody can read it, or the warehouse refuses it: to try again would cost, and change nothing."""

FINAL: Final = (*HOPELESS, PayloadMismatch, FileNotFoundError)
"""The file is gone, or no longer what was claimed: nothing can be done now, but it may come again."""


class Documents:
    """Each document once. `on_store_down="run"`: while the store is away, without a claim (and listed for a person).

    `attempts` are those of a step before it is given up; a worker that dies has used up one.
    """

    def __init__(
        self,
        once: Once,
        objects: Objects,
        house: Warehouse,
        models: Models,
        *,
        on_store_down: Literal["raise", "run"] = "raise",
        for_a_person: Path | None = None,
        attempts: int = 20,
    ) -> None:
        self.once = once
        self._objects = objects
        self._house = house
        self._models = models
        self._for_a_person = for_a_person
        house.prepare(TABLE)
        tries: Any = {"final": FINAL, "max_attempts": attempts}
        self.saga = once.saga(
            NAME,
            # whatever it raises, a question to a model leaves nothing behind
            Step("extract", self._extract, undo=_nothing, not_applied=(Exception, TimeoutError), **tries),
            Step("upload", self._upload, undo=self._remove, **tries),
            Step("load", self._load, kind="pivot", **tries),
            input_type=Arrival,
            key=Content("path"),  # a renamed file is the same file
            window="forever",
            on_running="raise",
            on_store_down=on_store_down,
        )
        once.subscribe(self._log)

    def process(self, path: Path, source: str = "") -> Outcome[dict[str, Any]]:
        """Process the file, or tell why not now. What an earlier delivery gave up is tried again, if that may help."""
        given = {"path": path, "source": source or path.absolute().as_uri()}
        outcome = self.saga.outcome(**given)
        if isinstance(outcome, Failed | Parked) and outcome.exception is None and not is_settled(outcome):
            with suppress(NotAcquired):  # somebody else is faster, or a person has to say
                self.saga.retry(**given)
            outcome = self.saga.outcome(**given)
        return outcome

    def record(self, hash: str) -> dict[str, str | None] | None:  # noqa: A002 (its name in the record)
        """The facts about a document, in the words of its operators."""
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
        return extract(self._models, text_of(step.input.path), step.check)

    def _upload(self, step: StepContext) -> str:
        invoice: Invoice = step.results["extract"]
        put = self._objects.put(file_name(invoice), step.input.path, content=step.saga_key, if_other="beside")
        current_claim().annotate(gcs_output_path=f"{self._objects.name}/{put.name}")
        return put.name

    def _remove(self, step: StepContext) -> None:
        self._objects.delete(step.result, step.saga_key)
        current_claim().annotate(gcs_output_path="")

    def _load(self, step: StepContext) -> None:
        invoice: Invoice = step.results["extract"]
        row = {"hash": step.saga_key, **{name: getattr(invoice, name) for name in invoice.__struct_fields__}}
        self._house.load(step.saga_key, TABLE, [row | {"file": step.results["upload"]}], fingerprint="none")

    # ── log ──

    def _log(self, event: Event) -> None:
        name = LOGGED.get(event.name)
        if name is None or event.scope != self.saga.scope.text:
            return
        facts = {"event": name, "doc_hash": event.key, "status": event.state}
        logger.log(event.level, "%s %s %s", *facts.values(), extra=facts)
        if event.name == "unprotected" and self._for_a_person is not None:
            with self._for_a_person.open("a", encoding="utf-8") as listed:
                listed.write(f"{event.key} {' '.join(event.reason.split())}\n")


def is_settled(outcome: Outcome[Any]) -> bool:
    """Whether another delivery of the same document could change nothing any more."""
    hopeless = isinstance(outcome, Failed) and outcome.error_type in {kind.__qualname__ for kind in HOPELESS}
    return hopeless or outcome.kind in ("executed", "replayed")


def file_name(invoice: Invoice) -> str:
    """`ID_Company_Date.pdf`, whatever the company is called: one part of a path, and short enough for every folder."""
    return f"{safe_name(invoice.id, longest=60)}_{safe_name(invoice.company, longest=120)}_{invoice.date}.pdf"


def _nothing(_step: StepContext) -> None:
    """A question to a model leaves nothing behind that could be undone."""
