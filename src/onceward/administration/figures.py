"""Read the figures of an operator's visible records: the overview, the rules and the scopes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from onceward.observe.rules import Broken
from onceward.protocol.counters import CounterTotals

from . import listing, overview, schedules
from .model import Capped, Overview, RuleRow

if TYPE_CHECKING:
    from .admin import Admin


async def overview_of(admin: Admin, hours: int) -> Overview:
    """Return the overview. Queries: 2 for counters, 4 for unfinished records, 1 for counts, 1 for schedules."""
    store = admin.store
    totals = await totals_of(admin, max(hours, overview.RULE_HOURS))
    found = await overview.read_unfinished(store, admin.visible)
    if admin.visible.everything:
        states = await listing.count_unfinished(store, overview.MAX_COUNTED)
    else:  # the index does not know scopes: what was read is counted
        states = {state: Capped(len(records), found.more[state]) for state, records in found.records.items()}
    rows, cursors = await schedules.schedule_rows(store, schedules.visible_schedules(admin), totals)
    broken = overview.broken_rules(totals, found, cursors, admin.thresholds)
    return overview.overview(totals, found, states, hours=hours, schedules=rows, broken=broken)


async def rules_of(admin: Admin) -> list[RuleRow]:
    """Return every rule, and where it is broken."""
    return overview.rule_rows(await broken_of(admin), admin.thresholds)


async def broken_of(admin: Admin) -> list[Broken]:
    totals = await totals_of(admin, overview.RULE_HOURS)
    found = await overview.read_unfinished(admin.store, admin.visible)
    _, cursors = await schedules.schedule_rows(admin.store, schedules.visible_schedules(admin), totals)
    return overview.broken_rules(totals, found, cursors, admin.thresholds)


async def scopes_of(admin: Admin) -> list[str]:
    totals = await totals_of(admin, overview.RULE_HOURS)
    return [] if totals is None else totals.scopes


async def totals_of(admin: Admin, hours: int) -> CounterTotals | None:
    """Return the counters of the visible scopes."""
    totals = await overview.read_totals(admin.store, hours)
    return None if totals is None else overview.visible_totals(totals, admin.visible)
