"""Commands that change records: release, retry, resolve, forget, purge. Each shows what it will do, asks, and signs.

Each acts only on what was shown: token and state are compared in the store, in the step that makes the change and
writes the entry of the audit trail.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from secrets import token_bytes
from typing import Any, TypeVar

import click
from msgspec.structs import replace

from onceward.client.audit_identity import user_and_host
from onceward.protocol import transitions
from onceward.protocol.audit import AuditSignature, signature
from onceward.protocol.hints import cli_command
from onceward.protocol.note import SAGA, note_without_input
from onceward.protocol.ports import Filter, Store
from onceward.protocol.record import Record, RecordState
from onceward.protocol.requests import Resolution, Resolve, ExpectedRecord, Verdict
from onceward.protocol.transitions import Row, row_of
from onceward.protocol.window import parse_window
from onceward.results.codec import PLAIN, is_sealed
from onceward.results.stored_input import input_in
from onceward.runtime.bridge import run
from onceward.sagas.admin import (
    compensation_request,
    requeue,
    may_be_abandoned,
    refuse_to_forget,
    resolve_request,
    retry_request,
)
from onceward.sagas.decisions import SagaDecision, resolve_open_step
from onceward.sagas.journal import journal_from
from onceward.sagas.step_context import associated_data

from . import display
from .confirm import FORCE, WHY, YES, ask, say, told
from .exit_codes import Exit
from .find import each, the_one
from .inspect import KEY, standing
from .open_store import SEARCH, TIMEOUT, opened
from .program import HOW_MANY, SCOPE, CommandError, chosen, common, flag, program, scope, store_url, wants_json

Command = TypeVar("Command", bound=Callable[..., Any])


def refuse_unless_done(verdict: Verdict, key: str) -> None:
    """One line for each reason why a record was left alone."""
    if verdict is Verdict.REFUSED:
        raise CommandError(f"the owner of {key} is alive; it was left alone → wait, or --force", Exit.REFUSED)
    if verdict is Verdict.SKEW:
        raise CommandError(f"{key} was written by a newer Onceward; it was left alone → upgrade", Exit.BROKEN)
    if verdict is not Verdict.OK:
        raise CommandError(f"{key} changed meanwhile; it was left alone → look again", Exit.REFUSED)


def settle(store: Store, record: Record, request: Resolve, signed: AuditSignature) -> None:
    verdict = run(store.settle([request], timeout=TIMEOUT, signed=signed))[0].verdict
    refuse_unless_done(verdict, record.key)
    if record.note.get(SAGA):
        run(requeue(store, request, record, token_bytes(16), signed.who))


@program.command()
@KEY
@SCOPE
@FORCE
@WHY
@YES
@common
def release(*, key: str, force: bool, why: str, yes: bool) -> None:
    """End a PENDING whose owner is dead, so that the next delivery runs it again.

    It says that the effect did not happen. The token rises at once, so that the old owner, should it still live, can
    neither renew nor complete; attempts, notes and derived keys go on as they were. A lapsed lease is enough; a live
    owner is cut off only with --force. It is not stopped by this: stop it first.

    \b
    Examples:
      onceward release charge:42
      onceward release charge:42 --force --why "the host is gone"
    """
    signed = signature("release", user_and_host(), why, "forced" if force else "")
    with opened(store_url()) as store:
        record, now = the_one(store, key, scope())
        row = row_of(record, now)
        if row is Row.RELEASED_UNVERIFIED:
            raise CommandError("it was handed back already: the next delivery takes it", Exit.REFUSED)
        if row not in (Row.PENDING_LIVE, Row.PENDING_LAPSED):
            raise CommandError(f"there is nothing to release: it is {standing(record, now)}, not PENDING", Exit.REFUSED)
        if row is Row.PENDING_LIVE and not force:
            raise CommandError(f"its lease is not over: {told(record, now)} → wait, or --force", Exit.REFUSED)
        ask("Release 1 record, and let it run again", [told(record, now)], yes=yes)
        request = Resolve(
            record.id, record.token, Resolution.NOT_APPLIED, state_seen=RecordState.PENDING, force=row is Row.PENDING_LIVE
        )
        settle(store, record, request, signed)
    say("released", [record])


@program.command()
@KEY
@SCOPE
@WHY
@YES
@common
def retry(*, key: str, why: str, yes: bool) -> None:
    """Make a FAILED key claimable again, now: also if it failed for good, or was to wait.

    It stays the same piece of work: attempts, notes and derived keys go on, so that a remote that knows such a key does
    nothing twice. If all attempts were used, one more is allowed. To begin anew: onceward forget.

    A saga that is PARKED goes on: the step that stands in the way gets all of its attempts again. One that was undone
    begins anew, with other derived keys. Both go on with the next delivery, or by a recovery worker.

    \b
    Example:
      onceward retry charge:42 --why "the card was unblocked"
    """
    signed = signature("retry", user_and_host(), why)
    with opened(store_url()) as store:
        record, now = the_one(store, key, scope())
        if record.note.get(SAGA):
            request = retry_request(record, now)
            ask("Let 1 saga go on", [told(record, now)], yes=yes)
            settle(store, record, request, signed)
            say("claimable", [record])
            return
        if row_of(record, now) not in (Row.FAILED_RETRYABLE, Row.FAILED_FINAL):
            raise CommandError(f"there is nothing to retry: it is {standing(record, now)}, not FAILED", Exit.REFUSED)
        ask("Let 1 record that failed run again", [told(record, now)], yes=yes)
        request = Resolve(record.id, record.token, Resolution.NOT_APPLIED, state_seen=RecordState.FAILED)
        settle(store, record, request, signed)
    say("claimable", [record])


def _findings(command: Command) -> Command:
    for name, text in (
        ("abandon", "It did not happen, and is not to run again."),
        ("not-applied", "It did not happen: the next delivery runs it."),
        ("applied", "It did happen: deliveries replay the --result."),
    ):
        command = click.option(f"--{name}", "finding", flag_value=name.replace("-", "_"), help=text)(command)
    return command


@program.command()
@KEY
@SCOPE
@_findings
@click.option("--undo", is_flag=True, help="Of a saga, with --not-applied: do not try again, undo what it did.")
@click.option("--result", metavar="JSON", help="With --applied: what deliveries get.  [default: null]")
@flag("--window", metavar="DURATION", help="How long that answers for the key, or: forever.  [default: 24h]")
@WHY
@YES
@common
def resolve(
    *,
    key: str,
    finding: str | None,
    undo: bool,
    result: str | None,
    why: str,
    yes: bool,
) -> None:
    """Say how the attempt of a PARKED record ended, once you have found out.

    The result is stored as plain JSON values, not encrypted. It does not enter the audit trail.

    Of a saga, say how the step ended that stands in the way (`onceward sagas` shows which). The saga then goes on with
    the next delivery, or by a recovery worker; after --abandon, it is undone. A step that was certainly not done, and
    is not to be, is given up by --not-applied --undo. Both may be said until somebody has gone on with it.

    \b
    Examples:
      onceward resolve wire:7 --applied --result '"confirmed by the bank"'
      onceward resolve wire:7 --not-applied --why "no such transfer at the bank"
      onceward resolve order:7 --not-applied --undo
    """
    if finding is None:
        raise click.UsageError("say one of --applied, --not-applied, --abandon")
    if result is not None and finding != "applied":
        raise click.UsageError("--result goes with --applied")
    if undo and finding != "not_applied":
        raise click.UsageError("--undo goes with --not-applied")
    value = _parsed(result)
    signed = signature("resolve", user_and_host(), why, f"{finding}, undo" if undo else finding)
    with opened(store_url()) as store:
        record, now = the_one(store, key, scope())
        gives_up = undo or finding == "abandon"
        if record.state is not RecordState.PARKED and not (gives_up and may_be_abandoned(record, now)):
            raise CommandError(f"there is nothing to resolve: it is {standing(record, now)}, not PARKED", Exit.REFUSED)
        if undo and not record.note.get(SAGA):
            raise CommandError("it is no saga: there is nothing to undo → leave out --undo", Exit.USAGE)
        ask(f"Resolve 1 record as {finding.replace('_', ' ')}", [told(record, now)], yes=yes)
        validity = parse_window(chosen()["window"].value).validity(now)
        request = Resolve(record.id, record.token, Resolution(finding), validity=validity)
        if undo:
            request = compensation_request(record, now, validity)
        elif record.note.get(SAGA):
            request = resolve_request(record, _ruling(record, Resolution(finding), value), validity)
        elif finding == "applied":
            encoded = PLAIN.encode(value, record.id)
            if encoded.data is None:
                raise CommandError(f"the result cannot be stored: {encoded.reason}", Exit.USAGE)
            request = replace(request, result=encoded.data, digest=encoded.digest, note=note_without_input(record.note))
        settle(store, record, request, signed)
    _tell_of_null(finding, result)
    say(f"resolved as {finding.replace('_', ' ')}", [record])


def _tell_of_null(finding: str, result: str | None) -> None:
    if finding == "applied" and result is None:
        click.echo("No --result was given: deliveries get null for one.", err=True)


def _ruling(record: Record, resolution: Resolution, value: Any) -> SagaDecision:
    """About the step that stands in the way. A program that encrypts would refuse a plain result."""
    journal = journal_from(record.note)
    line = journal.open_step if journal is not None else None
    if journal is not None and resolution is Resolution.ABANDON:
        return resolve_open_step(journal, resolution)
    if journal is None or line is None:
        raise CommandError(f"no step of this saga waits for an answer → {cli_command('retry', record.key)}", Exit.REFUSED)
    if resolution is not Resolution.APPLIED:
        return resolve_open_step(journal, resolution)
    kept = [one.result for one in journal.entries if one.result is not None]
    if any(map(is_sealed, [*kept, input_in(record.note)])):
        raise CommandError(
            "the results of this saga are encrypted → say it in Python: saga.resolve(applied(…), …)", Exit.USAGE
        )
    encoded = PLAIN.encode(value, associated_data(record.id, line.name))
    if encoded.data is None:
        raise CommandError(f"the result cannot be stored: {encoded.reason}", Exit.USAGE)
    return resolve_open_step(journal, resolution, encoded.data)


def _parsed(result: str | None) -> Any:
    try:
        return None if result is None else json.loads(result)
    except ValueError as error:
        raise click.UsageError(
            f"--result is no JSON: {error} (a text needs quotes inside of quotes: '\"so\"')"
        ) from None


@program.command()
@click.argument("keys", metavar="KEY…", nargs=-1, required=True)
@SCOPE
@FORCE
@WHY
@YES
@common
def forget(*, keys: tuple[str, ...], force: bool, why: str, yes: bool) -> None:
    """Make keys free, whatever their state: the next delivery runs as new work.

    A live owner is spared unless --force; then it can no longer complete, but it is not stopped. So is a saga that has
    done some of its steps: forgotten, these would stay done, and nobody would know of them.

    \b
    Example:
      onceward forget charge:42 charge:43 --why "test orders"
    """
    signed = signature("forget", user_and_host(), why, "forced" if force else "")
    with opened(store_url()) as store:
        found = {record.id: (record, now) for record, now in (the_one(store, key, scope()) for key in keys)}
        records = [record for record, _ in found.values()]
        if not force:
            for record in records:
                refuse_to_forget(record, record.key)
        count = f"{len(records)} record{'s' if len(records) > 1 else ''}"
        ask(f"Forget {count}, and let deliveries run again", [told(*one) for one in found.values()], yes=yes)
        seen = {record.id: ExpectedRecord(record.token, record.state) for record in records}
        answers = run(store.forget(list(seen), force=force, timeout=TIMEOUT, seen=seen, signed=signed))
    verdicts = [answer.verdict for answer in answers]
    done = [record for record, verdict in zip(records, verdicts, strict=True) if verdict is Verdict.OK]
    if done:
        say("forgotten", done)
    for record, verdict in zip(records, verdicts, strict=True):
        refuse_unless_done(verdict, record.key)


@program.command()
@click.option("--limit", type=HOW_MANY, default=10_000, show_default=True, help="At most so many.")
@WHY
@YES
@common
def purge(*, limit: int, why: str, yes: bool) -> None:
    """Delete records that answer for nothing any more: windows that are over, keys that are free.

    \b
    Example, for cron:
      onceward purge --yes --limit 100000
    """
    signed = signature("purge", user_and_host(), why)
    with opened(store_url()) as store:
        if not yes:
            count = 0
            for record, now in each(store, Filter()):
                count += transitions.purgeable(record, now)
                if count == limit:
                    break
            ask(f"Purge {count} records", [], yes=False)
        gone = run(store.purge(limit, timeout=SEARCH, signed=signed))
    if wants_json():
        display.print_json({"done": "purged", "count": gone})
    else:
        click.echo(f"purged: {gone}")
