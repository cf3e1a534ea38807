"""Commands that only look: ls, show, explain, stats, config."""

from __future__ import annotations

from typing import Any

import click

from onceward.errors import OncewardError
from onceward.protocol.duration import microseconds
from onceward.protocol.note import user_notes
from onceward.protocol.ports import Filter, SortOrder
from onceward.protocol.reasons import DEFAULT_REASONS, Reasons
from onceward.protocol.record import AfterCrash, Record, RecordState
from onceward.protocol.transitions import Row, row_of
from onceward.protocol.unstored import unstored_reason
from onceward.results.untyped import PLAIN_FIELDS
from onceward.runtime.bridge import run
from onceward.sagas.journal import journal_from

from . import audit as auditing
from . import charts, display
from . import json_values as values
from .errors import about_scope
from .explain import sentences
from .find import WORK, first, the_one
from .open_store import SEARCH, opened
from .program import APP, HOW_MANY, SCOPE, TENANT, chosen, common, complain, program, scope, store_url, wants_json
from .retry_spans import unversioned
from .settings import declared, masked, retry_spans

ORDERS = click.Choice([order.value for order in SortOrder])
KEY = click.argument("key", metavar="KEY")
SHORT_ID = 12
_PLAIN_ROWS = {Row.PENDING_LAPSED: "PENDING lapsed", Row.RELEASED_UNVERIFIED: "PENDING back", Row.FAILED_FINAL: "FAILED final"}


def state_named(word: str) -> RecordState:
    """In any case, as click's own choice would take it; but told as everywhere else, in capitals."""
    try:
        return RecordState(word.upper())
    except ValueError:
        raise click.BadParameter(f"{word!r} is not one of {', '.join(RecordState)}.") from None


def standing(record: Record, now: int) -> str:
    """The state, and what time has made of it."""
    row = row_of(record, now)
    if row in (Row.COMPLETED_EXPIRED, Row.FAILED_FINAL_EXPIRED, Row.FAILED_RETRYABLE_EXPIRED):
        return f"{record.state} over"
    return _PLAIN_ROWS.get(row, record.state.value)


def brief(record: Record, now: int) -> dict[str, Any]:
    """A record as JSON, without its result."""
    return {
        "id": record.id.hex(),
        "scope": record.scope,
        "key": record.key,
        "state": record.state.value,
        "standing": standing(record, now),
        "attempt": record.attempt,
        "token": record.token,
        "owner": record.owner,
        "created_at": display.iso(record.created_at),
        "claimed_at": display.iso(record.claimed_at),
        "updated_at": display.iso(record.updated_at),
        "renewed_at": display.iso(record.renewed_at),
        "lease_until": display.iso(record.lease_until),
        "valid_until": display.iso(record.valid_until),
        "retry_at": display.iso(record.retry_at),
        "after_crash": AfterCrash(record.after_crash).name.lower(),
        "error_type": record.error_type,
        "error": record.error,
        "final": record.final,
        "stored": record.stored and record.result is not None,
        "result_bytes": len(record.result or b""),
        "unstored": unstored_reason(record.note),
        "note": user_notes(record.note),
    }


def _row(record: Record, now: int) -> list[str]:
    age = display.span(now - record.updated_at)
    return [
        standing(record, now),
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
    type=state_named,
    multiple=True,
    metavar=f"[{'|'.join(RecordState)}]",
    shell_complete=lambda _context, _parameter, begun: [one for one in RecordState if one.startswith(begun.upper())],
    help="Only this state; may be repeated.",
)
@SCOPE
@click.option("--older-than", metavar="DURATION", help="Not touched for so long, such as 1h or 7d.")
@click.option("--claimed-before", metavar="DURATION", help="Claimed longer ago than this, renewed since or not.")
@click.option("--sort", "order", type=ORDERS, default="updated", show_default=True, help="Newest first, or by key.")
@click.option("--limit", type=HOW_MANY, default=50, show_default=True, help="At most so many.")
@common
def ls(
    states: tuple[RecordState, ...], older_than: str | None, claimed_before: str | None, order: str, limit: int
) -> None:
    """List records; those last touched first. FREE ones only on demand.

    \b
    Examples:
      onceward ls --state PENDING --older-than 1h          neither ended nor renewed
      onceward ls --state PENDING --claimed-before 1h      begun so long ago
      onceward ls --sort created --limit 10
      onceward ls --scope shop/charge --limit 500 -o json
    """
    with opened(store_url()) as store:
        before = None
        if older_than is not None:
            age = microseconds(older_than, "--older-than")
            before = run(store.scan(Filter(), cursor=None, limit=1, timeout=SEARCH)).now - age
        wanted = Filter(states=states or WORK, scope=scope(), updated_before=before)
        ago = None if claimed_before is None else microseconds(claimed_before, "--claimed-before")
        found = first(store, wanted, SortOrder(order), limit + 1, claimed_ago=ago)
        unknown = about_scope(store, wanted.scope) if wanted.scope and not found else ""
    more, found = len(found) > limit, found[:limit]
    if wants_json():
        display.print_json([brief(*one) for one in found])
    elif found:
        titles = ("STATE", "SCOPE", "KEY", "ATTEMPT", "TOUCHED", "OWNER", "ID")
        display.table(titles, [_row(*one) for one in found], elastic=(1, 2, 5))
    else:
        click.echo("No records.", err=True)
    if unknown:
        complain(unknown)
    if more:
        click.echo(f"There are more than these {limit}; --limit shows more.", err=True)


@program.command()
@KEY
@SCOPE
@click.option("--value", is_flag=True, help="Decode and show the stored result, too.")
@common
def show(*, key: str, value: bool) -> None:
    """Show every field of one record.

    KEY is the readable key, or id:<hex> as `onceward ls` shows it. In JSON, bytes of a value are {"bytes": "<base64>"}.

    \b
    Examples:
      onceward show charge:42
      onceward show id:9f86d081 --value
    """
    with opened(store_url()) as store:
        record, now = the_one(store, key, scope())
        trail = auditing.trail_of(store, record)
    document = brief(record, now)
    if value:
        document["value"] = _value(record)
    if wants_json():
        if value:
            document["value"] = values.as_json(document["value"])
        display.print_json({**document, "audit": [auditing.as_json(entry) for entry in trail]})
        return
    display.facts({name: _plain(fact) for name, fact in document.items() if fact not in (None, "", {})})
    for entry in trail:
        click.echo(display.cut(f"by hand  {auditing.line(entry)}", display.LONGEST_FACT))


def _value(record: Record) -> Any:
    if record.result is None:
        return None
    try:
        return PLAIN_FIELDS.decode(record.result, record.id)
    except OncewardError as error:
        return f"cannot be decoded here: {error}"


def _plain(fact: Any) -> str:
    return fact if isinstance(fact, str) else repr(fact)


@program.command()
@KEY
@SCOPE
@common
def explain(key: str) -> None:
    """Tell in plain sentences why it was skipped, by whom, since when, until when.

    \b
    Examples:
      onceward explain charge:42
      onceward explain charge:42 --scope shop/charge
    """
    with opened(store_url()) as store:
        record, now = the_one(store, key, scope())
        trail = auditing.trail_of(store, record)
    story = [
        *sentences(record, now, words_of(record)),
        *_of_saga(record),
        *(auditing.sentence(entry, now) for entry in trail),
    ]
    if wants_json():
        display.print_json({**brief(record, now), "now": display.iso(now), "explanation": story})
        return
    click.secho(display.cut(f"{record.key}  {standing(record, now)}  in {record.scope}", 300), bold=True,
                color=display.modes())  # fmt: skip
    for sentence in story:
        click.echo(display.cut(sentence, 1000))


def _of_saga(record: Record) -> list[str]:
    from .sagas import sentence  # it lists with what is here

    try:
        journal = journal_from(record.note)
    except OncewardError as error:
        return [f"It is a saga whose steps cannot be told: {error}."]
    return [] if journal is None else [sentence(journal)]


def operation_of(scope: str) -> str:
    """The operation in `app/operation@tenant`, without its version."""
    return unversioned(scope.partition("@")[0].partition("/")[2])


def words_of(record: Record) -> Reasons:
    """The reason words of the record's operation, if a file declares it here."""
    operations, name = declared(), operation_of(record.scope)
    return operations[name].policy().reasons if name in operations else DEFAULT_REASONS


@program.command()
@click.option("--since", metavar="DURATION", help="What was counted in the last hours instead, such as 24h or 7d.")
@SCOPE
@common
def stats(since: str | None) -> None:
    """Count records by scope and state; or, with --since, what was done, hour by hour.

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
    with opened(store_url()) as store:
        counts = run(store.counts(timeout=SEARCH))
    scopes = sorted({one for one, _ in counts if wanted in (None, one)})
    if wants_json():
        display.print_json(
            {scope: {state.value: counts.get((scope, state), 0) for state in RecordState} for scope in scopes}
        )
        return
    rows = [[scope, *(str(counts.get((scope, state), 0)) for state in RecordState)] for scope in scopes]
    rows.append(["all", *(str(sum(counts.get((scope, state), 0) for scope in scopes)) for state in RecordState)])
    display.table(("SCOPE", *(state.value for state in RecordState)), rows, elastic=(0,))


@program.command()
@APP
@TENANT
@SCOPE
@common
def config() -> None:
    """Show the effective settings and where each comes from. Passwords are masked."""
    settings = {
        name: (masked(setting.value) if name == "store" else setting.value, setting.source)
        for name, setting in chosen().items()
    }
    settings |= {f"retry_spans.{name}": setting for name, setting in retry_spans({}).items()}
    if wants_json():
        display.print_json({name: {"value": value, "source": source} for name, (value, source) in settings.items()})
        return
    rows = [[name, value, source] for name, (value, source) in settings.items()]
    display.table(("SETTING", "VALUE", "FROM"), rows, elastic=(1,))
