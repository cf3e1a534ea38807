"""Commands that change records: release, retry, resolve, forget, purge. Each shows what it will do, and asks."""

from __future__ import annotations

import getpass
import json
import sys
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import click
from msgspec.structs import replace

from onceward.bridge import run
from onceward.model import transitions
from onceward.model.codec import PLAIN
from onceward.model.note import checked_note
from onceward.model.record import Park, Record, Resolution, Resolve, State, Verdict
from onceward.model.transitions import Row, row_of
from onceward.model.window import window_of
from onceward.ports import AnySettlement, Filter, Store

from . import display
from .codes import Exit
from .finding import each, the_one
from .place import SEARCH, TIMEOUT, opened
from .program import SCOPE, Refusal, chosen, common, flag, program, scope, store_url, wants_json
from .reading import KEY, SHORT_ID, standing

Command = TypeVar("Command", bound=Callable[..., Any])

WHY = click.option("--why", metavar="TEXT", default="", help="Your reason; it is noted on the record.")
YES = click.option("--yes", is_flag=True, help="Do not ask.")
FORCE = click.option("--force", is_flag=True, help="Also if its owner is alive.")


def told(record: Record, now: int) -> str:
    """One line about a record that is about to change."""
    line = f"{standing(record, now)}  {record.key}  in {record.scope}  id:{record.id.hex()[:SHORT_ID]}"
    if record.state is State.PENDING:
        line += f"  owner {record.owner or '?'}, last renewed {display.span(now - record.renewed_at)} ago"
    return line


def ask(what: str, lines: Sequence[str], *, yes: bool) -> None:
    """Preview on stderr, then a question; without a terminal nothing happens unless --yes was said."""
    for line in lines:
        click.echo(f"  {display.cut(line, 300)}", err=True)
    if yes:
        return
    if not sys.stdin.isatty():
        raise Refusal(f"{what}? There is no terminal to ask on → say --yes", Exit.REFUSED)
    if not click.confirm(f"{what}?", err=True):
        raise click.Abort


def say(done: str, records: Sequence[Record]) -> None:
    if wants_json():
        display.print_json(
            {"done": done, "records": [{"id": one.id.hex(), "scope": one.scope, "key": one.key} for one in records]}
        )
        return
    for one in records:
        click.echo(display.cut(f"{done}: {one.key} in {one.scope}", 300))


def signed(what: str, why: str, record: Record) -> dict[str, str]:
    """Who did it and why, as a note on the record."""
    try:
        who = getpass.getuser()
    except (KeyError, OSError):  # no name for this user id
        who = "somebody"
    return checked_note({what: f"by {who}" + (f": {why}" if why else "")}, record.note, key=record.key)


def settle(store: Store, settlement: AnySettlement) -> None:
    """Only if the record is still as it was seen: token and owner are compared in the store."""
    verdict = run(store.settle([settlement], timeout=TIMEOUT))[0].verdict
    if verdict is not Verdict.OK:
        raise Refusal(f"somebody else changed the record meanwhile ({verdict}) → look again", Exit.REFUSED)


def forget_seen(store: Store, record: Record, *, force: bool) -> None:
    """Forget it, if it is still as it was seen."""
    again = run(store.read([record.id], timeout=TIMEOUT))[0].record
    if again is None or (again.token, again.state) != (record.token, record.state):
        raise Refusal(f"{record.key} changed meanwhile; it was left alone → look again", Exit.REFUSED)
    verdict = run(store.forget([record.id], force=force, timeout=TIMEOUT))[0].verdict
    if verdict is Verdict.REFUSED:
        raise Refusal(f"the owner of {record.key} is alive; it was left alone → wait, or --force", Exit.REFUSED)
    if verdict is not Verdict.OK:
        raise Refusal(f"{record.key} was written by a newer Onceward; it was left alone → upgrade", Exit.BROKEN)


@program.command()
@KEY
@SCOPE
@FORCE
@WHY
@YES
@common
def release(*, key: str, force: bool, why: str, yes: bool) -> None:
    r"""End a PENDING whose owner is dead, so that the next delivery runs it again.

    It says that the effect did not happen. The token rises at once, so that the old owner, should it still live, can
    neither renew nor complete; attempts, notes and derived keys go on as they were. A lapsed lease is enough; a live
    owner is cut off only with --force. It is not stopped by this: stop it first.

    \b
    Examples:
      onceward release charge:42
      onceward release charge:42 --force --why "the host is gone"
    """
    with opened(store_url()) as store:
        record, now = the_one(store, key, scope())
        row = row_of(record, now)
        if row is Row.HANDED_BACK:
            raise Refusal("it was handed back already: the next delivery takes it", Exit.REFUSED)
        if row not in (Row.LIVE, Row.LAPSED):
            raise Refusal(f"there is nothing to release: it is {standing(record, now)}, not PENDING", Exit.REFUSED)
        if row is Row.LIVE and not force:
            raise Refusal(f"its owner is alive: {told(record, now)} → wait, or --force", Exit.REFUSED)
        ask("Release 1 record, and let it run again", [told(record, now)], yes=yes)
        note = signed("released", why, record)
        # In two steps, each of which compares: between them nobody can claim it, and a late owner may still complete.
        settle(store, Park(record.id, record.token, record.nonce, "Released", note["released"]))
        settle(store, Resolve(record.id, record.token, Resolution.NOT_APPLIED, note=note))
    say("released", [record])


@program.command()
@KEY
@SCOPE
@YES
@common
def retry(*, key: str, yes: bool) -> None:
    """Make a FAILED key claimable again, now: also if it failed for good, or was to wait.

    It forgets the record. The next delivery starts a new cycle: attempts count from 1, and derived keys are new ones.
    """
    with opened(store_url()) as store:
        record, now = the_one(store, key, scope())
        if record.state is not State.FAILED:
            raise Refusal(f"there is nothing to retry: it is {standing(record, now)}, not FAILED", Exit.REFUSED)
        ask("Forget the failure of 1 record", [told(record, now)], yes=yes)
        forget_seen(store, record, force=False)
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
@click.option("--result", metavar="JSON", help="With --applied: what deliveries get.  [default: null]")
@flag("--window", metavar="DURATION", help="How long that answers for the key, or: forever.  [default: 24h]")
@WHY
@YES
@common
def resolve(
    *,
    key: str,
    finding: str | None,
    result: str | None,
    why: str,
    yes: bool,
) -> None:
    r"""Say how the attempt of a PARKED record ended, once you have found out.

    The result is stored as plain JSON values, not encrypted.

    \b
    Examples:
      onceward resolve wire:7 --applied --result '"confirmed by the bank"'
      onceward resolve wire:7 --not-applied --why "no such transfer at the bank"
    """
    if finding is None:
        raise click.UsageError("say one of --applied, --not-applied, --abandon")
    if result is not None and finding != "applied":
        raise click.UsageError("--result goes with --applied")
    value = _parsed(result)
    with opened(store_url()) as store:
        record, now = the_one(store, key, scope())
        if record.state is not State.PARKED:
            raise Refusal(f"there is nothing to resolve: it is {standing(record, now)}, not PARKED", Exit.REFUSED)
        ask(f"Resolve 1 record as {finding.replace('_', ' ')}", [told(record, now)], yes=yes)
        validity = window_of(chosen()["window"].value).validity(now)
        note = signed("resolved", why, record)
        request = Resolve(record.id, record.token, Resolution(finding), validity=validity, note=note)
        if finding == "applied":
            encoded = PLAIN.encode(value, record.id)
            if encoded.data is None:
                raise Refusal(f"the result cannot be stored: {encoded.reason}", Exit.USAGE)
            request = replace(request, result=encoded.data, digest=encoded.digest)
        settle(store, request)
    say(f"resolved as {finding.replace('_', ' ')}", [record])


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
@YES
@common
def forget(*, keys: tuple[str, ...], force: bool, yes: bool) -> None:
    """Make keys free, whatever their state: the next delivery runs as new work.

    A live owner is spared unless --force; then it can no longer complete, but it is not stopped.
    """
    with opened(store_url()) as store:
        found = {record.id: (record, now) for record, now in (the_one(store, key, scope()) for key in keys)}
        records = [record for record, _ in found.values()]
        count = f"{len(records)} record{'s' if len(records) > 1 else ''}"
        ask(f"Forget {count}, and let deliveries run again", [told(*one) for one in found.values()], yes=yes)
        for record in records:
            forget_seen(store, record, force=force)
    say("forgotten", records)


@program.command()
@click.option("--limit", type=click.IntRange(1), default=10_000, show_default=True, help="At most so many.")
@YES
@common
def purge(*, limit: int, yes: bool) -> None:
    r"""Delete records that answer for nothing any more: windows that are over, keys that are free.

    \b
    Example, for cron:
      onceward purge --yes --limit 100000
    """
    with opened(store_url()) as store:
        if not yes:
            count = 0
            for record, now in each(store, Filter()):
                count += transitions.purgeable(record, now)
                if count == limit:
                    break
            ask(f"Purge {count} records", [], yes=False)
        gone = run(store.purge(limit, timeout=SEARCH))
    if wants_json():
        display.print_json({"done": "purged", "count": gone})
    else:
        click.echo(f"purged: {gone}")
