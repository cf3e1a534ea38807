"""How each of the five systems is started, what is sent to it, and how its effects are counted."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import msgspec
import psycopg
from standardwebhooks import Webhook as Signer

from examples.documents.samples import pdf
from examples.outreach.outside import Outside
from examples.submissions.bureau import bureau
from examples.submissions.intake import PATH
from tests.integration.outreach_environment import ANNA
from tests.integration.test_submissions_example import submission
from tests.services.running import Service
from tests.services.test_three_services import SECRET, event, statement

TOKEN = {"Authorization": "Bearer t"}
LEASE = "2s"


class System(NamedTuple):
    """A system: its command and environment, how a delivery is sent, and how often each had its effects."""

    command: list[str]
    environment: Mapping[str, str]
    send: Callable[[httpx.Client, int], httpx.Response]
    effects: Callable[[Service], list[int]]
    """Return numbers of rows, files or charges. Each must be the number of deliveries."""

    metric: str


def count(store: str, table: str) -> int:
    """Count the rows of a table in a SQLite or PostgreSQL database."""
    if store.startswith("sqlite"):
        with closing(sqlite3.connect(store.removeprefix("sqlite:///"), timeout=60)) as connection:
            return int(connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0])
    with psycopg.connect(store) as connection:
        found = connection.execute(f"SELECT count(*) FROM {table}".encode()).fetchone()
        return int(found[0]) if found else 0


@contextmanager
def submissions(_folder: Path, store: str) -> Iterator[System]:
    def send(client: httpx.Client, number: int) -> httpx.Response:
        return client.post(PATH, content=msgspec.json.encode(submission(company=f"Company {number}")), headers=TOKEN)

    with bureau(calm=True) as remote:
        command = ["serve", "--store", store, "--bureau", remote.url, "--lease", LEASE]
        yield System(
            command,
            {"BROKERS": "t=north"},
            send,
            lambda _: [count(store, "quotes"), len(remote.ledger)],
            'submission_processed_total{replay="true",scope="insurer/submission"}',
        )


@contextmanager
def fleet(_folder: Path, store: str) -> Iterator[System]:
    def effects(service: Service) -> list[int]:
        return [len(httpx.get(f"{service.url}/health", timeout=60).json()["services"])]

    yield System(["serve", "--store", store], {}, event, effects, 'scope="fleet/ops_services"')


@contextmanager
def documents(folder: Path, store: str) -> Iterator[System]:
    on_server = store.startswith("postgres")
    records, rows = (f"{store}?migrate=1", store) if on_server else (store, f"sqlite:///{folder}/warehouse.db")
    inbox = folder / "inbox"
    inbox.mkdir()

    def send(client: httpx.Client, number: int) -> httpx.Response:
        printed = [f"Invoice {number}", "Company Acme Ltd", "Date 2026-03-01", f"Total {number + 1}.50 EUR"]
        (inbox / f"new {number}").write_bytes(pdf(printed))
        (inbox / f"new {number}").rename(inbox / f"{number}.pdf")
        data, now = json.dumps({"name": f"{number}.pdf"}), datetime.now(UTC)
        id = f"event-{number}-{now:%H%M%S%f}"  # the record of a delivery has a lease of a minute
        headers = {"webhook-id": id, "webhook-timestamp": str(int(now.timestamp()))}
        signature = Signer(SECRET).sign(id, now, data)
        return client.post("/", content=data, headers={**headers, "webhook-signature": signature})

    command = ["serve", str(folder), "--store", records, "--warehouse", rows, "--lease", LEASE, "--heartbeat", "1s"]
    yield System(
        command, {"WEBHOOK_SECRET": SECRET}, send,
        lambda _: [count(rows, "documents"), len(list((folder / "bucket").glob("*.pdf")))],
        'scope="documents/processed_documents"',
    )  # fmt: skip


@contextmanager
def learning(folder: Path, store: str) -> Iterator[System]:
    def send(client: httpx.Client, number: int) -> httpx.Response:
        return statement(client, number + 1)

    def effects(service: Service) -> list[int]:
        headers, auth = {"X-Experience-API-Version": "1.0.3"}, ("learner", "secret")
        ids: list[str] = []
        more = "/xAPI/statements?limit=0"
        while more:  # the next page
            page: dict[str, Any] = httpx.get(service.url + more, headers=headers, auth=auth, timeout=60).json()
            ids += [one["id"] for one in page["statements"]]
            more = page["more"]
        return [len(set(ids)), len(ids)]

    server = ["--warehouse", store] if store.startswith("postgres") else []
    yield System(["serve", "--folder", str(folder), *server], {}, send, effects, "onceward_executed_total")


@contextmanager
def outreach(folder: Path, store: str) -> Iterator[System]:
    database = f"{store}?migrate=1" if store.startswith("postgres") else store

    def send(client: httpx.Client, number: int) -> httpx.Response:
        mail = f"From: {ANNA['email']}\r\nMessage-ID: <{number}@mail.example>\r\nSubject: Yes\r\n\r\nyes\r\n"
        headers = {**TOKEN, "Content-Type": "message/rfc822"}
        return client.post("/replies", content=mail.encode(), headers=headers)

    with Outside(folder / "remote.db") as outside:
        environment = {
            "OUTREACH_DATABASE": database,
            "OUTREACH_PAGER": outside.api,
            "OUTREACH_REPLIES_TOKEN": "t",
            "LEASE": "2",
        }
        alerts = f"sqlite:///{folder}/remote.db"
        yield System(
            ["serve"],
            environment,
            send,
            lambda _: [count(store, "emails"), count(alerts, "alerts")],
            'scope="outreach/reply"',
        )


SYSTEMS = {one.__name__: one for one in (submissions, fleet, documents, learning, outreach)}
