"""Compares the runs of a simulation with the calendar."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

from msgspec import convert, to_builtins

from tests.chaos.year import Plan, Result

ROOT = Path(__file__).parents[2]
HOUR = timedelta(hours=1)
BERLIN = ZoneInfo("Europe/Berlin")


def as_json(plan: Plan) -> str:
    return json.dumps(to_builtins(plan))


def simulated(plan: Plan, *, timeout: float = 170) -> Result:
    ended = subprocess.run(
        [sys.executable, "-m", "tests.chaos.year", as_json(plan)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": os.pathsep.join((str(ROOT / "src"), str(ROOT)))},
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    assert not ended.stderr
    return convert(json.loads(ended.stdout), Result)


def every_hour(plan: Plan) -> dict[datetime, int]:
    """Return the expected runs in UTC, where every day has 24 hours. A schedule begins after its registration."""
    hours = (plan.until - plan.since) // HOUR
    return {plan.since + number * HOUR: 1 for number in range(1, hours)}


def every_night(plan: Plan) -> dict[datetime, int]:
    """Return the runs at half past two in Berlin, computed by hand for the two nights when the clocks change."""
    nights: dict[datetime, int] = {}
    day = plan.since.astimezone(BERLIN).date()
    while True:
        if day == datetime(2026, 3, 29).date():  # noqa: DTZ001 (a local date)
            at = datetime(2026, 3, 29, 1, 0, tzinfo=UTC)  # 02:30 does not exist: right after the gap, at 03:00
        elif day == datetime(2026, 10, 25).date():  # noqa: DTZ001 (a local date)
            at = datetime(2026, 10, 25, 0, 30, tzinfo=UTC)  # 02:30 comes twice: the first one
        else:
            at = datetime(day.year, day.month, day.day, 2, 30, tzinfo=BERLIN).astimezone(UTC)
        if at >= plan.until:
            return nights
        if at > plan.since:
            nights[at] = 1
        day += timedelta(days=1)


def complaints(plan: Plan, result: Result) -> list[str]:
    """Return the slots that were not run exactly as often as the calendar says."""
    found = []
    for name, expected in (("hourly", every_hour(plan)), ("nightly", every_night(plan))):
        ran = result.count(name)
        found += [
            f"{name} {at}: {ran[at]}, not {expected.get(at, 0)}"
            for at in {*ran, *expected}
            if ran[at] != expected.get(at, 0)
        ]
    return sorted(found)


YEAR = Plan(deaths=(3, 500, 2085, 2088, 4000, 7130, 7131, 8000))
"""Some runners are killed near 29 March (2089 h) and 25 October (7129 h)."""

WEEKS = {
    "spring": Plan(
        since=datetime(2026, 3, 20, tzinfo=UTC), until=datetime(2026, 4, 6, tzinfo=UTC), deaths=(3, 213, 216, 300)
    ),
    "autumn": Plan(
        since=datetime(2026, 10, 16, tzinfo=UTC), until=datetime(2026, 11, 2, tzinfo=UTC), deaths=(100, 218, 219, 350)
    ),
}
"""Seventeen days around each change of the clocks (after 217 h). The soak runs the whole year."""

AUTUMN = Plan(
    since=datetime(2026, 10, 24, 0, tzinfo=UTC), until=datetime(2026, 10, 27, 0, tzinfo=UTC), deaths=(5, 26), awake=10
)
"""Three days around a change of the clocks, with every runner awake at every slot."""
