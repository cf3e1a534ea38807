"""Schedules with one broken rule each. The simulation must notice all of them, or it proves nothing."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from msgspec.structs import replace

from onceward.engine.runner import call_handler
from onceward.keys.key import Key, make_key
from onceward.protocol.outcome import Running
from onceward.protocol.transitions import Row
from onceward.runtime.threads import run
from onceward.schedules import cron, due
from onceward.schedules import runner as core
from onceward.schedules.cursor import cursor_of, move
from onceward.schedules.definition import Schedule
from onceward.schedules.slot_run import SlotRun, run_slot
from onceward.schedules.slots import Pattern


def keys_in_local_time() -> None:
    """Makes the hour that the clocks show twice one slot."""

    def key(self: Schedule, slot: int) -> Key:
        return make_key(self.scope, self.local(slot).replace(tzinfo=None).isoformat())

    Schedule.key = key  # type: ignore[method-assign]  # that is the point


def cursor_before_the_claim() -> None:
    """Moves the cursor past a slot before it is claimed: if the runner dies then, the slot is lost."""
    start = core.ScheduleRunner._start

    def hasty(self: Any, pool: Any, slot: int, *, late: bool) -> None:
        store, keys = self.engine.store, self.schedule.cursors
        seen = cursor_of(run(store.read([key.id for key in keys], timeout=5)))
        run(move(self.engine, self.schedule, seen, slot, 0))
        start(self, pool, slot, late=late)

    core.ScheduleRunner._start = hasty  # type: ignore[method-assign]  # as above


def look_then_run() -> None:
    """Checks instead of claiming: every runner that sees no record runs the slot."""

    async def unclaimed(engine: Any, one: SlotRun) -> Any:
        found = (await engine.store.read([one.job.key.id], timeout=5))[0].record
        if found is not None:
            return Running(key=one.job.key.text)
        time.sleep(0.001)  # noqa: ASYNC251 (there is no loop here); other runners check now
        call_handler(one.job)
        return await run_slot(engine, SlotRun(one.schedule, one.slot, replace(one.job, call=lambda _: None)))

    vars(core)["run_slot"] = unclaimed


def no_time_is_fixed() -> None:
    """Loses a nightly run in spring and repeats one in autumn."""
    sound = cron.parse_pattern

    def unfixed(text: str) -> Pattern:
        return replace(sound(text), fixed=False)

    cron.parse_pattern = unfixed


def expired_claims_are_settled() -> None:
    """Treats every slot that was begun as finished."""
    due.STATUS_OF_ROW[Row.PENDING_LAPSED] = due.SlotStatus.SETTLED


VARIANTS: dict[str, Callable[[], None]] = {
    "keys in local time": keys_in_local_time,
    "cursor before the claim": cursor_before_the_claim,
    "look, then run": look_then_run,
    "no time is fixed": no_time_is_fixed,
    "expired claims are settled": expired_claims_are_settled,
}
