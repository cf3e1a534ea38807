"""Outreach in a storm: `python -m examples.outreach storm [--seconds 20] [--store URL] [--unguarded]`.

Prospects, replies, invoices and runs of cron arrive several times and out of order, at workers that are killed. Then
what the mail server, the bank and the pager have really got is counted, and the rows.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from datetime import UTC, datetime, timedelta
from email.charset import QP, Charset
from email.message import EmailMessage
from itertools import count
from pathlib import Path
from typing import Any, Final

from onceward import AlreadyRunning
from onceward import Event as Happened
from onceward.testing import disabled
from onceward.testing.storm import Answer, Audit, Effect, Event, Setting

from .app import Outreach
from .audit import audit, resent, unknown
from .evidence import Data
from .outside import Outside, kept

SYLLABLES: Final = [
    a + b for a in ("b", "br", "d", "f", "gr", "h", "k", "l", "m", "pl", "s", "tr", "v") for b in "aeiou"
]
CHARSETS: Final = ("utf-8", "iso-8859-1", "iso-2022-jp", "utf-16")
SLOWNESS: Final = 0.01  # seconds that the mail server takes: some workers die meanwhile
LATER: Final = ("send_in_progress", "enriching")


class Storm:
    """The system of a storm: see `onceward.testing.storm`."""

    name = "outreach"
    effects = (
        Effect("mail at the SMTP server", "once, if its answer can be trusted: looked up by Message-ID after a crash"),
        Effect("reply row, count of replies, run of cron", "exactly once: rows and record in one transaction"),
        Effect("alert, charge", "once, for as long as the remote remembers the key: a derived key"),
        Effect("look-up in the directory, mail of a replaced owner", "at least once: counted"),
    )

    @contextmanager
    def open(self, setting: Setting) -> Iterator[dict[str, str]]:
        with (
            database(setting) as url,
            Outside(Path(setting.folder) / "outside.db", slowness=SLOWNESS) as outside,
        ):
            services = {"database": url, "smtp": outside.smtp, "api": outside.api}
            Outreach(**services).close()  # makes the tables
            yield services

    def events(self, dice: random.Random) -> Iterator[Event]:
        known: list[str] = []
        for number in count(1):
            kind = dice.choices(("contact", "reply", "bare", "charge", "cron"), (50, 25, 3, 18, 4))[0]
            if kind == "contact" or not known:
                row = prospect(dice, number)
                known.append(row["email"])
                yield Event(f"contact-{number}", row)
            elif kind in ("reply", "bare"):
                yield Event(f"{kind}-{number}", reply(dice, dice.choice(known), kind == "reply", number))
            elif kind == "charge":
                yield Event(f"charge-{number}", dice.randrange(100, 50_000))
            else:
                yield Event(f"cron-{number}", slot(number).isoformat())

    def worker(self, setting: Setting) -> Callable[[Event], Answer]:
        outreach = Outreach(**setting.services, lease=setting.lease, wait="250ms")
        attempts: list[int] = []

        def heard(happened: Happened) -> None:
            if happened.name == "acquired":
                attempts.append(happened.attempt)

        outreach.once.subscribe(heard)
        if not setting.guarded:
            disabled().__enter__()  # for as long as the worker lives

        def work(event: Event) -> Answer:
            attempts.clear()
            try:
                said = delivered(outreach, event)
            except AlreadyRunning as running:
                return Answer("running", why=repr(running))
            if said.get("reason") in LATER:
                return Answer("running")
            if said.get("reason") == "unknown":
                return Answer("parked")
            return Answer(
                "replayed" if said.keys() & {"skipped", "duplicate"} else "executed", max(attempts, default=1)
            )

        return work

    def audit(self, setting: Setting, events: Sequence[Event]) -> Audit:
        """What each event should have done once, and what it did."""
        url, outside = setting.services["database"], Path(setting.folder) / "outside.db"
        data = Data(url, outside)
        mails, (again, late) = data.mails(), resent(data.mails())
        done = effects_of(data, outside)
        done.subtract(Counter(f"mail to {mail.prospect}" for mail in late))
        wanted = expected(data, events)
        parked = set(unknown(data))
        return Audit(
            expected=len(wanted),
            effects=sum(done[effect] for effect in wanted),
            duplicates=[effect for effect in wanted if done[effect] > 1],
            lost=[
                effect for effect in wanted if done[effect] < 1 and effect.replace("mail to ", "email:") not in parked
            ],
            wrong=[f"{found.line.text}: {wrong}" for found in audit(data) for wrong in found.wrong],
            counted={
                "mails received": len(mails),
                "mails sent again under their Message-ID": len(again),
                "mails of owners that had been replaced": len(late),
                "mails whose outcome is unknown (parked)": sum(key.startswith("email:") for key in parked),
                "look-ups": kept(outside, "SELECT count(*) FROM lookups")[0][0],
                "enrichments": data.rows("SELECT count(*) FROM enrichments WHERE found IS NOT NULL")[0][0],
                "requests to the bank and the pager": sum(row[0] for row in kept(outside, ASKED)),
                "rows of replies without a Message-ID": data.rows(NAMELESS)[0][0],
            },
        )


ASKED: Final = "SELECT asked FROM charges UNION ALL SELECT asked FROM alerts"
NAMELESS: Final = "SELECT count(*) FROM emails WHERE direction = 'inbound' AND message_id IS NULL"


def delivered(outreach: Outreach, event: Event) -> dict[str, Any]:
    """One message, as the system's own queue would hand it over."""
    kind, _, number = event.id.partition("-")
    if kind == "contact":
        id = outreach.import_prospect(**event.body)["id"]
        said = outreach.enrich(id, "website")
        return said if said.get("reason") in LATER else outreach.send_email(id)
    if kind == "charge":
        outcome = outreach.charge.outcome("acme", int(number), event.body)
        outcome.unwrap()
        return {"charged": True} if outcome.executed else {"duplicate": True}
    if kind == "cron":
        outcome = outreach.cron.tick(event.body)
        outcome.unwrap()
        return {"run": True} if outcome.executed else {"duplicate": True}
    return outreach.receive(event.body.encode("latin-1"))


def expected(data: Data, events: Sequence[Event]) -> list[str]:
    """A name for each effect that these events mean. A reply without a Message-ID is new every time."""
    ids = dict(data.rows("SELECT email, id FROM prospects"))
    wanted = []
    for event in events:
        kind, _, number = event.id.partition("-")
        if kind == "contact":
            wanted += [f"mail to {ids.get(event.body['email'])}", f"row of {event.body['email']}"]
        elif kind == "reply":
            wanted += [f"reply <{number}@storm.example>", f"alert of <{number}@storm.example>"]
        elif kind == "charge":
            wanted.append(f"invoice {number}")
        elif kind == "cron":
            wanted.append(f"run of {datetime.fromisoformat(event.body):%Y-%m-%d %H:%M}")
    return list(dict.fromkeys(wanted))


def effects_of(data: Data, outside: Path) -> Counter[str]:
    done = Counter(f"mail to {mail.prospect}" for mail in data.mails())
    done += Counter(f"row of {email}" for (email,) in data.rows("SELECT email FROM prospects"))
    replies = dict(data.rows("SELECT id, message_id FROM emails WHERE direction = 'inbound'"))
    done += Counter(f"reply {message_id}" for message_id in replies.values())
    alerts = (json.loads(what)["reply"] for (what,) in kept(outside, "SELECT what FROM alerts"))
    done += Counter(f"alert of {replies.get(reply)}" for reply in alerts)
    done += Counter(f"invoice {json.loads(what)['invoice']}" for (what,) in kept(outside, "SELECT what FROM charges"))
    runs = (datetime.fromisoformat(at) for (at,) in data.rows("SELECT scheduled_at FROM runs"))
    done += Counter(f"run of {at:%Y-%m-%d %H:%M}" for at in runs)
    return done


# ── what arrives ──


def prospect(dice: random.Random, number: int) -> dict[str, str]:
    """Unlike anybody else: who is alike is one prospect, as it should be."""
    given, family, city = ("".join(dice.choices(SYLLABLES, k=4)).title() for _ in range(3))
    return {"name": f"{given} {family}", "email": f"{given}.{family}{number}@{city}.example".lower(), "city": city}


def reply(dice: random.Random, sender: str, named: bool, number: int) -> str:  # noqa: FBT001 (a fact)
    """Real MIME: with a Message-ID or without, its header folded, in one of several encodings."""
    charset = Charset(dice.choice(CHARSETS))
    charset.body_encoding = QP
    mail = EmailMessage()
    mail["From"], mail["Subject"] = sender, f"Re: Grüße {number}"
    mail.set_content("Yes, please.", charset=charset.get_output_charset())
    folded = dice.choice(("Message-ID: ", "Message-Id:\r\n ", "MESSAGE-ID:\t"))
    return (f"{folded}<{number}@storm.example>\r\n" if named else "") + mail.as_bytes().decode("latin-1")


def slot(number: int) -> datetime:
    """A run of cron, of the last days: a Sunday and the nights are skipped."""
    week = datetime.now(UTC).replace(minute=0, second=0, microsecond=0) - timedelta(days=6)
    slots = (week + timedelta(minutes=5 * step) for step in range(6 * 288))
    office = [at for at in slots if at.weekday() < 6 and 8 <= at.hour <= 18]
    return office[number % len(office)]


@contextmanager
def database(setting: Setting) -> Iterator[str]:
    """A file of this run; on PostgreSQL a schema."""
    if not setting.store:
        yield f"sqlite:///{setting.folder}/outreach.db?synchronous=NORMAL"
        return
    import psycopg

    schema, separator = f"outreach_{setting.run}", "&" if "?" in setting.store else "?"
    with closing(psycopg.connect(setting.store, autocommit=True)) as connection:
        connection.execute(f"CREATE SCHEMA {schema}")
        try:
            yield f"{setting.store}{separator}migrate=1&options=-csearch_path%3D{schema}"
        finally:
            connection.execute(f"DROP SCHEMA {schema} CASCADE")


SYSTEM: Final = Storm()
