"""`onceward audit`, and how an entry of the trail is told elsewhere."""

from __future__ import annotations

from typing import Any

import click

from onceward.protocol.audit import AuditEntry, AuditFilter
from onceward.protocol.duration import microseconds
from onceward.protocol.ports import Store
from onceward.protocol.record import Record
from onceward.runtime.bridge import run

from . import display
from .find import Pattern
from .open_store import SEARCH, TIMEOUT, opened
from .program import HOW_MANY, SCOPE, common, program, scope, store_url, wants_json

OF_ONE_RECORD = 20  # entries that `show` and `explain` tell
MOST = 100_000  # entries looked through for what a store cannot search for: the beginning of a text or an id


@program.command()
@click.argument("key", metavar="[KEY]", required=False)
@SCOPE
@click.option("--since", metavar="DURATION", help="Only what was done in this time, such as 24h or 7d.")
@click.option("--limit", type=HOW_MANY, default=50, show_default=True, help="At most so many.")
@common
def audit(*, key: str | None, since: str | None, limit: int) -> None:
    """Tell who changed records by hand, when, why, and from what to what; the newest first.

    release, retry, resolve, forget and purge write it, in the same step as the change. Neither payloads nor results
    enter it. It is kept for 400 days, also when the record is gone.

    \b
    Examples:
      onceward audit charge:42
      onceward audit --since 24h -o json
    """
    within = None if since is None else microseconds(since, "--since")
    with opened(store_url()) as store:
        found = search(store, key, AuditFilter(scope=scope(), within=within), limit + 1)
    more, found = len(found) > limit, found[:limit]
    if wants_json():
        display.print_json([as_json(one) for one in found])
    elif found:
        titles = ("WHEN (UTC)", "WHO", "WHAT", "KEY", "CHANGE", "WHY")
        display.table(titles, [_row(one) for one in found], elastic=range(1, len(titles)), whole=True)
    else:
        click.echo("No entries.", err=True)
    if more:
        click.echo(f"There are more than these {limit}; --limit shows more.", err=True)


def search(store: Store, key: str | None, wanted: AuditFilter, limit: int) -> list[AuditEntry]:
    """The entries of this key, whether its record is still there or not."""
    if key is None:
        return run(store.audit(wanted, limit=limit, timeout=SEARCH))
    pattern = Pattern.of(key)
    wanted = AuditFilter(id=pattern.id, key=pattern.key, scope=wanted.scope, within=wanted.within)
    most = limit if pattern.is_exact else MOST
    found = run(store.audit(wanted, limit=most, timeout=SEARCH))
    return [one for one in found if pattern.fits(one.id, one.key, one.scope)][:limit]


def trail_of(store: Store, record: Record) -> list[AuditEntry]:
    return run(store.audit(AuditFilter(id=record.id), limit=OF_ONE_RECORD, timeout=TIMEOUT))


def as_json(entry: AuditEntry) -> dict[str, Any]:
    return {
        "at": display.iso(entry.at),
        "who": entry.who,
        "verb": entry.verb,
        "detail": entry.detail,
        "why": entry.why,
        "id": entry.id.hex() or None,
        "scope": entry.scope,
        "key": entry.key,
        "state_before": entry.state_before,
        "state_after": entry.state_after,
        "token_before": entry.token_before,
        "token_after": entry.token_after,
        "count": entry.count,
    }


def deed(entry: AuditEntry) -> str:
    """What was asked for: the verb, and how."""
    return f"{entry.verb} {entry.detail.replace('_', ' ')}".strip()


def _change(entry: AuditEntry) -> str:
    if not entry.id:
        return f"{entry.count} records"
    return f"{entry.state_before} → {entry.state_after}"


def _row(entry: AuditEntry) -> list[str]:
    moment = display.moment(entry.at).removesuffix(" UTC")
    return [moment, entry.who, deed(entry), entry.key, _change(entry), entry.why]


def sentence(entry: AuditEntry, now: int) -> str:
    """For `explain`."""
    when = f"{display.span(now - entry.at)} ago ({display.moment(entry.at)})"
    reason = f" Reason: {entry.why.rstrip('.')}." if entry.why else " No reason was given."
    changed = f"from {entry.state_before} to {entry.state_after}"
    return f"By hand {when}: {entry.who} said {deed(entry)}, {changed}.{reason}"


def line(entry: AuditEntry) -> str:
    """For `show`."""
    reason = f": {entry.why}" if entry.why else ""
    return f"{display.moment(entry.at)}  {entry.who}  {deed(entry)}  {_change(entry)}{reason}"
