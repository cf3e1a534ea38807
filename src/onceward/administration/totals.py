"""The counters of the scopes that an operator may see."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from onceward.protocol.counters import HOUR, CounterTotals, add_up

if TYPE_CHECKING:
    from .admin import Admin

DAY: Final = 24
RULE_HOURS: Final = 28 * DAY
TIMEOUT: Final = 30.0


async def totals_of(admin: Admin, hours: int) -> CounterTotals | None:
    """Return the visible counters of the last hours; None if the store keeps none."""
    counters = admin.store.counters
    if counters is None:
        return None
    now = await counters.save_counts([], timeout=TIMEOUT)
    since = now // HOUR - hours + 1
    totals = add_up(await counters.read_counts(since, timeout=TIMEOUT), since)
    if admin.visible.everything:
        return totals
    visible = {
        hour: {scope: cell for scope, cell in counts.items() if admin.visible.includes(scope)}
        for hour, counts in totals.hours.items()
    }
    return CounterTotals(totals.now, totals.since, visible)


async def scopes_of(admin: Admin) -> list[str]:
    totals = await totals_of(admin, RULE_HOURS)
    return [] if totals is None else totals.scopes
