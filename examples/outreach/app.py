"""The outreach system: prospects, e-mails, replies, enrichment, charges and cron, each done once.

`onceward.toml` declares what is done once, under which key and for how long; here is the work itself. Rows that must be
right are written in one transaction with the record of the work; what is sent elsewhere carries a derived key.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

import httpx

from onceward import Failed, Once, Outcome, Replayed, Unknown, applied, current_claim, not_applied, verify
from onceward.errors import StoreError
from onceward.http.client_keys import IdempotencyKeys
from onceward.imports import Summary, import_file
from onceward.operations import Operations
from onceward.people import People, Person, SourceRecord, normalise
from onceward.people.people import Within
from onceward.protocol.ports import Clock, Store
from onceward.stores.clock import WallClock

from . import tables as sql
from .mail import PATIENCE, REFUSED, Incoming, MailServer, Unreachable, read_mail, write_mail

TABLE: Final = Path(__file__).with_name("onceward.toml")
PATTERN: Final = "*/5 8-18 * * 1-6"
CRON: Final = f"cron:{PATTERN}"
AT_ONCE: Final = 50  # mails that one run of cron sends
UNDER_WAY: Final = 5  # a mail may still be taken for a fifth of the lease after its sender has died: a minute
TEXT: Final = "May we show you what we make?"
Answer = dict[str, Any]


class Outreach:
    """One worker. Many may share the database: what is done once is done once among all of them."""

    def __init__(
        self,
        database: str,
        *,
        smtp: str,
        api: str,
        store: Store | None = None,
        clock: Clock | None = None,
        lease: float | None = None,
        wait: str = "30s",
    ) -> None:
        self.clock = clock or WallClock()
        self.once = once = Once(store or database, app="outreach", operations=declared(lease), wait=wait)
        self.people = People(database, clock=self.clock)
        self._api = httpx.Client(base_url=api, auth=IdempotencyKeys(), timeout=PATIENCE)
        self._mails = MailServer(smtp, self._api)
        self._make_tables()
        silence = timedelta(microseconds=once.operations["email"].policy(once.policy).lease // UNDER_WAY)
        found = verify(self._find_mail, after=silence)
        self._email = once.operation(
            "email", after_crash=found, not_applied=(AlreadyEmailed, *REFUSED), final=Unreachable
        )(self._send)
        self._enrich = once.operation("enrich")(self._look_up)
        self._reply = once.operation("reply")(self._store_reply)
        self._notify = once.operation("notify")(self._alert)
        self.charge = once.operation("charge")(self._pay)
        self.cron = once.schedule(PATTERN, name=CRON, overlap="wait", catch_up_age="7d", **_leased(lease))(self._run)

    def _make_tables(self) -> None:
        """Only if they are not there: PostgreSQL locks what might be made, and others are at work."""
        try:
            self._rows(sql.THERE)
        except StoreError:
            with self.people.transaction() as tx:
                for statement in sql.TABLES:
                    tx.execute(statement)

    def close(self) -> None:
        self.once.close()
        self.people.close()
        self._api.close()

    # ── prospects ──

    def import_prospects(self, file: Path, **choices: Any) -> Summary:
        """A CSV file. The same file again changes nothing; after a crash it goes on where it stopped."""
        summary = import_file(file, self.people, **choices)
        people = {person.id: person for person in self.people}
        with self.people.transaction() as tx:
            for (old,) in tx.execute(sql.PUBLISHED):
                now = None if old in people else self.people.get(old)
                if now is not None and now.id != old:
                    self._fold(tx, old, now)
            for person in people.values():
                self._publish(tx, person)
        return summary

    def import_prospect(self, **fields: str) -> Answer:
        """One row: {action: created, updated or skipped, id: …}."""
        email, name, city = (fields.get(field) for field in ("email", "name", "city"))
        record = SourceRecord("import", fields, id=f"import:{email}" if email else f"import:{name}:{city}")
        with self.people.transaction() as tx:
            [decision] = tx.add_many([record])
            person = self.people.get(decision.person) if decision.person else None
            if person is None:
                return {"action": "skipped", "id": None, "reason": decision.reason}
            if decision.action != "skipped":
                for old in decision.merged:
                    self._fold(tx, old, person)
                self._publish(tx, person)
        return {"action": "created" if decision.action == "to_review" else decision.action, "id": person.id}

    def _publish(self, tx: Within, person: Person) -> None:
        said = person.fields
        email = normalise.email(said["email"]) if said.get("email") else None
        values = [said.get(field) for field in ("city", "country", "website", "contact_email")]
        tx.execute(sql.PROSPECT, person.id, said.get("name"), email, *values, sql.text_of(person.updated_at))

    def _fold(self, tx: Within, old: str, person: Person) -> None:
        """Two prospects turned out to be one."""
        for statement in sql.MOVED:
            tx.execute(statement, person.id, old)
        tx.execute(sql.DROPPED, old)
        self._publish(tx, person)
        tx.execute(sql.RECOUNTED, person.id)

    # ── e-mails ──

    def send_email(self, prospect_id: str, text: str = TEXT) -> Answer:
        """{sent: True}, or why not: already_emailed_today, send_in_progress, unknown, no_address, address_refused."""
        if self._address(prospect_id) is None:
            return {"skipped": True, "reason": "no_address"}
        outcome = self._email.outcome(prospect_id, text)
        done = self._email.policy.reasons.done
        known = {AlreadyEmailed.__name__: done, Unreachable.__name__: "address_refused"}
        if isinstance(outcome, Failed) and outcome.error_type in known:
            return {"skipped": True, "reason": known[outcome.error_type]}
        return answer("sent", outcome, done)

    def _send(self, prospect_id: str, text: str) -> None:
        claim, message_id = current_claim(), self._message_id()
        to, name = self._address(prospect_id) or ("", None)
        if self._rows(sql.EMAILED, prospect_id, sql.text_of(self._now() - sql.DAY)):
            raise AlreadyEmailed(prospect_id)
        mail = write_mail(message_id, to, name, text, prospect=prospect_id, token=str(claim.token))
        claim.check()  # whoever was silent for too long has been replaced, and does not send
        self._mails.send(mail)
        self._sent(prospect_id, message_id)

    def _find_mail(self, prospect_id: str, text: str) -> object:  # noqa: ARG002 (asked as the work was)
        """Its sender fell silent: has the mail server taken the mail? If it cannot tell, nobody can: parked."""
        message_id = self._message_id()
        if not self._mails.has_sent(message_id):
            return not_applied
        self._sent(prospect_id, message_id)
        return applied()

    def _message_id(self) -> str:
        """The same on every attempt, another one in the next window."""
        return f"<{current_claim().derived_key('email')}@outreach.example>"

    def _sent(self, prospect_id: str, message_id: str) -> None:
        """A row beside the mail: whoever finds out that it was sent writes it, and only the first one does."""
        with self.people.transaction() as tx:
            tx.execute(sql.EMAIL, message_id, prospect_id, "outbound", message_id, sql.text_of(self._now()))

    def _address(self, prospect_id: str) -> tuple[str, str | None] | None:
        rows = self._rows(sql.ADDRESS, prospect_id)
        return (rows[0][0], rows[0][1]) if rows and rows[0][0] else None

    # ── replies ──

    def receive(self, raw: bytes) -> Answer:
        """A mail that arrived. A repeated Message-ID is a duplicate; a mail without one is welcome every time."""
        mail = read_mail(raw)
        if mail.message_id is None:
            with self.people.transaction() as tx:
                reply_id, new = self._save(tx, mail, uuid4().hex), True
        else:
            outcome = self._reply.outcome(mail.message_id, mail)
            reply_id, new = outcome.unwrap(), outcome.executed
        if reply_id is None:  # a mail of our own that came back
            return {"duplicate": True}
        self._notify(reply_id, mail.subject)  # also of a duplicate: the first delivery may have died before it told
        return {"processed": True} if new else {"duplicate": True}

    def _store_reply(self, message_id: str, mail: Incoming) -> str | None:  # noqa: ARG002 (the key)
        claim = current_claim()
        with self.people.transaction() as tx:
            reply_id = self._save(tx, mail, claim.derived_key("reply"))
            claim.complete_in(tx.connection, reply_id)
        return reply_id

    def _save(self, tx: Within, mail: Incoming, id: str) -> str | None:
        found = [row for one in mail.answers for row in tx.execute(sql.WROTE, one)]
        found += tx.execute(sql.OWNER, mail.sender, mail.sender) if mail.sender else []
        prospect_id = found[0][0] if found else None
        if not tx.execute(sql.EMAIL, id, prospect_id, "inbound", mail.message_id, sql.text_of(self._now())):
            return None
        if prospect_id is not None:
            tx.execute(sql.REPLIED, prospect_id)
        return id

    def _alert(self, reply_id: str, subject: str) -> None:
        self._api.post("/alerts", json={"reply": reply_id, "subject": subject}).raise_for_status()

    # ── enrichment ──

    def enrich(self, prospect_id: str, type: str) -> Answer:
        """Not if the data is there, not if it was tried today, never twice at once."""
        known = self._rows(sql.KNOWN.format(sql.ENRICHED[type]), prospect_id)
        if known and known[0][0]:
            return {"skipped": True, "reason": "already_known"}
        outcome = self._enrich.outcome(prospect_id, type)
        return answer("enriched", outcome, self._enrich.policy.reasons.done)

    def _look_up(self, prospect_id: str, type: str) -> str:
        claim = current_claim()
        attempt = prospect_id, type, claim.token
        with self.people.transaction() as tx:
            tx.execute(sql.ATTEMPT, *attempt, sql.text_of(self._now()), None, None)
        found: str = self._api.get(f"/directory/{type}/{prospect_id}").raise_for_status().json()["found"]
        found = normalise.email(found) if type == "email" else found
        with self.people.transaction() as tx:
            tx.execute(sql.ATTEMPTED, sql.text_of(self._now()), found, *attempt)
            tx.execute(sql.FOUND.format(sql.ENRICHED[type]), found, prospect_id)
            claim.complete_in(tx.connection, found)
        return found

    # ── a paid API ──

    def _pay(self, customer: str, invoice: int, cents: int) -> str:
        """The client adds the claim's derived key: a retry is the same charge, whatever the clock says."""
        paid = self._api.post("/charges", json={"customer": customer, "invoice": invoice, "cents": cents})
        return str(paid.raise_for_status().json()["receipt"])

    # ── cron ──

    def _run(self, scheduled_at: datetime) -> int:
        """Everybody who is due. A run that is begun again skips those who have had theirs."""
        sent, failures = 0, []
        for (prospect_id,) in self._rows(sql.DUE, sql.text_of(self._now() - sql.DAY)):
            for kind in sql.ENRICHED:
                self.enrich(prospect_id, kind)
            try:
                sent += bool(self.send_email(prospect_id).get("sent"))
            except (OSError, ValueError) as error:  # one that cannot be mailed keeps nobody else from it
                failures.append(error)
            if sent == AT_ONCE:
                break
        if failures and not sent:
            raise failures[0]
        with self.people.transaction() as tx:
            tx.execute(sql.RUN, PATTERN, sql.text_of(scheduled_at), sql.text_of(self._now()), sent)
            current_claim().complete_in(tx.connection, sent)
        return sent

    # ── one at a time; and the table of it all ──

    def with_lock(self, name: str, work: Callable[[], Any]) -> Any:
        """The work's value, or None if somebody else is at it."""
        lock = self.once.try_lock(name, lease="300s")
        if lock is None:
            return None
        with lock:
            return work()

    def windows(self) -> list[tuple[str, str, str]]:
        """Every operation with its window and the template of its key."""
        runs, source = self.cron.schedule.policy.window, "import:{email} or import:{name}:{city}"
        rows = [
            (one.name, str(one.policy(self.once.policy).window), one.written["key"]) for one in self.once.operations
        ]
        return [*rows, ("cron", str(runs), f"{CRON}:{{scheduled_at}}"), ("import", "forever", source)]

    def _now(self) -> datetime:
        return sql.moment(self.clock.now())

    def _rows(self, statement: str, *values: Any) -> list[tuple[Any, ...]]:
        with self.people.reading() as tx:
            return tx.execute(statement, *values)


class AlreadyEmailed(Exception):
    """To somebody who turned out to be this prospect, says the table."""


def declared(lease: float | None) -> Operations:
    """The table; for a storm, with a lease that does not last as long as one."""
    written: Any = {one.name: {**one.written, **_leased(lease)} for one in Operations.load(TABLE)}
    return Operations(written)


def _leased(lease: float | None) -> dict[str, Any]:
    return {} if lease is None else {"lease": lease}


def answer(done: str, outcome: Outcome[Any], before: str) -> Answer:
    """The answers that callers know. What failed without a word of the table's for it is raised."""
    if outcome.executed:
        return {done: True}
    if isinstance(outcome, Unknown) or (isinstance(outcome, Failed) and outcome.reason == Failed.kind):
        outcome.unwrap()
    return {"skipped": True, "reason": before if isinstance(outcome, Replayed) else outcome.reason}
