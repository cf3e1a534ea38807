"""The outreach system: prospects, e-mails, replies, enrichment, charges and cron, each done once.

`onceward.toml` declares what is done once, under which key and for how long. This module does the work. Rows that must
be exact are written in one transaction with the record of the work. Requests to other systems carry a derived key.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

import httpx
from msgspec import Struct

from onceward import Failed, Once, Outcome, Replayed, Unknown, applied, current_claim, not_applied, verify
from onceward.errors import StoreError
from onceward.http.client_keys import IdempotencyKeys
from onceward.imports import Summary, import_file
from onceward.operations import Operations
from onceward.people import PERSON, Field, MergeRule, People, Person, SourceRecord, kinds, normalise
from onceward.people.people import JoinedPeople
from onceward.protocol.ports import Clock, Store
from onceward.stores.clock import WallClock

from . import tables as sql
from .mail import NOT_SENT, TIMEOUT, IncomingMail, MailServer, Unreachable, read_mail, write_mail

TABLE: Final = Path(__file__).with_name("onceward.toml")
PATTERN: Final = "*/5 8-18 * * 1-6"
CRON: Final = f"cron:{PATTERN}"
MAX_MAILS_PER_RUN: Final = 50  # that one run of cron sends
VERIFY_DELAY_PARTS: Final = 5  # wait a fifth of the lease (a minute) before verifying: the mail may still be in transit
TEXT: Final = "May we show you what we make?"
SAME_PROSPECT: Final = MergeRule(("name", "city", "country"), 0.95)
"""Prospects are organisations and their contacts: with the same name, city and country, they are one (C5)."""

FIELDS: Final = {**PERSON, "email": Field(kinds.MAILBOX, strong=True)}
"""An e-mail address identifies one prospect, even if several people read it (C5)."""

CONFIDENCE: Final = 0.9
"""A similar prospect is the same one above this confidence. At exactly this confidence, it is another prospect (C5)."""

Result = dict[str, Any]

CRON_LEASE = "600s"  # a run that crashed is free again after that, as the specification requires


class Remotes(Struct, frozen=True):
    """The base URLs of the services that the system calls."""

    mail_records: str
    directory: str
    bank: str
    pager: str

    @classmethod
    def at(cls, url: str) -> Remotes:
        """All services have the same base URL."""
        return cls(url, url, url, url)


class Outreach:
    """One worker. Many workers may share the database: each operation is done once among all of them."""

    def __init__(
        self,
        database: str,
        *,
        smtp: str,
        api: str | Remotes,
        store: Store | None = None,
        clock: Clock | None = None,
        lease: float | None = None,
        wait: str = "30s",
    ) -> None:
        self.clock = clock or WallClock()
        self.once = once = Once(
            store or database, app="outreach", operations=load_operations(lease), wait=wait, counters=True
        )
        above = math.nextafter(CONFIDENCE, 1)  # `accept` is the lowest confidence that merges
        self.people = People(database, clock=self.clock, fields=FIELDS, rules=[SAME_PROSPECT], accept=above)
        self._remotes = Remotes.at(api) if isinstance(api, str) else api
        self._http = httpx.Client(auth=IdempotencyKeys(), timeout=TIMEOUT)
        self._mails = MailServer(smtp, self._remotes.mail_records, self._http)
        self._create_tables()
        verify_delay = timedelta(microseconds=once.operations["email"].policy(once.policy).lease // VERIFY_DELAY_PARTS)
        found = verify(self._find_mail, after=verify_delay)
        self._email = once.operation(
            "email", after_crash=found, not_applied=(AlreadyEmailed, *NOT_SENT), final=Unreachable
        )(self._send)
        self._enrich = once.operation("enrich")(self._look_up)
        self._reply = once.operation("reply")(self._store_reply)
        self._notify = once.operation("notify")(self._alert)
        self.charge = once.operation("charge")(self._pay)
        cron = once.schedule(PATTERN, name=CRON, overlap="wait", catch_up_age="7d", lease=lease or CRON_LEASE)
        self.cron = cron(self._run)

    def _create_tables(self) -> None:
        """Create the tables if they do not exist. In PostgreSQL, CREATE IF NOT EXISTS would lock out other workers."""
        try:
            self._rows(sql.TABLES_EXIST)
        except StoreError:
            with self.people.transaction() as tx:
                for statement in sql.TABLES:
                    tx.execute(statement)

    def close(self) -> None:
        self.once.close()
        self.people.close()
        self._http.close()

    # ── prospects ──

    def import_prospects(self, file: Path, **choices: Any) -> Summary:
        """Import a CSV file. Importing it again changes nothing; after a crash, it continues where it stopped."""
        summary = import_file(file, self.people, **choices)
        people = {person.id: person for person in self.people}
        with self.people.transaction() as tx:
            for (old,) in tx.execute(sql.SELECT_IDS):
                now = None if old in people else self.people.get(old)
                if now is not None and now.id != old:
                    self._merge(tx, old, now)
            for person in people.values():
                self._publish(tx, person)
        return summary

    def import_prospect(self, **fields: str) -> Result:
        """Import one row. Return {action: created, updated or skipped, id: …}.

        A row without an e-mail address and a name is skipped: it would be the same prospect as every other such row.
        """
        email, name, city = (fields.get(field) for field in ("email", "name", "city"))
        if not (email or name):
            return {"action": "skipped", "id": None, "reason": "the row has neither an e-mail address nor a name"}
        record = SourceRecord("import", fields, id=f"import:{email}" if email else f"import:{name}:{city}")
        with self.people.transaction() as tx:
            [decision] = tx.add_many([record])
            person = self.people.get(decision.person) if decision.person else None
            if person is None:
                return {"action": "skipped", "id": None, "reason": decision.reason}
            if decision.action != "skipped":
                for old in decision.merged:
                    self._merge(tx, old, person)
                self._publish(tx, person)
        return {"action": "created" if decision.action == "to_review" else decision.action, "id": person.id}

    def _publish(self, tx: JoinedPeople, person: Person) -> None:
        fields = person.fields
        email = normalise.email(fields["email"]) if fields.get("email") else None
        values = [fields.get(field) for field in ("city", "country", "website", "contact_email")]
        tx.execute(
            sql.UPSERT_PROSPECT, person.id, fields.get("name"), email, *values, sql.format_time(person.updated_at)
        )

    def _merge(self, tx: JoinedPeople, old: str, person: Person) -> None:
        """Merge two prospects that turned out to be the same."""
        for statement in sql.MOVE_ROWS:
            tx.execute(statement, person.id, old)
        tx.execute(sql.DELETE_PROSPECT, old)
        self._publish(tx, person)
        tx.execute(sql.RECOUNT_REPLIES, person.id)

    # ── e-mails ──

    def send_email(self, prospect_id: str, text: str = TEXT) -> Result:
        """Send an e-mail. Return {sent: True}, or the reason why it was skipped.

        The reasons are already_emailed_today, send_in_progress, unknown, no_address and address_refused.
        """
        if self._address(prospect_id) is None:
            return {"skipped": True, "reason": "no_address"}
        outcome = self._email.outcome(prospect_id, text)
        done = self._email.policy.reasons.done
        known = {AlreadyEmailed.__name__: done, Unreachable.__name__: "address_refused"}
        if isinstance(outcome, Failed) and outcome.error_type in known:
            return {"skipped": True, "reason": known[outcome.error_type]}
        return result_of("sent", outcome, done)

    def _send(self, prospect_id: str, text: str) -> None:
        claim, message_id = current_claim(), self._message_id()
        to, name = self._address(prospect_id) or ("", None)
        if self._rows(sql.SELECT_RECENT_EMAIL, prospect_id, sql.format_time(self._now() - sql.DAY)):
            raise AlreadyEmailed(prospect_id)
        mail = write_mail(message_id, to, name, text, prospect=prospect_id, token=str(claim.token))
        claim.check()  # raises if this worker was replaced because its lease expired
        self._mails.send(mail)
        self._record_sent(prospect_id, message_id)

    def _find_mail(self, prospect_id: str, text: str) -> object:  # noqa: ARG002 (called with the arguments of the work)
        """After a crash of the sender, ask the mail server whether it accepted the mail. If it raises, park the key."""
        message_id = self._message_id()
        if not self._mails.has_sent(message_id):
            return not_applied
        self._record_sent(prospect_id, message_id)
        return applied()

    def _message_id(self) -> str:
        """Return the Message-ID: the same in every attempt, and another one in the next window."""
        return f"<{current_claim().derived_key('email')}@outreach.example>"

    def _record_sent(self, prospect_id: str, message_id: str) -> None:
        """Insert the row of a mail that was sent. Several workers may find that out; only the first insert counts."""
        with self.people.transaction() as tx:
            tx.execute(sql.INSERT_EMAIL, message_id, prospect_id, "outbound", message_id, sql.format_time(self._now()))

    def _address(self, prospect_id: str) -> tuple[str, str | None] | None:
        rows = self._rows(sql.SELECT_ADDRESS, prospect_id)
        return (rows[0][0], rows[0][1]) if rows and rows[0][0] else None

    # ── replies ──

    def receive(self, raw: bytes) -> Result:
        """Process a mail that arrived. A repeated Message-ID is a duplicate; a mail without one never is."""
        return self.receive_mail(read_mail(raw))

    def receive_mail(self, mail: IncomingMail) -> Result:
        """As `receive`, for a mail that was parsed already."""
        if mail.message_id is None:
            with self.people.transaction() as tx:
                reply_id, new = self._save(tx, mail, uuid4().hex), True
        else:
            outcome = self._reply.outcome(mail.message_id, mail)
            reply_id, new = outcome.unwrap(), outcome.executed
        if reply_id is None:  # one of our own mails
            return {"duplicate": True}
        self._notify(
            reply_id, mail.subject
        )  # also for a duplicate: the first worker may have crashed before it did this
        return {"processed": True} if new else {"duplicate": True}

    def _store_reply(self, message_id: str, mail: IncomingMail) -> str | None:  # noqa: ARG002 (the key)
        claim = current_claim()
        with self.people.transaction() as tx:
            reply_id = self._save(tx, mail, claim.derived_key("reply"))
            claim.complete_in(tx.connection, reply_id)
        return reply_id

    def _save(self, tx: JoinedPeople, mail: IncomingMail, id: str) -> str | None:
        found = [row for one in mail.answers for row in tx.execute(sql.SELECT_RECIPIENT, one)]
        found += tx.execute(sql.SELECT_BY_ADDRESS, mail.sender, mail.sender) if mail.sender else []
        prospect_id = found[0][0] if found else None
        if not tx.execute(sql.INSERT_EMAIL, id, prospect_id, "inbound", mail.message_id, sql.format_time(self._now())):
            return None
        if prospect_id is not None:
            tx.execute(sql.COUNT_REPLY, prospect_id)
        return id

    def _alert(self, reply_id: str, subject: str) -> None:
        self._http.post(
            f"{self._remotes.pager}/alerts", json={"reply": reply_id, "subject": subject}
        ).raise_for_status()

    # ── enrichment ──

    def enrich(self, prospect_id: str, type: str) -> Result:
        """Look up data about a prospect, unless it is known, was tried today, or is being looked up."""
        known = self._rows(sql.SELECT_ENRICHMENT.format(sql.ENRICHMENT_COLUMNS[type]), prospect_id)
        if known and known[0][0]:
            return {"skipped": True, "reason": "already_known"}
        outcome = self._enrich.outcome(prospect_id, type)
        return result_of("enriched", outcome, self._enrich.policy.reasons.done)

    def _look_up(self, prospect_id: str, type: str) -> str:
        claim = current_claim()
        attempt = prospect_id, type, claim.token
        with self.people.transaction() as tx:
            tx.execute(sql.INSERT_ATTEMPT, *attempt, sql.format_time(self._now()), None, None)
        found: str = (
            self._http.get(f"{self._remotes.directory}/directory/{type}/{prospect_id}")
            .raise_for_status()
            .json()["found"]
        )
        found = normalise.email(found) if type == "email" else found
        with self.people.transaction() as tx:
            tx.execute(sql.END_ATTEMPT, sql.format_time(self._now()), found, *attempt)
            tx.execute(sql.SET_ENRICHMENT.format(sql.ENRICHMENT_COLUMNS[type]), found, prospect_id)
            claim.complete_in(tx.connection, found)
        return found

    def store_enrichment(self, prospect_id: str, type: str, found: str) -> Result:
        """Store what a provider found and sends later, by webhook. What is known already stays."""
        column = sql.ENRICHMENT_COLUMNS[type]
        found = normalise.email(found) if type == "email" else found
        with self.people.transaction() as tx:
            known = tx.execute(sql.SELECT_ENRICHMENT.format(column), prospect_id)
            if not known or known[0][0]:
                return {"skipped": True, "reason": "already_known" if known else "unknown_prospect"}
            tx.execute(sql.SET_ENRICHMENT.format(column), found, prospect_id)
        return {"enriched": True}

    # ── a paid API ──

    def _pay(self, customer: str, invoice: int, cents: int) -> str:
        """Charge an invoice. The HTTP client adds the claim's derived key, so a retry is always the same charge."""
        bill = {"customer": customer, "invoice": invoice, "cents": cents}
        paid = self._http.post(f"{self._remotes.bank}/charges", json=bill)
        return str(paid.raise_for_status().json()["receipt"])

    # ── cron ──

    def _run(self, scheduled_at: datetime) -> int:
        """Send a mail to every prospect that is due. A repeated run skips those that already got one."""
        sent, failures = 0, []
        for (prospect_id,) in self._rows(sql.SELECT_DUE, sql.format_time(self._now() - sql.DAY)):
            for kind in sql.ENRICHMENT_COLUMNS:
                self.enrich(prospect_id, kind)
            try:
                sent += bool(self.send_email(prospect_id).get("sent"))
            except (OSError, ValueError) as error:  # a prospect whose mail fails does not stop the others
                failures.append(error)
            if sent == MAX_MAILS_PER_RUN:
                break
        if failures and not sent:
            raise failures[0]
        with self.people.transaction() as tx:
            tx.execute(sql.INSERT_RUN, PATTERN, sql.format_time(scheduled_at), sql.format_time(self._now()), sent)
            current_claim().complete_in(tx.connection, sent)
        return sent

    # ── locks, and the table of operations ──

    def with_lock(self, name: str, work: Callable[[], Any]) -> Any:
        """Run the work under a lock and return its value; None if another worker holds the lock."""
        lock = self.once.try_lock(name, lease="300s")
        if lock is None:
            return None
        with lock:
            return work()

    def windows(self) -> list[tuple[str, str, str]]:
        """Return every operation with its window and the template of its key."""
        runs, source = self.cron.schedule.policy.window, "import:{email} or import:{name}:{city}"
        rows = [
            (one.name, str(one.policy(self.once.policy).window), one.written["key"]) for one in self.once.operations
        ]
        return [*rows, ("cron", str(runs), f"{CRON}:{{scheduled_at}}"), ("import", "forever", source)]

    def _now(self) -> datetime:
        return sql.datetime_of(self.clock.now())

    def _rows(self, statement: str, *values: Any) -> list[tuple[Any, ...]]:
        with self.people.reading() as tx:
            return tx.execute(statement, *values)


class AlreadyEmailed(Exception):
    """According to the emails table, this prospect was emailed today, perhaps before it was merged."""


def load_operations(lease: float | None) -> Operations:
    """Load the table of operations, with another lease if one is given (a storm needs a short one)."""
    settings: Any = {one.name: {**one.written, **_lease_option(lease)} for one in Operations.load(TABLE)}
    return Operations(settings)


def _lease_option(lease: float | None) -> dict[str, Any]:
    return {} if lease is None else {"lease": lease}


def result_of(done: str, outcome: Outcome[Any], before: str) -> Result:
    """Convert an outcome to a result. Raise an unknown outcome, and a failure without a declared reason."""
    if outcome.executed:
        return {done: True}
    if isinstance(outcome, Unknown) or (isinstance(outcome, Failed) and outcome.reason == Failed.kind):
        outcome.unwrap()
    return {"skipped": True, "reason": before if isinstance(outcome, Replayed) else outcome.reason}
