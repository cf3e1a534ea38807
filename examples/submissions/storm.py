"""The storm: submissions over HTTP and from a queue, the bureau loses answers, and workers die anywhere, or sleep.

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

from examples.submissions.book import Book
from examples.submissions.bureau import bureau, score_of
from examples.submissions.desk import Desk, question
from examples.submissions.intake import PATH, application
from examples.submissions.rules import DECLINED, RATES, Submission, price, triage
from onceward import Once
from onceward.testing.storm import Answer, Audit, Effect, Event, Setting

WAIT = "50ms"  # for a duplicate of what another worker is at: if that one is dead, others need this worker
FIRST = date(2026, 1, 1)
LOADED = anyio, httpcore  # httpx does it with its first client: here it is done before workers are forked


def store_of(setting: Setting) -> str:
    return setting.store or f"sqlite:///{setting.folder}/submissions.db"


def book_of(setting: Setting) -> Book:
    joined = None if setting.guarded else False
    return Book(store_of(setting), setting.folder, name=f"quotes_{setting.run}", joined=joined)


class Submissions:
    """Mission B. On Redis the row is not where the record is: there it is written under its key, perhaps again."""

    name = "submissions"
    effects = (
        Effect(
            "row in quotes",
            "on SQLite and PostgreSQL exactly once: row and record in one transaction; on Redis once, under a key",
        ),
        Effect("charge of the bureau", "once, for as long as the bureau remembers the key"),
    )

    @contextmanager
    def open(self, setting: Setting) -> Iterator[dict[str, str]]:
        with Once(store_of(setting)) as once:
            once.migrate()
        book_of(setting).create()
        try:
            with bureau() as remote:
                yield {"bureau": remote.url}
        finally:
            book_of(setting).drop()

    def events(self, dice: random.Random) -> Iterator[Event]:
        number = 0
        while True:
            number += 1
            submission = {
                "company": f"Company {dice.randrange(40)}",  # the same one offers other risks, too
                "industry": dice.choice([*RATES, *RATES, *DECLINED]),
                "begins": str(FIRST + timedelta(days=number)),
                "locations": [
                    {"city": dice.choice(["Köln", "Oslo", "Porto"]), "value": f"{dice.randrange(10**5, 10**7)}.50"}
                    for _ in range(dice.randrange(1, 4))
                ],
            }
            yield Event(f"{submission['company']}, {submission['begins']}", submission)

    def worker(self, setting: Setting) -> Callable[[Event], Answer]:
        if not setting.guarded:
            return self._by_hand(setting)
        app = f"insurer-{setting.run}"
        desk = Desk(
            store_of(setting), setting.services["bureau"], book_of(setting), app=app, lease=setting.lease, wait=WAIT
        )
        web = httpx.Client(transport=httpx.WSGITransport(application(desk, {})), base_url="http://insurer")
        loop = asyncio.Runner()

        def handle(event: Event) -> Answer:
            came = delivered(event)
            if random.random() < 0.5:
                return told(web.post(PATH, content=msgspec.json.encode(came)))
            return Answer.of(loop.run(desk.process_async.outcome(came)))

        return handle

    def _by_hand(self, setting: Setting) -> Callable[[Event], Answer]:
        """Look, then do; and a new key for every call to the bureau."""
        book = book_of(setting)
        client = httpx.Client(base_url=setting.services["bureau"])

        def handle(event: Event) -> Answer:
            submission = delivered(event)
            if book.knows(submission):
                return Answer("replayed")
            quote = triage(submission)
            if quote is None:
                key = {"Idempotency-Key": str(uuid.uuid4())}
                answer = client.post("/scores", json=question(submission), headers=key).raise_for_status().json()
                quote = price(submission, answer["score"], answer["charge"])
            book.write(submission, quote)
            return Answer("executed", 1)

        return handle

    def audit(self, setting: Setting, events: Sequence[Event]) -> Audit:
        rows = book_of(setting).rows()
        told = httpx.get(f"{setting.services['bureau']}/ledger").json()
        premiums = {event.id: premium_of(event) for event in events}
        wrong = [f"premium of {risk}: {premium}" for risk, _, premium, _ in rows if premium != premiums.get(risk)]
        charged = {entry["charge"]: entry["risk"] for entry in told["ledger"]}
        wrong += [f"charge of {risk}: {charge}" for risk, *_, charge in rows if charge and charged.get(charge) != risk]
        priced = [event for event in events if triage(delivered(event)) is None]
        return Audit.of(events, [risk for risk, *_ in rows], what="row", wrong=wrong) + Audit.of(
            priced,
            [entry["risk"] for entry in told["ledger"]],
            what="charge",
            counted={"requests to the bureau": told["requests"], "of them repeated": told["requests"] - len(priced)},
        )


def delivered(event: Event) -> Submission:
    """A delivery: the content of the event in an envelope of its own."""
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


def premium_of(event: Event) -> str:
    submission = delivered(event)
    return str((triage(submission) or price(submission, score_of(submission.company), "")).premium)


def told(answer: httpx.Response) -> Answer:
    """What a sender makes of a status: done, or to be sent again."""
    body = answer.json()
    if answer.status_code == httpx.codes.OK:
        return Answer("replayed") if body["replay"] else Answer("executed", body["attempt"])
    return Answer("running" if answer.status_code == httpx.codes.CONFLICT else "failed", why=body["error"])


SYSTEM = Submissions()
