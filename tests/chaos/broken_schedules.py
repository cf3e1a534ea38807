"""Schedules with one rule broken each. A simulation that does not notice these proves nothing about the sound ones."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from msgspec.structs import replace

from onceward.engine.execute import run_without_claim
from onceward.keys.key import Key, make_key
from onceward.protocol.outcome import Running
from onceward.protocol.transitions import Row
from onceward.runtime.bridge import run
from onceward.schedules import cron, due
from onceward.schedules import runner as core
from onceward.schedules.cursor import cursor_of, move
from onceward.schedules.definition import Schedule
from onceward.schedules.pattern import Pattern
from onceward.schedules.slot_run import SlotRun, run_slot


def break_(variant: str) -> None:
    if variant:
        VARIANTS[variant]()


def keys_in_local_time() -> None:
    """The hour that clocks show twice is then one slot."""

    def key(self: Schedule, slot: int) -> Key:
        return make_key(self.scope, self.local(slot).replace(tzinfo=None).isoformat())

    Schedule.key = key  # type: ignore[method-assign]  # that is the point


def cursor_before_the_claim() -> None:
    """A slot counts as considered before anybody owns it: who dies then takes it along."""
    start = core.ScheduleRunner._start

    def hasty(self: Any, pool: Any, slot: int, *, late: bool) -> None:
        store, keys = self.engine.store, self.schedule.cursors
        seen = cursor_of(run(store.read([key.id for key in keys], timeout=5)))
        run(move(self.engine, self.schedule, seen, slot, 0))
        start(self, pool, slot, late=late)

    core.ScheduleRunner._start = hasty  # type: ignore[method-assign]  # as above


def look_then_run() -> None:
    """The race of a check that is no claim: whoever sees no record runs."""

    async def unclaimed(engine: Any, one: SlotRun) -> Any:
        found = (await engine.store.read([one.job.key.id], timeout=5))[0].record
        if found is not None:
            return Running(key=one.job.key.text)
        time.sleep(0.001)  # noqa: ASYNC251 (there is no loop here); others look now
        await run_without_claim(one.job, "")
        return await run_slot(engine, SlotRun(one.schedule, one.slot, replace(one.job, call=lambda _: None)))

    vars(core)["run_slot"] = unclaimed


def no_time_is_fixed() -> None:
    """A night's run is then lost in spring and done twice in autumn."""
    sound = cron.parse_pattern

    def unfixed(text: str) -> Pattern:
        return replace(sound(text), fixed=False)

    cron.parse_pattern = unfixed


def the_silent_are_settled() -> None:
    """Whoever has begun a slot is trusted to have ended it."""
    due.STATUS_OF_ROW[Row.PENDING_LAPSED] = due.SlotStatus.SETTLED


VARIANTS: dict[str, Callable[[], None]] = {
    "keys in local time": keys_in_local_time,
    "cursor before the claim": cursor_before_the_claim,
    "look, then run": look_then_run,
    "no time is fixed": no_time_is_fixed,
    "the silent are settled": the_silent_are_settled,
}
