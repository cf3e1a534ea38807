"""The storm test of this example: `python -m examples.outreach storm [--seconds 20] [--store URL] [--unguarded]`.

Prospects, replies, invoices and cron runs are delivered several times and out of order, to workers that are killed or
paused. The audit then counts the rows, and what the mail server, the bank and the pager received.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from datetime import UTC, datetime, timedelta
from email.message import EmailMessage
from itertools import count
from pathlib import Path
from typing import Any, Final

from onceward import AlreadyRunning, ConfigurationError, Outcome
from onceward.observe import Event as OnceEvent
from onceward.testing import disabled
from onceward.testing.storm import Audit, Effect, HandlerResult, StormEvent, StormSetting

from .app import Outreach
from .audit import audit, resent, unknown
from .evidence import AuditData
from .outside import Outside, query_outside

SYLLABLES: Final = [
    a + b for a in ("b", "br", "d", "f", "gr", "h", "k", "l", "m", "pl", "s", "tr", "v") for b in "aeiou"
]
CHARSETS: Final = ("utf-8", "iso-2022-jp", "shift_jis", "utf-16")
KINDS: Final = ("contact", "reply", "bare", "charge", "cron")
WEIGHTS: Final = (50, 25, 3, 18, 4)
MINUTE: Final = "%Y-%m-%d %H:%M"
MAIL_DELAY: Final = 0.01  # seconds that the mail server needs for a mail: some workers are killed in that time
LOSE_EVERY: Final = 23  # one of so many replies of the mail server, the bank and the pager is lost
RETRY_REASONS: Final = ("send_in_progress", "enriching")


class Storm:
    """The system under test: see `onceward.testing.storm`."""

    name = "outreach"
    effects = (
        Effect("mail at the SMTP server", "once, if its answer can be trusted: looked up by Message-ID after a crash"),
        Effect("reply row, count of replies, run of cron", "exactly once: rows and record in one transaction"),
        Effect("alert, charge", "once, for as long as the remote remembers the key: a derived key"),
        Effect("look-up in the directory, mail of a replaced owner", "at least once: counted"),
    )

    @contextmanager
    def open(self, setting: StormSetting) -> Iterator[dict[str, str]]:
        with (
            database(setting) as url,
            Outside(Path(setting.folder) / "outside.db", slowness=MAIL_DELAY, loses_every=LOSE_EVERY) as outside,
        ):
            services = {"database": url, "smtp": outside.smtp, "api": outside.api}
            connect(services).close()  # creates the tables
            yield services

    def events(self, dice: random.Random) -> Iterator[StormEvent]:
        known: list[str] = []
        runs = slots()
        for number in count(1):
            [kind] = dice.choices(KINDS, WEIGHTS)
            if kind == "contact" or not known:
                row = prospect(dice, number)
                known.append(row["email"])
                yield StormEvent(f"contact-{number}", row)
            elif kind in ("reply", "bare"):
                yield StormEvent(f"{kind}-{number}", reply(dice, dice.choice(known), number, named=kind == "reply"))
            elif kind == "cron" and runs:
                at = runs.pop()
                yield StormEvent(f"cron-{at:{MINUTE}}", at.isoformat())
            else:
                yield StormEvent(f"charge-{number}", dice.randrange(100, 50_000))

    def worker(self, setting: StormSetting) -> Callable[[StormEvent], HandlerResult]:
        outreach = connect(setting.services, lease=setting.lease, wait="250ms")
        attempts: list[int] = []

        def on_event(event: OnceEvent) -> None:
            if event.name == "acquired":
                attempts.append(event.attempt)

        outreach.once.subscribe(on_event)
        if not setting.guarded:
            disabled().__enter__()  # for the lifetime of the worker

        def work(event: StormEvent) -> HandlerResult:
            attempts.clear()
            try:
                result = deliver(outreach, event)
            except AlreadyRunning as running:
                return HandlerResult("running", why=repr(running))
            if result.get("reason") in RETRY_REASONS:
                return HandlerResult("running")
            if result.get("reason") == "unknown":
                return HandlerResult("parked")
            attempt = max(attempts, default=0)
            taken_over = attempt > 1  # also if all was already done: this attempt recorded it
            replayed = result.keys() & {"skipped", "duplicate"} and not taken_over
            return HandlerResult("replayed" if replayed else "executed", attempt)

        return work

    def audit(self, setting: StormSetting, events: Sequence[StormEvent]) -> Audit:
        """Check each kind of effect, and the sixteen lines of the audit."""
        outside = Path(setting.folder) / "outside.db"
        data = AuditData(setting.services["database"], outside)
        kinds: dict[str, list[StormEvent]] = {kind: [] for kind in KINDS}
        for event in events:
            kinds[event.id.partition("-")[0]].append(event)
        lines = audit(data) if setting.guarded else []  # without records, the lines cannot be checked
        wrong = [f"{found.line.text}: {complaint}" for found in lines for complaint in found.wrong]
        total = mailed(data, kinds["contact"], wrong)
        replies: dict[str, str] = dict(
            data.rows("SELECT id, message_id FROM emails WHERE message_id LIKE '%@storm.example>'")
        )
        total += Audit.of(kinds["reply"], map(reply_event, replies.values()), what="row")
        alerts = (json.loads(what)["reply"] for (what,) in query_outside(outside, "SELECT what FROM alerts"))
        total += Audit.of(kinds["reply"], (reply_event(replies[one]) for one in alerts if one in replies), what="alert")
        charges = (json.loads(what)["invoice"] for (what,) in query_outside(outside, "SELECT what FROM charges"))
        total += Audit.of(kinds["charge"], (f"charge-{invoice}" for invoice in charges))
        runs = data.rows("SELECT scheduled_at FROM runs")
        total += Audit.of(kinds["cron"], (f"cron-{datetime.fromisoformat(at):{MINUTE}}" for (at,) in runs))
        requests = sum(asked for (asked,) in query_outside(outside, SELECT_REQUESTS))
        looked_up = query_outside(outside, "SELECT count(*) FROM lookups")[0][0]
        found = data.rows("SELECT count(*) FROM enrichments WHERE found IS NOT NULL")[0][0]
        counted = {
            "look-ups": looked_up,
            "look-ups wasted by kills and pauses": looked_up - found,
            "requests to the bank and the pager": requests,
            "rows of replies without a Message-ID": data.rows(COUNT_WITHOUT_ID)[0][0],
        }
        return total + Audit(0, 0, counted=counted)


SELECT_REQUESTS: Final = "SELECT asked FROM charges UNION ALL SELECT asked FROM alerts"
COUNT_WITHOUT_ID: Final = "SELECT count(*) FROM emails WHERE direction = 'inbound' AND message_id IS NULL"


def mailed(data: AuditData, contacts: Sequence[StormEvent], wrong: Sequence[str]) -> Audit:
    """Check that each contact has a row and a mail. Late mails and unknown outcomes are counted separately."""
    by_email = {contact.body["email"]: contact.id for contact in contacts}
    rows = data.rows("SELECT id, email FROM prospects")
    prospects = {str(id): by_email.get(email, str(email)) for id, email in rows}
    mails = data.mails()
    _, late = resent(mails)
    found = Counter(prospects.get(mail.prospect, mail.prospect) for mail in mails)
    found.subtract(prospects.get(mail.prospect, mail.prospect) for mail in late)
    parked = {prospects.get(key.removeprefix("email:")) for key in unknown(data)}
    known = [contact for contact in contacts if found[contact.id] or contact.id not in parked]
    counted = {
        "mails received": len(mails),
        "mails of owners that had been replaced": len(late),
        "mails whose outcome is unknown (parked)": len(parked),
    }
    imported = Audit.of(contacts, prospects.values(), what="prospect", wrong=wrong)
    return imported + Audit.of(known, found.elements(), what="mail", counted=counted)


def reply_event(message_id: str) -> str:
    """Return the id of the event that delivered this reply."""
    return f"reply-{message_id.strip('<>').partition('@')[0]}"


def deliver(outreach: Outreach, event: StormEvent) -> dict[str, Any]:
    """Deliver one message, as the system's own queue would."""
    kind, _, number = event.id.partition("-")
    if kind == "contact":
        id = outreach.import_prospect(**event.body)["id"]
        result = outreach.enrich(id, "website")
        return result if result.get("reason") in RETRY_REASONS else outreach.send_email(id)
    if kind in ("charge", "cron"):
        paid = kind == "charge"
        if paid:
            outcome: Outcome[Any] = outreach.charge.outcome("acme", int(number), event.body)
        else:  # if the mail server was busy and the run failed, only a redelivery repeats it here
            outcome = outreach.cron.tick(event.body, rerun=True)
        outcome.unwrap()
        return {"done": True} if outcome.executed else {"duplicate": True}
    return outreach.receive(event.body.encode("latin-1"))


def connect(services: Mapping[str, str], **choices: Any) -> Outreach:
    return Outreach(services["database"], smtp=services["smtp"], api=services["api"], **choices)


# ── what arrives ──


def prospect(dice: random.Random, number: int) -> dict[str, str]:
    """Return a prospect that differs from all others: similar ones would be merged, as they should."""
    given, family, city = ("".join(dice.choices(SYLLABLES, k=4)).title() for _ in range(3))
    return {"name": f"{given} {family}", "email": f"{given}.{family}{number}@{city}.example".lower(), "city": city}


def reply(dice: random.Random, sender: str, number: int, *, named: bool) -> str:
    """Return a MIME mail with or without a Message-ID, with a folded header, in one of several encodings."""
    mail = EmailMessage()
    mail["From"], mail["Subject"] = sender, f"Re: Grüße {number}"
    mail.set_content("Ja, gerne. はい。" if dice.random() < 0.5 else "Yes, please.", charset=dice.choice(CHARSETS))
    folded = dice.choice(("Message-ID: ", "Message-Id:\r\n ", "MESSAGE-ID:\t"))
    return (f"{folded}<{number}@storm.example>\r\n" if named else "") + mail.as_bytes().decode("latin-1")


def slots() -> list[datetime]:
    """Return the cron slots of the last days. There are none on Sundays and at night."""
    week = datetime.now(UTC).replace(minute=0, second=0, microsecond=0) - timedelta(days=6)
    times = (week + timedelta(minutes=5 * step) for step in range(6 * 288))
    return [at for at in times if at.weekday() < 6 and 8 <= at.hour <= 18]


@contextmanager
def database(setting: StormSetting) -> Iterator[str]:
    """Create the database of this run, and yield its URL: a SQLite file, or a PostgreSQL schema."""
    if not setting.store:
        yield f"sqlite:///{setting.folder}/outreach.db?synchronous=NORMAL"
        return
    if not setting.store.startswith("postgres"):
        raise ConfigurationError("outreach stores rows in the database of its records", hint="use SQLite or PostgreSQL")
    import psycopg

    schema, separator = f"outreach_{setting.run}", "&" if "?" in setting.store else "?"
    with closing(psycopg.connect(setting.store, autocommit=True)) as connection:
        connection.execute(f"CREATE SCHEMA {schema}".encode())
        try:
            yield f"{setting.store}{separator}migrate=1&options=-csearch_path%3D{schema}"
        finally:
            connection.execute(f"DROP SCHEMA {schema} CASCADE".encode())


SYSTEM: Final = Storm()
