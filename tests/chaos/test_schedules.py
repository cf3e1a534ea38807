"""Ten concurrent runners through both changes of the clocks, with some killed. The soak runs the whole year."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from tests.chaos.broken_schedules import VARIANTS
from tests.chaos.calendar import AUTUMN, WEEKS, complaints, simulated
from tests.servers.redis import shared


@pytest.mark.mission("C3")
@pytest.mark.fault("F48")
@pytest.mark.rival(24)
@pytest.mark.parametrize("season", WEEKS)
def test_ten_runners_run_every_slot_once_through_both_changes_of_the_clocks_with_some_killed(season: str) -> None:
    plan = WEEKS[season]
    result = simulated(plan)
    assert complaints(plan, result) == []
    assert sum(map(len, result.runs.values())) == 17 * 24 - 1 + 17
    assert result.killed == len(plan.deaths)
    assert min(result.spread[:10]) > 5, "one of them did all the work"


def test_sound_schedules_pass_the_three_days_that_catch_broken_ones() -> None:
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
