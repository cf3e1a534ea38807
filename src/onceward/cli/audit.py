"""`onceward audit`, and the texts of audit entries that other commands show."""

from __future__ import annotations

import click

from onceward.administration.audit_text import action_text, as_json, change_text, line
from onceward.protocol.audit import AuditEntry, AuditFilter
from onceward.protocol.duration import microseconds
from onceward.protocol.ports import Store
from onceward.protocol.record import Record
from onceward.runtime.threads import run

from . import display
from .find import KeyPattern
from .open_store import SEARCH_TIMEOUT, TIMEOUT, opened_store
from .program import POSITIVE_COUNT, SCOPE, common_options, program, scope, store_url, wants_json

__all__ = ["as_json", "audit", "audit_trail", "line", "search"]

MAX_RECORD_ENTRIES = 20  # audit entries that `show` and `explain` print
MAX_SCANNED = 100_000  # entries to scan for what a store cannot search for: a prefix of a key or an id


@program.command()
@click.argument("key", metavar="[KEY]", required=False)
@SCOPE
@click.option("--since", metavar="DURATION", help="Only changes of this period, such as 24h or 7d.")
@click.option("--limit", type=POSITIVE_COUNT, default=50, show_default=True, help="Maximum number of entries.")
@common_options
def audit(*, key: str | None, since: str | None, limit: int) -> None:
    """List who changed records manually, when, why, and from which state to which; newest first.

    release, retry, resolve, forget and purge write the audit trail, atomically with the change. It never contains
    payloads or results. Entries are kept for 400 days, even if the record is gone.

    \b
    Examples:
      onceward audit charge:42
      onceward audit --since 24h -o json
    """
    within = None if since is None else microseconds(since, "--since")
    with opened_store(store_url()) as store:
        found = search(store, key, AuditFilter(scope=scope(), within=within), limit + 1)
    more, found = len(found) > limit, found[:limit]
    if wants_json():
        display.print_json([as_json(one) for one in found])
    elif found:
        titles = ("WHEN (UTC)", "WHO", "WHAT", "KEY", "CHANGE", "WHY")
        display.print_table(titles, [_row(one) for one in found], elastic=range(1, len(titles)), whole=True)
    else:
        click.echo("No entries.", err=True)
    if more:
        click.echo(f"There are more than these {limit}; use --limit to show more.", err=True)


def search(store: Store, key: str | None, wanted: AuditFilter, limit: int) -> list[AuditEntry]:
    """Return the entries of this key, even if its record is gone."""
    if key is None:
        return run(store.audit(wanted, limit=limit, timeout=SEARCH_TIMEOUT))
    pattern = KeyPattern.of(key)
    wanted = AuditFilter(id=pattern.id, key=pattern.key, scope=wanted.scope, within=wanted.within)
    scanned = limit if pattern.is_exact else MAX_SCANNED
    found = run(store.audit(wanted, limit=scanned, timeout=SEARCH_TIMEOUT))
    return [one for one in found if pattern.matches(one.id, one.key, one.scope)][:limit]


def audit_trail(store: Store, record: Record) -> list[AuditEntry]:
    return run(store.audit(AuditFilter(id=record.id), limit=MAX_RECORD_ENTRIES, timeout=TIMEOUT))


def _row(entry: AuditEntry) -> list[str]:
    moment = display.moment(entry.at).removesuffix(" UTC")
    return [moment, entry.who, action_text(entry), entry.key, change_text(entry), entry.why]
