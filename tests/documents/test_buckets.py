"""Documents in object stores: listed, or announced by notifications of Google Cloud Storage through Pub/Sub push."""

from __future__ import annotations

import argparse
import base64
import json
import logging
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from examples.documents.__main__ import deliveries_url
from examples.documents.arrivals import Announcements, Inbox
from examples.documents.buckets import Bucket
from onceward import Once
from onceward.http.messages import InboundRequest
from onceward.http.push import bearer_token
from onceward.objects import open_objects
from tests.documents.pipeline_worker import CHEAP, FILE, HASH, PDF, PipelineWorker, invoice, start_worker
from tests.documents.test_arrivals import SECRET, Hook
from tests.endpoints.helpers import wait_until
from tests.firestore_backends import PROJECT, firestore_client, named
from tests.moved_time import TOO_LONG, in_thread
from tests.objects.backends import opened, url_of_kind
from tests.objects.gcs_stand_in import Storage
from tests.servers.firestore import shared


@pytest.fixture(name="worker")
def _worker(tmp_path: Path) -> Iterator[PipelineWorker]:
    with (
        Once(f"sqlite:///{tmp_path}/once.db?synchronous=NORMAL", app="documents") as once,
        start_worker(tmp_path, once) as worker,
    ):
        yield worker


@pytest.mark.finding("N53")
@pytest.mark.mission("A1", "A6")
@pytest.mark.parametrize("kind", ["folder", "s3", "gs"])
def test_objects_below_a_url_are_processed_once_however_often_they_are_listed(
    kind: str, worker: PipelineWorker, tmp_path: Path
) -> None:
    with ExitStack() as stack:
        if kind == "gs":
            storage = stack.enter_context(Storage())
            storage.objects |= {"elsewhere.pdf": PDF, "inputs/other.pdf": PDF}
            objects = stack.enter_context(open_objects("gs://bucket/input", **storage.settings))
        else:
            objects = stack.enter_context(opened(url_of_kind(kind, tmp_path)))
        for name, content in {"a.pdf": PDF, "more/b.PDF": PDF, "c.pdf": invoice("Page 2"), "notes.txt": b"x"}.items():
            objects.put(name, content)
        bucket = Bucket(worker.documents, objects)
        assert [(name, outcome.kind) for name, outcome in bucket.scan()] == [
            ("a.pdf", "executed"),
            ("c.pdf", "executed"),
            ("more/b.PDF", "replayed"),
        ]
        assert list(bucket.scan()) == []
        assert [outcome.kind for _, outcome in Bucket(worker.documents, objects).scan()] == ["replayed"] * 3
        assert worker.record()["gcs_source_path"] == f"{objects.name}/a.pdf"
        assert bucket.process_named("missing.pdf") is None
        with pytest.raises(ValueError, match="name"):
            bucket.process_named("../a.pdf")
        if kind == "gs":
            assert any("continuation-token" in one for one in storage.listed), "every page was asked for"
    assert len(worker.files()) == len(worker.rows()) == 2


class Notifications:
    """Sends notifications of a bucket as Pub/Sub pushes them."""

    def __init__(self, worker: PipelineWorker, storage: Storage) -> None:
        objects = open_objects("gs://bucket/input", **storage.settings)
        self.endpoint = Bucket(worker.documents, objects).push(worker.once, bearer_token("a long random text"))

    def send(
        self, name: str, id: str = "m1", *, kind: str = "OBJECT_FINALIZE", bucket: str = "bucket", token: str = "a long"
    ) -> tuple[int, Any]:
        attributes = {"eventType": kind, "bucketId": bucket, "objectId": name, "payloadFormat": "JSON_API_V1"}
        data = base64.b64encode(json.dumps({"kind": "storage#object", "name": name}).encode()).decode()
        body = {"message": {"messageId": id, "attributes": attributes, "data": data}, "subscription": "projects/p/s/s"}
        headers = {"authorization": f"Bearer {token} random text"}
        answer = self.endpoint.respond(InboundRequest("POST", headers, json.dumps(body).encode()))
        return answer.status, json.loads(answer.body).get("reason") if answer.body else None


@contextmanager
def notifying(worker: PipelineWorker) -> Iterator[tuple[Notifications, Storage]]:
    with Storage() as storage:
        yield Notifications(worker, storage), storage


@pytest.mark.finding("N53")
@pytest.mark.mission("A1", "A6", "A7")
def test_a_new_object_is_processed_when_its_notification_is_pushed(
    worker: PipelineWorker, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "documents")
    with notifying(worker) as (notifications, storage):
        storage.objects |= {"input/a.pdf": PDF, "input/renamed.pdf": PDF, "input/bad.pdf": b"no PDF", "other.pdf": PDF}
        assert notifications.send("input/a.pdf", token="another") == (401, None)
        assert notifications.send("input/a.pdf")[0] == 200
        assert worker.record()["gcs_source_path"] == "gs://bucket/input/a.pdf"
        assert notifications.send("input/a.pdf") == (200, "replayed"), "Pub/Sub delivers it again"
        assert notifications.send("input/renamed.pdf", "m2") == (200, "replayed")
        skipped = [one for one in caplog.records if vars(one).get("event") == "lock_skipped_duplicate"]
        assert [vars(one)["doc_hash"] for one in skipped] == [HASH, HASH], "every duplicate is logged"
        ignored: dict[str, list[tuple[str, dict[str, str]]]] = {
            "other_object_ignored": [("other.pdf", {}), ("input/a.txt", {}), ("input/a.pdf", {"bucket": "another"})],
            "event_ignored": [("input/a.pdf", {"kind": "OBJECT_DELETE"})],
            "object_is_gone": [("input/gone.pdf", {})],
            "invalid_name_ignored": [("input/../a.pdf", {})],
        }
        for reason, sent in ignored.items():
            for name, more in sent:
                assert notifications.send(name, "m3", **more) == (200, reason)
        assert notifications.send("input/bad.pdf", "m4") == (200, "failed_permanently"), "acknowledged, and recorded"
    assert (worker.calls(), worker.files(), worker.rows()) == ([CHEAP], {FILE: PDF}, [(HASH, FILE)])


@pytest.mark.mission("A7")
def test_a_notification_of_a_document_that_is_being_processed_is_sent_again(worker: PipelineWorker) -> None:
    with notifying(worker) as (notifications, storage), worker.once.claim(HASH, name="processed_documents"):
        storage.objects["input/a.pdf"] = PDF
        assert in_thread(notifications.send, "input/a.pdf").result(TOO_LONG)[0] == 409


@pytest.mark.finding("N53")
@pytest.mark.mission("A2")
def test_on_firestore_webhook_events_are_not_in_the_collection_of_documents(tmp_path: Path) -> None:
    shared()
    collection = named(tmp_path)
    chosen = argparse.Namespace(store=f"firestore://{PROJECT}/{collection}", deliveries=None, folder=tmp_path)
    with (
        Once(chosen.store, app="documents") as once,
        Once(deliveries_url(chosen), app="documents") as deliveries,
        start_worker(tmp_path, once) as worker,
    ):
        hook = Hook(worker)
        hook.endpoint = Announcements(Inbox(worker.documents, tmp_path / "inbox"), deliveries, SECRET).endpoint
        worker.arrived(PDF, "a.pdf")
        for _ in range(2):  # as a sender does: a slow emulator may ask it to come back
            wait_until(lambda: hook.send("e1", "a.pdf")[0] == 200, "the event is processed")
    kept = {
        name: [one.id for one in firestore_client().collection(name).stream()]
        for name in (collection, f"{collection}_deliveries")
    }
    assert kept[collection] == [HASH]
    assert len(kept[f"{collection}_deliveries"]) == 1
