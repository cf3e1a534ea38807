"""Read-only commands: ls, show, explain, stats, config."""

from __future__ import annotations

import os
from typing import Any

import click

from onceward.administration import json_values as values
from onceward.administration.details import explanation
from onceward.administration.record_view import record_as_json, state_text
from onceward.administration.sagas import journal_or_none
from onceward.administration.timeline import event_as_json, event_line, read_life
from onceward.errors import OncewardError
from onceward.keys.readable import escape
from onceward.protocol.duration import microseconds
from onceward.protocol.ports import Filter, SortOrder
from onceward.protocol.reasons import DEFAULT_REASONS, Reasons
from onceward.protocol.record import Record, RecordState
from onceward.protocol.secrets import url_without_secrets
from onceward.results.untyped import PLAIN_FIELDS
from onceward.runtime.threads import run

from . import audit as auditing
from . import charts, display
from .errors import scope_hint
from .find import WORK_STATES, cursor_of, find_one, first_records, parse_cursor
from .open_store import SEARCH_TIMEOUT, opened_store
from .program import (
    APP,
    POSITIVE_COUNT,
    SCOPE,
    TENANT,
    common_options,
    current_settings,
    print_error,
    program,
    scope,
    store_url,
    wants_json,
)
from .retry_spans import unversioned
from .settings import SETTINGS, operations_from_file, retry_spans

ORDERS = click.Choice([order.value for order in SortOrder])
KEY = click.argument("key", metavar="KEY")
SHORT_ID = 12


def parse_state(word: str) -> RecordState:
    """Parse a state in upper or lower case."""
    try:
        return RecordState(word.upper())
    except ValueError:
        raise click.BadParameter(f"{word!r} is not one of {', '.join(RecordState)}.") from None


def _row(record: Record, now: int) -> list[str]:
    age = display.span(now - record.updated_at)
    return [
        state_text(record, now),
        record.scope,
        record.key,
        str(record.attempt),
        age,
        record.owner,
        f"id:{record.id.hex()[:SHORT_ID]}",
    ]


@program.command()
@click.option(
    "--state",
    "states",
    type=parse_state,
    multiple=True,
    metavar=f"[{'|'.join(RecordState)}]",
    shell_complete=lambda _context, _parameter, typed: [one for one in RecordState if one.startswith(typed.upper())],
    help="Only this state. May be repeated.",
)
@SCOPE
@click.option("--older-than", metavar="DURATION", help="Not updated for this long, such as 1h or 7d.")
@click.option("--claimed-before", metavar="DURATION", help="Claimed longer ago than this, even if renewed since.")
@click.option("--sort", "order", type=ORDERS, default="updated", show_default=True, help="Newest first, or by key.")
@click.option("--prefix", metavar="TEXT", help="Only keys that begin with this text.")
@click.option("--limit", type=POSITIVE_COUNT, default=50, show_default=True, help="Maximum number of records.")
@click.option("--after", metavar="CURSOR", help="Continue after this record: `cursor` in the JSON of the last one.")
@common_options
def ls(
    *,
    states: tuple[RecordState, ...],
    older_than: str | None,
    claimed_before: str | None,
    order: str,
    prefix: str | None,
    limit: int,
    after: str | None,
) -> None:
    """List records, most recently updated first. FREE records are listed only with --state FREE.

    To read page by page, pass the cursor of the last record to --after, with the same --sort. If there are more
    records, the cursor is also printed on stderr. With --sort updated, records that change meanwhile may be listed
    twice or left out; use --sort key or --sort created to avoid that.

    \b
    Examples:
      onceward ls --state PENDING --older-than 1h          neither settled nor renewed
      onceward ls --state PENDING --claimed-before 1h      started that long ago
      onceward ls --sort created --limit 10
      onceward ls --scope shop/charge --prefix customer:42:
      onceward ls --scope shop/charge --limit 500 -o json
      onceward ls --sort key --limit 500 --after "$(jq -r '.[-1].cursor' page1.json)"
    """
    with opened_store(store_url()) as store:
        before = None
        if older_than is not None:
            age = microseconds(older_than, "--older-than")
            before = run(store.scan(Filter(), cursor=None, limit=1, timeout=SEARCH_TIMEOUT)).now - age
        starts = None if prefix is None else escape(prefix)
        wanted = Filter(states=states or WORK_STATES, scope=scope(), updated_before=before, prefix=starts)
        sort = SortOrder(order)
        position = None if after is None else parse_cursor(after, sort)
        ago = None if claimed_before is None else microseconds(claimed_before, "--claimed-before")
        found = first_records(store, wanted, sort, limit + 1, claimed_ago=ago, after=position)
        unknown = scope_hint(store, wanted.scope) if wanted.scope and not found else ""
    more, found = len(found) > limit, found[:limit]
    if wants_json():
        display.print_json([{**record_as_json(*one), "cursor": cursor_of(one[0], sort)} for one in found])
    elif found:
        titles = ("STATE", "SCOPE", "KEY", "ATTEMPT", "TOUCHED", "OWNER", "ID")
        display.print_table(titles, [_row(*one) for one in found], elastic=(1, 2, 5))
    else:
        click.echo("No records.", err=True)
    if unknown:
        print_error(unknown)
    if more:
        more_text = f"There are more than these {limit}. For the next ones: --after {cursor_of(found[-1][0], sort)}"
        click.echo(more_text, err=True)


@program.command()
@KEY
@SCOPE
@click.option("--value", is_flag=True, help="Also decode and show the stored result.")
@common_options
def show(*, key: str, value: bool) -> None:
    """Show every field of one record.

    KEY is the displayed key, or id:<hex> as in `onceward ls`. In JSON, bytes of a value are {"bytes": "<base64>"}.

    \b
    Examples:
      onceward show charge:42
      onceward show id:9f86d081 --value
    """
    with opened_store(store_url()) as store:
        record, now = find_one(store, key, scope())
        trail = auditing.audit_trail(store, record)
    document = record_as_json(record, now)
    if value:
        document["value"] = _decoded_result(record)
    if wants_json():
        if value:
            document["value"] = values.as_json(document["value"])
        display.print_json({**document, "audit": [auditing.as_json(entry) for entry in trail]})
        return
    display.print_facts({name: _fact_text(fact) for name, fact in document.items() if fact not in (None, "", {})})
    for entry in trail:
        click.echo(display.cut(f"changed manually  {auditing.line(entry)}", display.MAX_LINE_WIDTH))


def _decoded_result(record: Record) -> Any:
    if record.result is None:
        return None
    try:
        return PLAIN_FIELDS.decode(record.result, record.id)
    except OncewardError as error:
        return f"cannot be decoded: {error}"


def _fact_text(fact: Any) -> str:
    return fact if isinstance(fact, str) else repr(fact)


@program.command()
@KEY
@SCOPE
@common_options
def explain(key: str) -> None:
    """Explain in plain sentences what happened to a key, by whom, when, and what a delivery does now.

    The history below lists every claim, takeover, failure and manual change that is known, the latest last. If
    ONCEWARD_CONSOLE_URL is set, the last line is the address of the key in the console.

    \b
    Examples:
      onceward explain charge:42
      onceward explain charge:42 --scope shop/charge
    """
    with opened_store(store_url()) as store:
        record, now = find_one(store, key, scope())
        life = run(read_life(store, record, now, journal_or_none(record)))
    sentences = explanation(record, now, life.audit[: auditing.MAX_RECORD_ENTRIES], declared_reasons(record))
    url = console_url(record.id)
    if wants_json():
        document = {
            **record_as_json(record, now),
            "now": display.iso(now),
            "explanation": sentences,
            "timeline": [event_as_json(event) for event in life.timeline],
            "gaps": life.gaps,
        }
        display.print_json(document if url is None else {**document, "console": url})
        return
    click.secho(display.cut(f"{record.key}  {state_text(record, now)}  in {record.scope}", 300), bold=True,
                color=display.color_mode())  # fmt: skip
    history = [f"  {event_line(event)}" for event in life.timeline]
    for line in [*sentences, "History:", *history, *life.gaps, *([] if url is None else [f"Console: {url}"])]:
        click.echo(display.cut(line, 1000))


def console_url(id: bytes) -> str | None:
    """Return the page of the record in the console; None if $ONCEWARD_CONSOLE_URL is not set."""
    base = os.environ.get("ONCEWARD_CONSOLE_URL", "").strip()
    return f"{base.rstrip('/')}/keys/{id.hex()}" if base else None


def operation_of(scope: str) -> str:
    """Return the operation of `app/operation@tenant`, without its version."""
    return unversioned(scope.partition("@")[0].partition("/")[2])


def declared_reasons(record: Record) -> Reasons:
    """Return the reasons of the record's operation, if a settings file declares it."""
    operations, name = operations_from_file(), operation_of(record.scope)
    return operations[name].policy().reasons if name in operations else DEFAULT_REASONS


@program.command()
@click.option("--since", metavar="DURATION", help="Show the counters of this period instead, such as 24h or 7d.")
@SCOPE
@common_options
def stats(since: str | None) -> None:
    """Count records by scope and state; or, with --since, show counters by hour.

    \b
    Examples:
      onceward stats
      onceward stats --since 24h
      onceward stats --since 7d --scope shop/charge -o json
    """
    if since is not None:
        charts.show(store_url(), microseconds(since, "--since"), scope())
        return
    wanted = scope()
    with opened_store(store_url()) as store:
        counts = run(store.counts(timeout=SEARCH_TIMEOUT))
    scopes = sorted({one for one, _ in counts if wanted in (None, one)})
    if wants_json():
        display.print_json(
            {scope: {state.value: counts.get((scope, state), 0) for state in RecordState} for scope in scopes}
        )
        return
    rows = [[scope, *(str(counts.get((scope, state), 0)) for state in RecordState)] for scope in scopes]
    rows.append(["all", *(str(sum(counts.get((scope, state), 0) for scope in scopes)) for state in RecordState)])
    display.print_table(("SCOPE", *(state.value for state in RecordState)), rows, elastic=(0,))


@program.command()
@APP
@TENANT
@SCOPE
@common_options
def config() -> None:
    """Show the effective settings and their sources. Passwords are masked.

    \b
    Examples:
      onceward config
      onceward config --store redis://cache:6379/0 -o json
    """
    settings = {
        name: (url_without_secrets(setting.value), setting.source) for name, setting in current_settings().items()
    }
    settings |= {f"retry_spans.{name}": setting for name, setting in retry_spans({}).items()}
    if wants_json():
        display.print_json({name: {"value": value, "source": source} for name, (value, source) in settings.items()})
        return
    spans = ("", "how long senders retry")
    rows = [[name, value, source, SETTINGS.get(name, spans)[1]] for name, (value, source) in settings.items()]
    display.print_table(("SETTING", "VALUE", "FROM", "MEANING"), rows, elastic=(1, 3))
