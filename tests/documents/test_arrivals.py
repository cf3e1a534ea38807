"""How documents arrive: in a folder, by a webhook, and from the shell."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from standardwebhooks import Webhook as Sender

from examples.documents.arrivals import Announcements, Inbox
from onceward import Once
from onceward.http.webhooks import InboundRequest
from tests.documents.pipeline_worker import CHEAP, FILE, HASH, PDF, PipelineWorker, invoice, start_worker
from tests.moved_time import TOO_LONG, in_thread

ROOT = Path(__file__).resolve().parents[2]
SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"


@pytest.fixture(name="worker")
def _worker(tmp_path: Path) -> Iterator[PipelineWorker]:
    with (
        Once(f"sqlite:///{tmp_path}/once.db?synchronous=NORMAL", app="documents") as once,
        start_worker(tmp_path, once) as worker,
    ):
        yield worker


@pytest.mark.mission("A1", "A6")
def test_files_in_a_folder_are_processed_once_however_often_it_is_scanned(worker: PipelineWorker) -> None:
    for name in ("a.pdf", "b.pdf", "notes.txt"):
        worker.arrived(PDF, name)
    worker.arrived(invoice(id=""), "unreadable.pdf")
    inbox = Inbox(worker.documents, worker.folder / "inbox")
    assert [(path.name, outcome.kind) for path, outcome in inbox.scan()] == [
        ("a.pdf", "executed"),
        ("b.pdf", "replayed"),
        ("unreadable.pdf", "failed"),
    ]
    assert list(inbox.scan()) == []
    worker.arrived(invoice("Page 2"), "b.pdf")
    assert [outcome.kind for _, outcome in inbox.scan()] == ["executed"]
    restarted = Inbox(worker.documents, worker.folder / "inbox")
    assert [outcome.kind for _, outcome in restarted.scan()] == ["replayed", "replayed", "failed"]
    assert len(worker.files()) == len(worker.rows()) == 2


def test_an_unreadable_file_does_not_block_others(worker: PipelineWorker, caplog: pytest.LogCaptureFixture) -> None:
    worker.arrived(PDF, "z.pdf")
    (worker.folder / "inbox" / "a folder.pdf").mkdir()
    (worker.folder / "inbox" / "gone.pdf").symlink_to("nowhere")
    inbox = Inbox(worker.documents, worker.folder / "inbox")
    assert [(path.name, outcome.kind) for path, outcome in inbox.scan()] == [("z.pdf", "executed")]
    assert list(inbox.scan()) == []
    messages = [one.getMessage() for one in caplog.records if "cannot be read" in one.getMessage()]
    assert [line.partition(" cannot")[0] for line in messages] == ["a folder.pdf", "gone.pdf"], "once each"


class Hook:
    """The endpoint and a sender."""

    def __init__(self, worker: PipelineWorker) -> None:
        inbox = Inbox(worker.documents, worker.folder / "inbox")
        self.endpoint = Announcements(inbox, worker.once, SECRET).endpoint
        self.headers: dict[str, str] = {}

    def send(self, event: str, name: Any, *, secret: str = SECRET) -> tuple[int, Any]:
        body, now = json.dumps({"name": name}), datetime.fromtimestamp(int(time.time()), UTC)
        signature = Sender(secret).sign(event, now, body)
        headers = {"webhook-id": event, "webhook-timestamp": str(int(now.timestamp())), "webhook-signature": signature}
        answer = self.endpoint.respond(InboundRequest("POST", headers, body.encode()))
        self.headers = dict(answer.headers)
        return answer.status, json.loads(answer.body).get("reason")


@pytest.mark.finding("N53")
@pytest.mark.mission("A1", "A7")
def test_a_webhook_that_is_sent_again_or_names_a_known_document_changes_nothing(
    worker: PipelineWorker, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "documents")
    hook = Hook(worker)
    assert hook.send("e1", "a.pdf") == (503, "the file is not here yet")
    worker.arrived(PDF, "a.pdf")
    worker.arrived(PDF, "renamed.pdf")
    assert hook.send("e1", "a.pdf") == (200, "executed")
    assert hook.send("e1", "a.pdf") == (200, "executed"), "the same event gets the same answer"
    assert hook.send("e2", "renamed.pdf") == (200, "replayed")
    assert hook.send("e3", "a.pdf", secret="whsec_" + "A" * 32)[0] == 403
    assert (worker.calls(), worker.files(), worker.rows()) == ([CHEAP], {FILE: PDF}, [(HASH, FILE)])
    logged = [vars(one) for one in caplog.records if one.name == "documents"]
    assert {one["doc_hash"] for one in logged} == {HASH}, "the log names documents, not events"
    skipped = [one.get("delivery") for one in logged if one["event"] == "lock_skipped_duplicate"]
    assert skipped == ["e1", None], "every duplicate is logged: a repeated event, and a renamed file"


@pytest.mark.mission("A7")
def test_a_webhook_about_a_document_that_is_being_processed_is_sent_again(worker: PipelineWorker) -> None:
    hook = Hook(worker)
    worker.arrived(PDF, "a.pdf")
    with worker.once.claim(HASH, name="processed_documents"):
        assert in_thread(hook.send, "e1", "a.pdf").result(TOO_LONG) == (503, "running")


@pytest.mark.parametrize(
    "name", ["../once.db", "/etc/passwd", "..", "", ".", "sub/a.pdf", "link.pdf", "a\0.pdf", "a" * 300 + ".pdf", 7]
)
def test_a_webhook_cannot_name_a_file_outside_of_the_folder(worker: PipelineWorker, name: Any) -> None:
    worker.arrived(PDF, "a.pdf")
    (worker.folder / "inbox" / "link.pdf").symlink_to("/etc/passwd")
    assert Hook(worker).send("e1", name)[0] == 400
    assert worker.calls() == []


def shell(*arguments: str) -> str:
    command = [sys.executable, "-W", "error", "-m", "examples.documents", *arguments]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=200, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def words(line: str) -> tuple[str, str]:
    name, fact = line.split(maxsplit=1)
    return name, fact


@pytest.mark.mission("A1", "A2", "A6")
def test_the_demonstration_and_what_is_known_of_one_of_its_files(tmp_path: Path) -> None:
    lines = shell("demo", str(tmp_path), "--warehouse", f"duckdb:///{tmp_path}/house.duckdb").splitlines()
    again = [line for line in lines if "_renamed.pdf" in line]
    assert len(again) == 3
    assert all("replayed" in line or "failed" in line for line in again)
    assert any("FAILED" in line for line in lines)
    assert "model calls" in lines[-1]
    shown = dict(
        line.split(maxsplit=1) for line in shell("show", str(tmp_path), f"{tmp_path}/inbox/scan 01.pdf").splitlines()
    )
    assert shown["status"] == "COMPLETED"
    assert shown["gcs_source_path"].endswith("scan%2001.pdf")
