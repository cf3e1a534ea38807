"""Commands that change records: release, retry, resolve, forget, purge.

Each previews the change, asks for confirmation and writes an audit entry. It changes only what was shown: the store
compares token and state in the same step that makes the change and writes the audit entry.
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
from onceward.protocol.requests import ExpectedRecord, Resolution, Resolve, Verdict
from onceward.protocol.transitions import Row, row_of
from onceward.protocol.window import parse_window
from onceward.results.codec import PLAIN, is_encrypted
from onceward.results.stored_input import stored_input_bytes
from onceward.runtime.bridge import run
from onceward.sagas.admin import (
    compensation_request,
    may_be_abandoned,
    refuse_to_forget,
    requeue,
    resolve_request,
    retry_request,
)
from onceward.sagas.decisions import SagaDecision, resolve_open_step
from onceward.sagas.journal import journal_from
from onceward.sagas.step_context import associated_data

from . import display
from .confirm import FORCE, WHY, YES, ask, print_done, record_line
from .exit_codes import Exit
from .find import find_one, iter_records
from .inspect import KEY, state_text
from .open_store import SEARCH_TIMEOUT, TIMEOUT, opened_store
from .program import (
    POSITIVE_COUNT,
    SCOPE,
    CommandError,
    common_options,
    current_settings,
    program,
    scope,
    setting_option,
    store_url,
    wants_json,
)
from .typed_result import APP, encode_result

Command = TypeVar("Command", bound=Callable[..., Any])


def raise_unless_ok(verdict: Verdict, key: str) -> None:
    """Raise an error that explains why the record was not changed."""
    if verdict is Verdict.REFUSED:
        raise CommandError(f"the owner of {key} is alive; nothing was changed → wait, or use --force", Exit.REFUSED)
    if verdict is Verdict.SKEW:
        raise CommandError(f"{key} was written by a newer Onceward; nothing was changed → upgrade", Exit.BROKEN)
    if verdict is not Verdict.OK:
        raise CommandError(
            f"{key} was changed in the meantime; nothing was changed now → inspect it again", Exit.REFUSED
        )


def settle(store: Store, record: Record, request: Resolve, signed: AuditSignature) -> None:
    verdict = run(store.settle([request], timeout=TIMEOUT, signed=signed))[0].verdict
    raise_unless_ok(verdict, record.key)
    if record.note.get(SAGA):
        run(requeue(store, request, record, token_bytes(16), signed.who))


@program.command()
@KEY
@SCOPE
@FORCE
@WHY
@YES
@common_options
def release(*, key: str, force: bool, why: str, yes: bool) -> None:
    """Release a PENDING record whose owner is dead, so that the next delivery runs it again.

    Use it if the effect did not happen. The token increases immediately: an owner that is still alive can neither
    renew nor complete. Attempts, notes and derived keys are kept. The lease must have expired; use --force to release
    a record with a live owner. This does not stop the owner's process: stop it first.

    \b
    Examples:
      onceward release charge:42
      onceward release charge:42 --force --why "the host is gone"
    """
    signed = signature("release", user_and_host(), why, "forced" if force else "")
    with opened_store(store_url()) as store:
        record, now = find_one(store, key, scope())
        row = row_of(record, now)
        if row is Row.RELEASED_UNVERIFIED:
            raise CommandError("it was already released: the next delivery runs it", Exit.REFUSED)
        if row not in (Row.PENDING_LIVE, Row.PENDING_LAPSED):
            raise CommandError(
                f"there is nothing to release: it is {state_text(record, now)}, not PENDING", Exit.REFUSED
            )
        if row is Row.PENDING_LIVE and not force:
            raise CommandError(
                f"its lease has not expired: {record_line(record, now)} → wait, or use --force", Exit.REFUSED
            )
        ask("Release 1 record and let it run again", [record_line(record, now)], yes=yes)
        request = Resolve(
            record.id,
            record.token,
            Resolution.NOT_APPLIED,
            state_seen=RecordState.PENDING,
            force=row is Row.PENDING_LIVE,
        )
        settle(store, record, request, signed)
    print_done("released", [record])


@program.command()
@KEY
@SCOPE
@WHY
@YES
@common_options
def retry(*, key: str, why: str, yes: bool) -> None:
    """Make a FAILED key claimable now, even if it failed permanently or its retry delay has not passed.

    It stays the same piece of work: attempts, notes and derived keys are kept, so that a remote API that received such
    a key does nothing twice. If all attempts were used, one more is allowed. To start over, use `onceward forget`.

    A PARKED saga continues: the step that blocks it gets all of its attempts again. A saga that was undone starts over
    with new derived keys. In both cases the next delivery or a recovery worker runs it.

    \b
    Example:
      onceward retry charge:42 --why "the card was unblocked"
    """
    signed = signature("retry", user_and_host(), why)
    with opened_store(store_url()) as store:
        record, now = find_one(store, key, scope())
        if record.note.get(SAGA):
            request = retry_request(record, now)
            ask("Continue 1 saga", [record_line(record, now)], yes=yes)
            settle(store, record, request, signed)
            print_done("claimable", [record])
            return
        if row_of(record, now) not in (Row.FAILED_RETRYABLE, Row.FAILED_FINAL):
            raise CommandError(f"there is nothing to retry: it is {state_text(record, now)}, not FAILED", Exit.REFUSED)
        ask("Let 1 failed record run again", [record_line(record, now)], yes=yes)
        request = Resolve(record.id, record.token, Resolution.NOT_APPLIED, state_seen=RecordState.FAILED)
        settle(store, record, request, signed)
    print_done("claimable", [record])


def _finding_options(command: Command) -> Command:
    for name, text in (
        ("abandon", "It did not happen, and must not run again."),
        ("not-applied", "It did not happen: the next delivery runs it."),
        ("applied", "It happened: deliveries replay the --result."),
    ):
        command = click.option(f"--{name}", "finding", flag_value=name.replace("-", "_"), help=text)(command)
    return command


@program.command()
@KEY
@SCOPE
@_finding_options
@click.option("--undo", is_flag=True, help="For a saga, with --not-applied: do not retry; undo its steps.")
@click.option("--result", metavar="JSON", help="With --applied: the result that deliveries get.  [default: null]")
@APP
@setting_option("--window", metavar="DURATION", help="How long the result is replayed, or: forever.  [default: 24h]")
@WHY
@YES
@common_options
def resolve(
    *,
    key: str,
    finding: str | None,
    undo: bool,
    result: str | None,
    app: str | None,
    why: str,
    yes: bool,
) -> None:
    """Record how the attempt of a PARKED record ended, after you have found out.

    With --app, the result is checked against the return type of the function, and stored as a call would store it.
    Without it, the result is stored as plain JSON values, not encrypted. It is not written to the audit trail.

    For a saga, record how the step that blocks it ended (`onceward sagas` shows which). The next delivery or a
    recovery worker then continues the saga; after --abandon, it is undone. If the step was certainly not done and must
    not be done, use --not-applied --undo. You can use both until a worker has continued the saga.

    \b
    Examples:
      onceward resolve wire:7 --applied --result '"confirmed by the bank"'
      onceward resolve charge:7 --applied --result '{"id": "r1"}' --app shop.payments:charge
      onceward resolve wire:7 --not-applied --why "no such transfer at the bank"
      onceward resolve order:7 --not-applied --undo
    """
    finding = _check_finding(finding, result, app, undo=undo)
    value = _parse_result(result)
    signed = signature("resolve", user_and_host(), why, f"{finding}, undo" if undo else finding)
    with opened_store(store_url()) as store:
        record, now = find_one(store, key, scope())
        abandons = undo or finding == "abandon"
        if record.state is not RecordState.PARKED and not (abandons and may_be_abandoned(record, now)):
            raise CommandError(
                f"there is nothing to resolve: it is {state_text(record, now)}, not PARKED", Exit.REFUSED
            )
        if undo and not record.note.get(SAGA):
            raise CommandError("it is not a saga: there is nothing to undo → remove --undo", Exit.USAGE)
        ask(f"Resolve 1 record as {finding.replace('_', ' ')}", [record_line(record, now)], yes=yes)
        validity = parse_window(current_settings()["window"].value).validity(now)
        request = Resolve(record.id, record.token, Resolution(finding), validity=validity)
        if undo:
            request = compensation_request(record, now, validity)
        elif record.note.get(SAGA):
            if app is not None:
                raise CommandError("--app does not apply to sagas → resolve it in Python: saga.resolve(…)", Exit.USAGE)
            request = resolve_request(record, _saga_decision(record, Resolution(finding), value), validity)
        elif finding == "applied":
            encoded = encode_result(value, result, record, app)
            stored = encoded.data is not None
            note = note_without_input(record.note)
            request = replace(request, result=encoded.data, digest=encoded.digest, stored=stored, note=note)
        settle(store, record, request, signed)
    _warn_null_result(finding, result)
    print_done(f"resolved as {finding.replace('_', ' ')}", [record])


def _check_finding(finding: str | None, result: str | None, app: str | None, *, undo: bool) -> str:
    if finding is None:
        raise click.UsageError("choose one of --applied, --not-applied, --abandon")
    if result is not None and finding != "applied":
        raise click.UsageError("--result requires --applied")
    if app is not None and finding != "applied":
        raise click.UsageError("--app requires --applied")
    if undo and finding != "not_applied":
        raise click.UsageError("--undo requires --not-applied")
    return finding


def _warn_null_result(finding: str, result: str | None) -> None:
    if finding == "applied" and result is None:
        click.echo("No --result was given: deliveries get null.", err=True)


def _saga_decision(record: Record, resolution: Resolution, value: Any) -> SagaDecision:
    """Return the decision about the step that blocks the saga.

    Raise if its results are encrypted: the program would refuse a plain result.
    """
    journal = journal_from(record.note)
    line = journal.open_step if journal is not None else None
    if journal is not None and resolution is Resolution.ABANDON:
        return resolve_open_step(journal, resolution)
    if journal is None or line is None:
        raise CommandError(
            f"no step of this saga needs to be resolved → {cli_command('retry', record.key)}", Exit.REFUSED
        )
    if resolution is not Resolution.APPLIED:
        return resolve_open_step(journal, resolution)
    results = [one.result for one in journal.entries if one.result is not None]
    if any(map(is_encrypted, [*results, stored_input_bytes(record.note)])):
        raise CommandError(
            "the results of this saga are encrypted → resolve it in Python: saga.resolve(applied(…), …)", Exit.USAGE
        )
    encoded = PLAIN.encode(value, associated_data(record.id, journal.cycle, line.name))
    if encoded.data is None:
        raise CommandError(f"the result cannot be stored: {encoded.reason}", Exit.USAGE)
    return resolve_open_step(journal, resolution, encoded.data)


def _parse_result(result: str | None) -> Any:
    try:
        return None if result is None else json.loads(result)
    except ValueError as error:
        raise click.UsageError(
            f"--result is not JSON: {error} (a string needs double quotes inside single quotes: '\"text\"')"
        ) from None


@program.command()
@click.argument("keys", metavar="KEY…", nargs=-1, required=True)
@SCOPE
@FORCE
@WHY
@YES
@common_options
def forget(*, keys: tuple[str, ...], force: bool, why: str, yes: bool) -> None:
    """Free keys, whatever their state: the next delivery runs as new work.

    A key with a live owner is refused unless --force; then the owner can no longer complete, but it is not stopped. A
    saga that has done some of its steps is refused, too: these steps would stay done without a record of them.

    \b
    Example:
      onceward forget charge:42 charge:43 --why "test orders"
    """
    signed = signature("forget", user_and_host(), why, "forced" if force else "")
    with opened_store(store_url()) as store:
        found = {record.id: (record, now) for record, now in (find_one(store, key, scope()) for key in keys)}
        records = [record for record, _ in found.values()]
        if not force:
            for record in records:
                refuse_to_forget(record, record.key)
        count = f"{len(records)} record{'s' if len(records) > 1 else ''}"
        ask(f"Forget {count} and let deliveries run again", [record_line(*one) for one in found.values()], yes=yes)
        seen = {record.id: ExpectedRecord(record.token, record.state) for record in records}
        answers = run(store.forget(list(seen), force=force, timeout=TIMEOUT, seen=seen, signed=signed))
    verdicts = [answer.verdict for answer in answers]
    done = [record for record, verdict in zip(records, verdicts, strict=True) if verdict is Verdict.OK]
    if done:
        print_done("forgotten", done)
    for record, verdict in zip(records, verdicts, strict=True):
        raise_unless_ok(verdict, record.key)


@program.command()
@click.option("--limit", type=POSITIVE_COUNT, default=10_000, show_default=True, help="Maximum number of records.")
@WHY
@YES
@common_options
def purge(*, limit: int, why: str, yes: bool) -> None:
    """Delete expired records: those whose window has ended, and free keys.

    \b
    Example, for cron:
      onceward purge --yes --limit 100000
    """
    signed = signature("purge", user_and_host(), why)
    with opened_store(store_url()) as store:
        if not yes:
            count = 0
            for record, now in iter_records(store, Filter()):
                count += transitions.purgeable(record, now)
                if count == limit:
                    break
            ask(f"Purge {count} records", [], yes=False)
        gone = run(store.purge(limit, timeout=SEARCH_TIMEOUT, signed=signed))
    if wants_json():
        display.print_json({"done": "purged", "count": gone})
    else:
        click.echo(f"purged: {gone}")
