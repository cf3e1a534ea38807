"""Ten runners side by side, through a year with both changes of the clocks, and killed on the way."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from tests.chaos.broken_schedules import VARIANTS
from tests.chaos.calendar import AUTUMN, YEAR, complaints, simulated
from tests.servers.redis import shared


@pytest.mark.mission("C3")
@pytest.mark.fault("F48")
@pytest.mark.rival(24)
@pytest.mark.timeout(180)
def test_ten_runners_run_every_slot_of_a_year_once_with_both_changes_of_the_clocks_and_some_killed() -> None:
    result = simulated(YEAR)
    assert complaints(YEAR, result) == []
    assert sum(map(len, result.runs.values())) == 8759 + 365
    assert result.killed == len(YEAR.deaths)
    assert min(result.spread[:10]) > 100, "one of them did all the work"


def test_the_three_days_in_which_broken_schedules_are_hunted_go_well_with_sound_ones() -> None:
    assert complaints(AUTUMN, simulated(AUTUMN)) == []


@pytest.mark.mission("C3")
@pytest.mark.rival(24)
def test_runners_on_redis_run_every_slot_of_three_days_once() -> None:
    plan = replace(AUTUMN, redis=shared().url())
    result = simulated(plan)
    assert complaints(plan, result) == []
    assert result.killed == len(plan.deaths)


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_broken_schedule_is_caught(variant: str) -> None:
    plan = replace(AUTUMN, variant=variant)
    assert complaints(plan, simulated(plan)) != []
