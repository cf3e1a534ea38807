"""The storm: submissions over HTTP and from a queue, a bureau that loses responses, workers that are killed or paused.

The audit counts rows in the table of quotes, and charges in the bureau's own ledger.
"""

from __future__ import annotations

import asyncio
import random
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, date, datetime, timedelta
from typing import Any

import anyio
import httpcore
import httpx
import msgspec

from examples.submissions.bureau import bureau, score_of
from examples.submissions.desk import Desk, score_request
from examples.submissions.intake import BROKERS, PATH, TOKEN, application
from examples.submissions.quote_table import QuoteTable
from examples.submissions.rules import DECLINED, RATES, Submission, price, triage
from onceward import Once
from onceward.testing.storm import Audit, Effect, HandlerResult, StormEvent, StormSetting

WAIT = "50ms"  # a short wait for another worker with the same key: if that one is dead, other events need this worker
FIRST = date(2026, 1, 1)
LOADED = anyio, httpcore  # imported before workers are forked; httpx imports them with its first client


def store_of(setting: StormSetting) -> str:
    return setting.store or f"sqlite:///{setting.folder}/submissions.db"


def table_of(setting: StormSetting) -> QuoteTable:
    joined = None if setting.guarded else False
    return QuoteTable(store_of(setting), setting.folder, name=f"quotes_{setting.run}", joined=joined)


class Submissions:
    """Mission B. On Redis, row and record are in two databases: the row is written under its key, perhaps twice."""

    name = "submissions"
    effects = (
        Effect(
            "row in quotes",
            "on SQLite and PostgreSQL exactly once: row and record in one transaction; on Redis once, under a key",
        ),
        Effect("charge of the bureau", "once, for as long as the bureau remembers the key"),
    )

    @contextmanager
    def open(self, setting: StormSetting) -> Iterator[dict[str, str]]:
        with Once(store_of(setting)) as once:
            once.migrate()
        table_of(setting).create()
        try:
            with bureau() as remote:
                yield {"bureau": remote.url}
        finally:
            table_of(setting).drop()

    def events(self, dice: random.Random) -> Iterator[StormEvent]:
        number = 0
        while True:
            number += 1
            submission = {
                "company": f"Company {dice.randrange(40)}",  # a company has several risks
                "industry": dice.choice([*RATES, *RATES, *DECLINED]),
                "begins": str(FIRST + timedelta(days=number)),
                "locations": [
                    {"city": dice.choice(["Köln", "Oslo", "Porto"]), "value": f"{dice.randrange(10**5, 10**7)}.50"}
                    for _ in range(dice.randrange(1, 4))
                ],
            }
            yield StormEvent(f"{submission['company']}, {submission['begins']}", submission)

    def worker(self, setting: StormSetting) -> Callable[[StormEvent], HandlerResult]:
        if not setting.guarded:
            return self._unguarded(setting)
        app = f"insurer-{setting.run}"
        desk = Desk(
            store_of(setting), setting.services["bureau"], table_of(setting), app=app, lease=setting.lease, wait=WAIT
        )
        web = httpx.Client(
            transport=httpx.WSGITransport(application(desk, BROKERS)), base_url="http://insurer", headers=TOKEN
        )
        loop = asyncio.Runner()

        def handle(event: StormEvent) -> HandlerResult:
            submission = delivered(event)
            if random.random() < 0.5:
                return result_of_response(web.post(PATH, content=msgspec.json.encode(submission)))
            return HandlerResult.of(loop.run(desk.process_async.outcome(submission)))

        return handle

    def _unguarded(self, setting: StormSetting) -> Callable[[StormEvent], HandlerResult]:
        """Return the naive handler: check, then act, and use a new key for every call to the bureau."""
        table = table_of(setting)
        client = httpx.Client(base_url=setting.services["bureau"])

        def handle(event: StormEvent) -> HandlerResult:
            submission = delivered(event)
            if table.knows(submission):
                return HandlerResult("replayed")
            quote = triage(submission)
            if quote is None:
                key = {"Idempotency-Key": str(uuid.uuid4())}
                answer = client.post("/scores", json=score_request(submission), headers=key).raise_for_status().json()
                quote = price(submission, answer["score"], answer["charge"])
            table.write(submission, quote)
            return HandlerResult("executed", 1)

        return handle

    def audit(self, setting: StormSetting, events: Sequence[StormEvent]) -> Audit:
        rows = table_of(setting).rows()
        report = httpx.get(f"{setting.services['bureau']}/ledger").json()
        premiums = {event.id: premium_of(event) for event in events}
        wrong = [f"premium of {risk}: {premium}" for risk, _, premium, _ in rows if premium != premiums.get(risk)]
        charged = {entry["charge"]: entry["risk"] for entry in report["ledger"]}
        wrong += [f"charge of {risk}: {charge}" for risk, *_, charge in rows if charge and charged.get(charge) != risk]
        priced = [event for event in events if triage(delivered(event)) is None]
        return Audit.of(events, [risk for risk, *_ in rows], what="row", wrong=wrong) + Audit.of(
            priced,
            [entry["risk"] for entry in report["ledger"]],
            what="charge",
            counted={
                "requests to the bureau": report["requests"],
                "of them repeated": report["requests"] - len(priced),
            },
        )


def delivered(event: StormEvent) -> Submission:
    """Return a delivery: the content of the event with its own delivery metadata."""
    now = datetime.now(UTC).isoformat()
    envelope: dict[str, Any] = {
        "broker": random.choice(["north", "south"]),
        "reference": f"r-{random.randrange(10**6)}",
        "sent_at": now,
        "correlation_id": str(uuid.uuid4()),
        "retry_count": random.randrange(5),
    }
    locations = [{**location, "geocoded_at": now} for location in event.body["locations"]]
    return msgspec.convert({**event.body, "locations": locations, "envelope": envelope}, Submission)


def premium_of(event: StormEvent) -> str:
    submission = delivered(event)
    return str((triage(submission) or price(submission, score_of(submission.company), "")).premium)


def result_of_response(answer: httpx.Response) -> HandlerResult:
    """Return how a sender interprets the status: done, or to be sent again."""
    body = answer.json()
    if answer.status_code == httpx.codes.OK:
        return HandlerResult("replayed") if body["replay"] else HandlerResult("executed", body["attempt"])
    return HandlerResult("running" if answer.status_code == httpx.codes.CONFLICT else "failed", why=body["error"])


SYSTEM = Submissions()
