"""The audit: check the data against the two checklists of the requirements, line by line.

It reads what the mail server, the bank and the pager received, the system's own tables, and the records: with plain
SQL, without Onceward. What a line says cannot happen is tried in a transaction that is rolled back.
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
from .evidence import AuditData, Mail, Row
from .outside import query_outside

VERIFY, VERIFIED = "What to Verify", "Verification Checklist"
PROBE_ROWS: Final = {
    "prospects": ("probe", "Probe", "probe@example.com", "", "", None, None, "2026-01-01", 0),
    "emails": ("probe", None, "inbound", "<probe@example.com>", "2026-01-01"),
    "enrichments": ("probe", "website", 1, "2026-01-01", None, None),
    "runs": (PATTERN, "probe", "2026-01-01", 0),
}
"""A row for each table that does not exist in it, to test the constraints."""

NATURAL_KEYS: Final = {
    "prospects": "id",
    "emails": "id",
    "enrichments": "prospect_id, type, token",
    "runs": "pattern, scheduled_at",
}
WRITES: Final = {
    "prospects": sql.UPSERT_PROSPECT,
    "emails": sql.INSERT_EMAIL,
    "enrichments": sql.INSERT_ATTEMPT,
    "runs": sql.INSERT_RUN,
}


# ── the lines ───────────────────────────────────────────────────────────────────────────────────────────────────────

Check = Callable[[AuditData], Iterator[str]]


class ChecklistLine(NamedTuple):
    """One line of a checklist, and its check, which yields every violation."""

    checklist: str
    section: str
    text: str
    check: Check


LINES: Final[list[ChecklistLine]] = []


def line(checklist: str, section: str, text: str) -> Callable[[Check], Check]:
    def add(check: Check) -> Check:
        LINES.append(ChecklistLine(checklist, section, text, check))
        return check

    return add


@line(VERIFY, "Email Sending", "Same prospect never emailed twice in 24 hours")
def one_mail_a_day(data: AuditData) -> Iterator[str]:
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
def one_row_an_id(data: AuditData) -> Iterator[str]:
    row = PROBE_ROWS["emails"]
    if not data.rejects(("emails", row), ("emails", (*row[:3], "<other@example.com>", row[4]))):
        yield "a second row with the same id was accepted"
    yield from duplicates(data, "emails", "id")


@line(VERIFY, "Email Sending", "Cron restart doesn't re-send emails")
def nothing_sent_again(data: AuditData) -> Iterator[str]:
    yield from (f"{mail.message_id} was sent to {mail.prospect} again" for mail in resent(data.mails())[0])


def resent(mails: Iterable[Mail]) -> tuple[list[Mail], list[Mail]]:
    """Return the mails that were sent again with the same Message-ID: those sent by mistake, and the late ones.

    A worker that takes over asks the server first. If the replaced worker sends its mail after that, its lease had
    expired. No lease can prevent that, so these late mails are counted separately. A token is the time of its claim.
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
def one_enrichment_at_a_time(data: AuditData) -> Iterator[str]:
    attempts = data.rows("SELECT prospect_id, type, started_at, ended_at FROM enrichments ORDER BY 1, 2, 3")
    for (*one, _, ended), (*other, started, _) in pairwise(attempts):
        if one == other and ended is not None and started < ended:
            yield f"{' '.join(one)} was started at {started}, before an earlier one ended at {ended}"


@line(VERIFY, "Enrichment", "Webhook retry doesn't duplicate data")
def found_once(data: AuditData) -> Iterator[str]:
    found = data.rows("SELECT prospect_id, type, ended_at FROM enrichments WHERE found IS NOT NULL ORDER BY 1, 2, 3")
    for (*one, before), (*other, after) in pairwise(found):
        if one == other and datetime.fromisoformat(after) - datetime.fromisoformat(before) < sql.DAY:
            yield f"{' '.join(one)} was found at {before} and at {after}"


@line(VERIFY, "Reply Processing", "Same reply not processed twice")
def replies_counted_once(data: AuditData) -> Iterator[str]:
    """Compare with the counter: it shows repeated processing that a unique row would hide."""
    stored = Counter(row[0] for row in data.rows("SELECT prospect_id FROM emails WHERE direction = 'inbound'"))
    for prospect, replies in data.rows("SELECT id, replies FROM prospects"):
        if replies != stored[prospect]:
            yield f"{prospect} has {stored[prospect]} replies, {replies} were processed"


@line(VERIFY, "Reply Processing", "Duplicate message-IDs rejected")
def message_ids_refused(data: AuditData) -> Iterator[str]:
    row = PROBE_ROWS["emails"]
    if not data.rejects(("emails", row), ("emails", ("other", *row[1:]))):
        yield "a second row with the same Message-ID was accepted"
    nameless = (*row[:3], None, row[4])
    if data.rejects(("emails", nameless), ("emails", ("other", *nameless[1:]))):
        yield "a second mail without a Message-ID was rejected"
    yield from duplicates(data, "emails", "message_id")


@line(VERIFY, "Database Operations", "Upserts used instead of blind inserts")
def no_row_twice(data: AuditData) -> Iterator[str]:
    for table, columns in NATURAL_KEYS.items():
        yield from duplicates(data, table, columns)


@line(VERIFY, "Database Operations", "Unique constraints enforced")
def constraints_hold(data: AuditData) -> Iterator[str]:
    for table, row in PROBE_ROWS.items():
        if not data.rejects((table, row), (table, row)):
            yield f"{table} accepts a row twice"
    row = PROBE_ROWS["prospects"]
    if not data.rejects(("prospects", row), ("prospects", ("other", *row[1:]))):
        yield "prospects accepts an e-mail address twice"


@line(VERIFIED, "", "Email dedup check before every send")
def every_mail_was_claimed(data: AuditData) -> Iterator[str]:
    records, mails = data.records("email"), data.mails()
    for mail in sent_in_last_day(mails, mails[-1].at if mails else 0):
        record = records.get(f"email:{mail.prospect}")
        if record is None or mail.token > record.token:
            yield f"{mail.message_id} was sent to {mail.prospect} without a claim"


@line(VERIFIED, "", "Distributed locks on critical operations")
def effects_have_owners(data: AuditData) -> Iterator[str]:
    yield from (f"{mail.message_id} was sent without a token" for mail in data.mails() if not mail.token)
    granted = {key: record.token for key, record in data.records("enrich").items()}
    merged: dict[str, list[str]] = {}
    for old, now in data.rows("SELECT id, merged_into FROM onceward_people WHERE merged_into IS NOT NULL"):
        merged.setdefault(now, []).append(old)
    attempts = data.rows("SELECT prospect_id, type, token, started_at FROM enrichments ORDER BY started_at DESC")
    for prospect, kind, token, started in attempts:
        known = [granted.get(f"enrich:{one}:{kind}") for one in (prospect, *merged.get(prospect, ()))]
        latest = max((one for one in known if one is not None), default=None)
        old = datetime.fromisoformat(attempts[0][-1]) - datetime.fromisoformat(started) >= sql.DAY  # may be purged
        if not token or (latest is None and not old) or (latest is not None and token > latest):
            yield f"enrichment of {prospect} ({kind}) has the token {token}, which no claim has"


@line(VERIFIED, "", "Cron runs tracked and deduplicated")
def runs_are_tracked(data: AuditData) -> Iterator[str]:
    runs = Counter(slot_key(slot) for (slot,) in data.rows("SELECT scheduled_at FROM runs"))
    records = {key: one for key, one in data.records("schedule:cron:").items() if key.endswith("Z")}
    latest = max(runs, default="")
    for slot, number in sorted(runs.items()):
        if number > 1:
            yield f"{slot} was run {number} times"
        if slot not in records and latest[:10] == slot[:10]:  # records of other days may be purged
            yield f"the run of {slot} has no record"
    for slot, record in sorted(records.items()):
        if record.state == "COMPLETED" and slot not in runs:
            yield f"{slot} is recorded, but was not run"


def slot_key(slot: str) -> str:
    """Return the key of the slot: 2026-03-02T08:05Z."""
    return f"{datetime.fromisoformat(slot):%Y-%m-%dT%H:%M}Z"


@line(VERIFIED, "", "Message-ID uniqueness enforced")
def mails_have_ids(data: AuditData) -> Iterator[str]:
    row = PROBE_ROWS["emails"]
    if not data.rejects(("emails", row), ("emails", ("other", *row[1:]))):
        yield "emails accepts a Message-ID twice"
    [(nameless,)] = data.rows("SELECT count(*) FROM emails WHERE direction = 'outbound' AND message_id IS NULL")
    if nameless:
        yield f"{nameless} mails were sent without a Message-ID"
    prospects = {(mail.message_id, mail.prospect) for mail in data.mails()}
    for message_id, number in Counter(message_id for message_id, _ in prospects).items():
        if number > 1 or message_id is None:
            yield f"mails to {number} prospects have the Message-ID {message_id}"


@line(VERIFIED, "", "Import deduplication working")
def one_row_a_prospect(data: AuditData) -> Iterator[str]:
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
def repeats_change_nothing(data: AuditData) -> Iterator[str]:
    """Repeat the system's own writes with the existing rows."""
    for table, write in WRITES.items():
        with data.rolled_back() as run:
            everything = f"SELECT * FROM {table} ORDER BY {NATURAL_KEYS[table]}"
            before = run(everything)
            width = write.count("?")
            try:
                for row in before[:100]:
                    run(write, *row[:width])
            except Exception as error:  # noqa: BLE001 (it depends on the driver)
                yield f"a repeated write to {table} failed: {str(error).splitlines()[0]}"
                continue
            if run(everything) != before:
                yield f"a repeated write to {table} changed something"


@line(VERIFIED, "", "No duplicate alerts/notifications")
def one_alert_a_reply(data: AuditData) -> Iterator[str]:
    alerts = Counter(json.loads(what)["reply"] for (what,) in query_outside(data.outside, "SELECT what FROM alerts"))
    yield from (f"the reply {reply} caused {number} alerts" for reply, number in alerts.items() if number > 1)


def duplicates(data: AuditData, table: str, columns: str) -> Iterator[str]:
    statement = f"SELECT {columns}, count(*) FROM {table} GROUP BY {columns} HAVING count(*) > 1"
    for *key, number in data.rows(statement):
        if None not in key:
            yield f"{table} has {number} rows of {' '.join(map(str, key))}"


def sent_in_last_day(mails: Iterable[Mail], now: int) -> Iterator[Mail]:
    """Return the mails of the last 24 hours: their records cannot be purged yet."""
    return (mail for mail in mails if timedelta(microseconds=now - mail.at) < sql.DAY)


# ── the audit ─────────────────────────────────────────────────────────────────────────────────────────────────────


class LineResult(NamedTuple):
    """A line, and its violations."""

    line: ChecklistLine
    wrong: list[str]


def audit(data: AuditData) -> list[LineResult]:
    return [LineResult(one, list(one.check(data))) for one in LINES]


def unknown(data: AuditData) -> list[str]:
    """Return the keys for which it is unknown whether the effect happened."""
    return [key for (key,) in data.rows("SELECT key FROM onceward_records WHERE state = 'PARKED' ORDER BY key")]


def report(data: AuditData) -> bool:
    """Print the result of each line. Return whether all of them hold."""
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
    print(f"counted separately: {len(late)} mails of replaced owners, {len(parked)} whose outcome is unknown")
    print(*(f"  unknown: {key}" for key in parked), sep="\n", end="\n" if parked else "")
    return not any(wrong for _, wrong in found)
