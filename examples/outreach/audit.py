"""The audit: the document's two checklists, line by line, against the data.

What the mail server, the bank and the pager have kept, the system's own tables, and the records: read by plain SQL, and
nothing of Onceward is asked. What a line says cannot happen is tried out, in a transaction that is rolled back.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime, timedelta
from itertools import pairwise
from typing import Final, NamedTuple

from . import tables as sql
from .app import PATTERN
from .evidence import Data, Mail, Row
from .outside import kept

VERIFY, VERIFIED = "What to Verify", "Verification Checklist"
PROBE: Final = {
    "prospects": ("probe", "Probe", "probe@example.com", "", "", None, None, "2026-01-01", 0),
    "emails": ("probe", None, "inbound", "<probe@example.com>", "2026-01-01"),
    "enrichments": ("probe", "website", 1, "2026-01-01", None, None),
    "runs": (PATTERN, "probe", "2026-01-01", 0),
}
"""A row of each table that is not there, to try its constraints with."""

NATURAL: Final = {
    "prospects": "id",
    "emails": "id",
    "enrichments": "prospect_id, type, token",
    "runs": "pattern, scheduled_at",
}
WRITES: Final = {"prospects": sql.PROSPECT, "emails": sql.EMAIL, "enrichments": sql.ATTEMPT, "runs": sql.RUN}


# ── the lines ───────────────────────────────────────────────────────────────────────────────────────────────────────

Check = Callable[[Data], Iterator[str]]


class Line(NamedTuple):
    """One line of a checklist, and how to see whether it holds: whatever the check tells is wrong."""

    checklist: str
    section: str
    text: str
    check: Check


LINES: Final[list[Line]] = []


def line(checklist: str, section: str, text: str) -> Callable[[Check], Check]:
    def add(check: Check) -> Check:
        LINES.append(Line(checklist, section, text, check))
        return check

    return add


@line(VERIFY, "Email Sending", "Same prospect never emailed twice in 24 hours")
def one_mail_a_day(data: Data) -> Iterator[str]:
    sent = data.rows("SELECT prospect_id, sent_at FROM emails WHERE direction = 'outbound' ORDER BY 1, 2")
    for (one, before), (other, after) in pairwise(sent):
        if one == other and datetime.fromisoformat(after) - datetime.fromisoformat(before) < sql.DAY:
            yield f"{one} has rows of {before} and {after}"
    taken = sorted({(mail.prospect, mail.message_id or ""): mail for mail in data.mails()}.values(), key=by_prospect)
    for first, second in pairwise(taken):
        if first.prospect == second.prospect and timedelta(microseconds=second.at - first.at) < sql.DAY:
            yield f"{first.prospect} was sent {first.message_id} and {second.message_id}"


def by_prospect(mail: Mail) -> tuple[str, int]:
    return mail.prospect, mail.at


@line(VERIFY, "Email Sending", "Same email ID can't be inserted twice")
def one_row_an_id(data: Data) -> Iterator[str]:
    row = PROBE["emails"]
    if not data.refuses(("emails", row), ("emails", (*row[:3], "<other@example.com>", row[4]))):
        yield "a second row with the same id was taken"
    yield from twice(data, "emails", "id")


@line(VERIFY, "Email Sending", "Cron restart doesn't re-send emails")
def nothing_sent_again(data: Data) -> Iterator[str]:
    yield from (f"{mail.message_id} was sent to {mail.prospect} again" for mail in resent(data.mails())[0])


def resent(mails: Iterable[Mail]) -> tuple[list[Mail], list[Mail]]:
    """Mails that were sent once more under one Message-ID: wrongly; and by an owner that had been replaced.

    Whoever takes over asks the server first. A mail that came after that question, from an owner that had been silent
    for longer than its lease, is what no lease can prevent: it is counted apart. A token is the time of its claim.
    """
    again: list[Mail] = []
    late: list[Mail] = []
    seen: dict[str | None, list[Mail]] = {}
    for mail in sorted(mails, key=lambda mail: mail.token):
        before = seen.setdefault(mail.message_id, [])
        if before:
            (late if all(one.at > mail.token > one.token for one in before) else again).append(mail)
        before.append(mail)
    return again, late


@line(VERIFY, "Enrichment", "Same prospect not enriched twice simultaneously")
def one_enrichment_at_a_time(data: Data) -> Iterator[str]:
    attempts = data.rows("SELECT prospect_id, type, started_at, ended_at FROM enrichments ORDER BY 1, 2, 3")
    for (*one, _, ended), (*other, started, _) in pairwise(attempts):
        if one == other and ended is not None and started < ended:
            yield f"{' '.join(one)} was begun at {started}, before the one that ended at {ended}"


@line(VERIFY, "Enrichment", "Webhook retry doesn't duplicate data")
def found_once(data: Data) -> Iterator[str]:
    found = data.rows("SELECT prospect_id, type, ended_at FROM enrichments WHERE found IS NOT NULL ORDER BY 1, 2, 3")
    for (*one, before), (*other, after) in pairwise(found):
        if one == other and datetime.fromisoformat(after) - datetime.fromisoformat(before) < sql.DAY:
            yield f"{' '.join(one)} was found at {before} and at {after}"


@line(VERIFY, "Reply Processing", "Same reply not processed twice")
def replies_counted_once(data: Data) -> Iterator[str]:
    """A count goes up with every processing: it shows what a unique row would hide."""
    stored = Counter(row[0] for row in data.rows("SELECT prospect_id FROM emails WHERE direction = 'inbound'"))
    for prospect, replies in data.rows("SELECT id, replies FROM prospects"):
        if replies != stored[prospect]:
            yield f"{prospect} has {stored[prospect]} replies, {replies} were processed"


@line(VERIFY, "Reply Processing", "Duplicate message-IDs rejected")
def message_ids_refused(data: Data) -> Iterator[str]:
    row = PROBE["emails"]
    if not data.refuses(("emails", row), ("emails", ("other", *row[1:]))):
        yield "a second row with the same Message-ID was taken"
    nameless = (*row[:3], None, row[4])
    if data.refuses(("emails", nameless), ("emails", ("other", *nameless[1:]))):
        yield "a second mail without a Message-ID was refused"
    yield from twice(data, "emails", "message_id")


@line(VERIFY, "Database Operations", "Upserts used instead of blind inserts")
def no_row_twice(data: Data) -> Iterator[str]:
    for table, columns in NATURAL.items():
        yield from twice(data, table, columns)


@line(VERIFY, "Database Operations", "Unique constraints enforced")
def constraints_hold(data: Data) -> Iterator[str]:
    for table, row in PROBE.items():
        if not data.refuses((table, row), (table, row)):
            yield f"{table} takes a row twice"
    row = PROBE["prospects"]
    if not data.refuses(("prospects", row), ("prospects", ("other", *row[1:]))):
        yield "prospects takes an e-mail twice"


@line(VERIFIED, "", "Email dedup check before every send")
def every_mail_was_claimed(data: Data) -> Iterator[str]:
    records, mails = data.records("email"), data.mails()
    for mail in of_the_last_day(mails, mails[-1].at if mails else 0):
        record = records.get(f"email:{mail.prospect}")
        if record is None or mail.token > record.token:
            yield f"{mail.message_id} was sent to {mail.prospect} although nobody had claimed that"


@line(VERIFIED, "", "Distributed locks on critical operations")
def effects_have_owners(data: Data) -> Iterator[str]:
    yield from (f"{mail.message_id} was sent without a token" for mail in data.mails() if not mail.token)
    given = {key: record.token for key, record in data.records("enrich").items()}
    folded: dict[str, list[str]] = {}
    for old, now in data.rows("SELECT id, merged_into FROM onceward_people WHERE merged_into IS NOT NULL"):
        folded.setdefault(now, []).append(old)
    attempts = data.rows("SELECT prospect_id, type, token, started_at FROM enrichments ORDER BY started_at DESC")
    for prospect, kind, token, started in attempts:
        known = [given.get(f"enrich:{one}:{kind}") for one in (prospect, *folded.get(prospect, ()))]
        newest = max((one for one in known if one is not None), default=None)
        old = datetime.fromisoformat(attempts[0][-1]) - datetime.fromisoformat(started) >= sql.DAY  # may be purged
        if not token or (newest is None and not old) or (newest is not None and token > newest):
            yield f"enrichment of {prospect} ({kind}) has the token {token}, which nobody was given"


@line(VERIFIED, "", "Cron runs tracked and deduplicated")
def runs_are_tracked(data: Data) -> Iterator[str]:
    runs = Counter(slot_key(slot) for (slot,) in data.rows("SELECT scheduled_at FROM runs"))
    records = {key: one for key, one in data.records("schedule:cron:").items() if key.endswith("Z")}
    newest = max(runs, default="")
    for slot, number in sorted(runs.items()):
        if number > 1:
            yield f"{slot} was run {number} times"
        if slot not in records and newest[:10] == slot[:10]:  # those of other days may be purged
            yield f"nobody tracked the run of {slot}"
    for slot, record in sorted(records.items()):
        if record.state == "COMPLETED" and slot not in runs:
            yield f"{slot} is recorded, but was not run"


def slot_key(slot: str) -> str:
    """As the store writes it: 2026-03-02T08:05Z."""
    return f"{datetime.fromisoformat(slot):%Y-%m-%dT%H:%M}Z"


@line(VERIFIED, "", "Message-ID uniqueness enforced")
def mails_have_ids(data: Data) -> Iterator[str]:
    row = PROBE["emails"]
    if not data.refuses(("emails", row), ("emails", ("other", *row[1:]))):
        yield "emails takes a Message-ID twice"
    [(nameless,)] = data.rows("SELECT count(*) FROM emails WHERE direction = 'outbound' AND message_id IS NULL")
    if nameless:
        yield f"{nameless} mails were sent without a Message-ID"
    prospects = {(mail.message_id, mail.prospect) for mail in data.mails()}
    for message_id, number in Counter(message_id for message_id, _ in prospects).items():
        if number > 1 or message_id is None:
            yield f"the Message-ID {message_id} is that of mails to {number} prospects"


@line(VERIFIED, "", "Import deduplication working")
def one_row_a_prospect(data: Data) -> Iterator[str]:
    by_email: Counter[str] = Counter()
    by_place: dict[Row, list[Row]] = {}
    for id, email, *place in data.rows("SELECT id, email, name, city, country FROM prospects"):
        by_email[(email or id).strip().lower()] += 1
        if all(place):
            by_place.setdefault(tuple(part.strip().casefold() for part in place), []).append((id, email))
    yield from (f"{email} is {number} prospects" for email, number in by_email.items() if number > 1)
    for where, several in by_place.items():
        if len(several) > 1 and not all(email for _, email in several):
            yield f"{', '.join(where)} is {' and '.join(id for id, _ in several)}"


@line(VERIFIED, "", "Upserts used for all writes")
def repeats_change_nothing(data: Data) -> Iterator[str]:
    """The system's own writes once more, with what is there."""
    for table, write in WRITES.items():
        with data.trial() as run:
            everything = f"SELECT * FROM {table} ORDER BY {NATURAL[table]}"
            before = run(everything)
            width = write.count("?")
            try:
                for row in before[:100]:
                    run(write, *row[:width])
            except Exception as error:  # noqa: BLE001 (whichever driver it is)
                yield f"a repeated write to {table} failed: {str(error).splitlines()[0]}"
                continue
            if run(everything) != before:
                yield f"a repeated write to {table} changed something"


@line(VERIFIED, "", "No duplicate alerts/notifications")
def one_alert_a_reply(data: Data) -> Iterator[str]:
    told = Counter(json.loads(what)["reply"] for (what,) in kept(data.outside, "SELECT what FROM alerts"))
    yield from (f"of the reply {reply} people were told {number} times" for reply, number in told.items() if number > 1)


def twice(data: Data, table: str, columns: str) -> Iterator[str]:
    statement = f"SELECT {columns}, count(*) FROM {table} GROUP BY {columns} HAVING count(*) > 1"
    for *key, number in data.rows(statement):
        if None not in key:
            yield f"{table} has {number} rows of {' '.join(map(str, key))}"


def of_the_last_day(mails: Iterable[Mail], now: int) -> Iterator[Mail]:
    """Whose records cannot have been purged."""
    return (mail for mail in mails if timedelta(microseconds=now - mail.at) < sql.DAY)


# ── all of them ─────────────────────────────────────────────────────────────────────────────────────────────────────


class Found(NamedTuple):
    """A line, and what is wrong about it."""

    line: Line
    wrong: list[str]


def audit(data: Data) -> list[Found]:
    return [Found(one, list(one.check(data))) for one in LINES]


def unknown(data: Data) -> list[str]:
    """Keys of which nobody knows whether their effect has happened."""
    return [key for (key,) in data.rows("SELECT key FROM onceward_records WHERE state = 'PARKED' ORDER BY key")]


def report(data: Data) -> bool:
    """Printed, line by line; whether all of them hold."""
    found, heading = audit(data), ""
    for number, (one, wrong) in enumerate(found, 1):
        title = f"{one.checklist}{f': {one.section}' if one.section else ''}"
        if title != heading:
            print(title)
            heading = title
        print(f"  {'✗' if wrong else '✓'} {number:>2}  {one.text}")
        for complaint in wrong[:5]:
            print(f"         {complaint}")
    late, parked = resent(data.mails())[1], unknown(data)
    print(f"counted apart: {len(late)} mails of owners that had been replaced, {len(parked)} whose outcome is unknown")
    print(*(f"  unknown: {key}" for key in parked), sep="\n", end="\n" if parked else "")
    return not any(wrong for _, wrong in found)
