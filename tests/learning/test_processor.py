"""The document's own architecture: statements from Pub/Sub into BigQuery, on Google's emulators, as a process."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from examples.learning.tables import STATEMENTS, USERS
from onceward.warehouse import ComparesRows, open_warehouse
from tests.learning.samples import JOHN, statement, uuid
from tests.servers.bigquery import shared as shared_bigquery
from tests.servers.pubsub import PubSubServer

ROOT = Path(__file__).resolve().parents[2]
POLL = 1.0
"""Seconds between two questions to BigQuery's emulator. More of them would slow down the processor."""
PATIENCE = 150.0
"""Seconds: a process starts, and BigQuery's emulator is slow."""


def wait_until(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, f"never happened: {what}"
        time.sleep(POLL)


@pytest.fixture(scope="module")
def pubsub() -> Iterator[PubSubServer]:
    """Start both emulators at the same time, because each takes seconds."""
    with ThreadPoolExecutor() as pool:
        bigquery = pool.submit(shared_bigquery)
        server = PubSubServer().begin()
        try:
            bigquery.result()
            yield server
        finally:
            server.end()


class Topic:
    """A topic with a subscription."""

    def __init__(self, server: PubSubServer) -> None:
        from google.cloud import pubsub_v1  # takes a second to import

        os.environ["PUBSUB_EMULATOR_HOST"] = server.address
        name = f"statements-{uuid4().hex}"
        self._publisher = pubsub_v1.PublisherClient()
        self._subscriber = pubsub_v1.SubscriberClient()
        self._topic = f"projects/test/topics/{name}"
        self.subscription = f"projects/test/subscriptions/{name}"
        self._publisher.create_topic(name=self._topic)
        self._subscriber.create_subscription(name=self.subscription, topic=self._topic, ack_deadline_seconds=10)

    def publish(self, *statements: dict[str, Any]) -> None:
        for sent in [self._publisher.publish(self._topic, json.dumps(one).encode()) for one in statements]:
            sent.result(60)

    def close(self) -> None:
        self._publisher.stop()
        self._publisher.transport.close()
        self._subscriber.close()


@contextmanager
def processing(topic: Topic, warehouse: str, folder: Path, *options: str) -> Iterator[subprocess.Popen[str]]:
    """Run the processor. In the end it is asked to stop, and must do so by itself."""
    command = [sys.executable, "-m", "examples.learning", "process", "--subscription", topic.subscription]
    command += ["--warehouse", warehouse, "--folder", str(folder), *options]
    with (folder / "log").open("a") as log, subprocess.Popen(command, cwd=ROOT, stderr=log, text=True) as process:
        try:
            yield process
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
            assert process.wait(60) in (0, -signal.SIGKILL), (folder / "log").read_text()
        finally:
            process.kill()


@pytest.mark.finding("N50", "N47", "N48")
@pytest.mark.mission("D1", "D2", "D5")
def test_statements_go_from_pubsub_to_bigquery_once_and_a_killed_processor_loses_nothing(
    pubsub: PubSubServer, tmp_path: Path
) -> None:
    topic = Topic(pubsub)
    url = f"bigquery://onceward-test/d{uuid4().hex[:12]}?endpoint={shared_bigquery().endpoint}"
    house = open_warehouse(url)
    assert isinstance(house, ComparesRows)
    for table in (STATEMENTS, USERS):
        house.prepare(table)

    def stored() -> set[str]:
        return {id for (id,) in house.query("SELECT statement_id FROM statements")}

    def duplicates() -> int:
        return (tmp_path / "log").read_text().count("already exists, skipping duplicate")

    partial = {"id": "test-123", "actor": {"mbox": "mailto:mary@example.com"}}
    try:
        topic.publish(statement("s1"), partial)
        with processing(topic, url, tmp_path, "--lenient") as process:
            wait_until(lambda: stored() == {uuid("s1"), "test-123"}, "both are stored")
            process.kill()
        topic.publish(statement("s2"), statement("s1", {**JOHN}))
        with processing(topic, url, tmp_path, "--lenient"):
            wait_until(lambda: duplicates() > 0, "the duplicate is logged")
            wait_until(lambda: uuid("s2") in stored(), "a new process goes on")
        assert house.query("SELECT count(*) FROM statements") == [(3,)]
        assert sorted(house.query("SELECT user_id FROM users")) == [("john@example.com",), ("mary@example.com",)]
    finally:
        topic.close()
        house.close()
