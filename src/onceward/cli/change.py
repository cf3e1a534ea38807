"""Commands that change records: release, retry, resolve, forget, purge.

Each previews the change, asks for confirmation and writes an audit entry. It changes only what was shown: the store
compares token and state in the same step that makes the change and writes the audit entry.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import click
from msgspec.structs import replace

from onceward.administration import bulk
from onceward.administration.actions import (
    ABANDONED,
    ALIVE,
    CHANGED,
    NEWER,
    Action,
    ActionRefused,
    Encode,
    encode_plain,
    plan,
)
from onceward.administration.policy_text import declared_window
from onceward.administration.typed_result import encode_typed
from onceward.client.audit_identity import user_and_host
from onceward.client.base import BaseClient
from onceward.errors import ConfigurationError
from onceward.keys.key import parse_scope
from onceward.operations.operation import Operation
from onceward.protocol import transitions
from onceward.protocol.audit import signature
from onceward.protocol.note import SAGA
from onceward.protocol.ports import Filter, Store
from onceward.protocol.record import Record
from onceward.protocol.window import Window, recorded_window
from onceward.results.codec import Encoded
from onceward.runtime.threads import run

from . import display
from .confirm import FORCE, WHY, YES, ask, print_done, record_line
from .exit_codes import Exit
from .find import find_one, iter_records
from .inspect import KEY
from .load_object import load_object
from .open_store import SEARCH_TIMEOUT, opened_store
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

Command = TypeVar("Command", bound=Callable[..., Any])
APP = click.option(
    "--app",
    metavar="MODULE:NAME",
    help="With --result: the decorated function or its client. The result is stored with the function's type.",
)


def check_reason(action: Action, why: str) -> Action:
    """Return the action. Raise if its reason is too long for the audit trail."""
    signature(action.verb, user_and_host(), why)
    return action


def check_allowed(action: Action, record: Record, now: int, encode: Encode = encode_plain) -> None:
    """Raise an error if the record does not allow the action."""
    try:
        plan(action, record, now, encode)
    except ActionRefused as refusal:
        code = Exit.USAGE if refusal.usage else Exit.REFUSED
        reason = refusal.reason
        if reason == ALIVE:
            line = record_line(record, now)
            reason = f"its lease has not expired, so its owner may be alive: {line} → wait, or use --force"
        elif reason == ABANDONED:
            reason = "an operator abandoned it, so that it does not run again → if it must run after all, use --force"
        raise CommandError(reason, code) from refusal


def change(
    store: Store, action: Action, records: Sequence[Record], why: str, encode: Encode = encode_plain
) -> list[Record]:
    """Change the records that were shown. Return those that were changed; raise if there is another one."""
    preview = bulk.Preview(action, [bulk.target_of(one) for one in records], [])
    applied = run(bulk.apply(store, preview, who=user_and_host(), why=why, encode=encode))
    done = {one.id for one in applied.done}
    changed = [one for one in records if one.id in done]
    if applied.refused and changed:
        print_done(DONE[action.verb], changed)
    for one in applied.refused:
        key = one.target.key
        text = REFUSALS[one.reason].format(key=key) if one.reason in REFUSALS else f"{key}: {one.reason}"
        raise CommandError(text, Exit.BROKEN if one.reason == NEWER else Exit.REFUSED)
    return changed


REFUSALS = {
    ALIVE: "the owner of {key} is alive; nothing was changed → wait, or use --force",
    NEWER: "{key} was written by a newer Onceward; nothing was changed → upgrade",
    CHANGED: "{key} was changed in the meantime; nothing was changed now → inspect it again",
}
DONE = {"forget": "forgotten", "release": "released", "retry": "claimable"}


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

    If the work is declared with after_crash="park" or verify, its effect may have happened, so this command refuses.
    Find out, then use `onceward resolve`; or use --force to run the work again anyway.

    \b
    Examples:
      onceward release charge:42
      onceward release charge:42 --force --why "the host is gone"
    """
    action = check_reason(Action(verb="release", force=force), why)
    with opened_store(store_url()) as store:
        record, now = find_one(store, key, scope())
        check_allowed(action, record, now)
        ask("Release 1 record and let it run again", [record_line(record, now)], yes=yes)
        change(store, action, [record], why)
    print_done("released", [record])


@program.command()
@KEY
@SCOPE
@click.option("--force", is_flag=True, help="Even if an operator has abandoned it.")
@WHY
@YES
@common_options
def retry(*, key: str, force: bool, why: str, yes: bool) -> None:
    """Make a FAILED key claimable now, even if it failed permanently or its retry delay has not passed.

    It stays the same piece of work: attempts, notes and derived keys are kept, so that a remote API that received such
    a key does nothing twice. If all attempts were used, one more is allowed. To start over, use `onceward forget`.

    Work that was resolved with --abandon must not run again: retry refuses it, unless you use --force.

    A PARKED saga continues: the step that blocks it gets all of its attempts again. A saga that was undone starts over
    with new derived keys. In both cases the next delivery or a recovery worker runs it.

    \b
    Example:
      onceward retry charge:42 --why "the card was unblocked"
    """
    action = check_reason(Action(verb="retry", force=force), why)
    with opened_store(store_url()) as store:
        record, now = find_one(store, key, scope())
        check_allowed(action, record, now)
        what = "Continue 1 saga" if record.note.get(SAGA) else "Let 1 failed record run again"
        ask(what, [record_line(record, now)], yes=yes)
        change(store, action, [record], why)
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
@setting_option(
    "--window", metavar="DURATION", help="How long the result is replayed, or: forever.  [default: as declared]"
)
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
    """Record how an attempt ended, after you have found out.

    The record must be PARKED, or PENDING with an expired lease: then its worker died.

    With --app, the result is checked against the return type of the function, and stored as a call would store it.
    Without it, the result is stored as plain JSON values, not encrypted. It is not written to the audit trail.

    The record is kept for the window that was declared for its work, or 24 hours if that is unknown. --window sets
    another one.

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
    action = Action(
        verb="resolve",
        finding=finding,  # type: ignore[arg-type]  # one of the options above
        undo=undo,
        result=_parse_result(result),
    )
    check_reason(action, why)
    encode: Encode = lambda value, record: encode_result(value, result, record, app)  # noqa: E731 (short)
    with opened_store(store_url()) as store:
        record, now = find_one(store, key, scope())
        if app is not None and record.note.get(SAGA):
            raise CommandError("--app does not apply to sagas → resolve it in Python: saga.resolve(…)", Exit.USAGE)
        window, action = _with_window(action, recorded_window(record) or run(declared_window(store, record.scope)))
        check_allowed(action, record, now, encode)
        if finding == "applied" and result is None:
            click.echo(
                "Without --result, later calls return None, or raise ResultNotStored if the type excludes None.",
                err=True,
            )
        ask(f"Resolve 1 record as {finding.replace('_', ' ')}", [record_line(record, now)], yes=yes)
        change(store, action, [record], why, encode)
    if finding != "not_applied":
        click.echo(f"It does not run again until its window has ended: {window}.", err=True)
    print_done(f"resolved as {finding.replace('_', ' ')}", [record])


def _with_window(action: Action, declared: Window | None) -> tuple[str, Action]:
    """Return which window applies, in words, and the action with it. The operation's own is the default."""
    setting = current_settings()["window"]
    if setting.source != "--window" and declared is not None:
        return f"{declared}, as declared", action
    return f"{setting.value}, from {setting.source}", replace(action, window=setting.value)


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


def _parse_result(result: str | None) -> Any:
    try:
        return None if result is None else json.loads(result)
    except ValueError as error:
        raise click.UsageError(
            f"--result is not JSON: {error} (a string needs double quotes inside single quotes: '\"text\"')"
        ) from None


def encode_result(value: Any, text: str | None, record: Record, app: str | None) -> Encoded:
    """Encode `value`, parsed from the JSON `text`. With `app`, read the text as the type that its function declares."""
    if app is not None:
        return encode_typed(_operation(load_object(app), app, record), text, record)
    encoded = encode_plain(value, record)
    if encoded.data is None:
        raise CommandError(f"the result cannot be stored, nothing was changed: {encoded.reason}", Exit.USAGE)
    return encoded


def _operation(found: Any, app: str, record: Record) -> Operation:
    """Return the operation of the record. `found` is a client or a decorated function."""
    scope = parse_scope(record.scope)
    operation = getattr(found, "operation", None)
    if isinstance(found, BaseClient):
        operation = None if scope is None else found.declared_functions.find(scope)
    if not isinstance(operation, Operation):
        raise ConfigurationError(
            f"{app} declares no function for {record.scope}",
            hint="name the decorated function or its client; omit --app for requests, messages, blocks and schedules",
        )
    if scope is None or (operation.scope.app, operation.scope.operation) != (scope.app, scope.operation):
        raise ConfigurationError(
            f"{app} is the function of {operation.scope.text}, but this record belongs to {record.scope}",
            hint="name the function that the record belongs to",
        )
    return operation


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
    action = check_reason(Action(verb="forget", force=force), why)
    with opened_store(store_url()) as store:
        found = {record.id: (record, now) for record, now in (find_one(store, key, scope()) for key in keys)}
        for record, now in found.values():
            check_allowed(action, record, now)
        count = f"{len(found)} record{'s' if len(found) > 1 else ''}"
        ask(f"Forget {count} and let deliveries run again", [record_line(*one) for one in found.values()], yes=yes)
        done = change(store, action, [record for record, _ in found.values()], why)
    print_done("forgotten", done)


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
