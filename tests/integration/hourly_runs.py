"""A schedule that runs every hour and records each slot."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest

from tests.clients import SyncClient
from tests.planned import Runner, utc

NEW_YEAR = utc(2026, 1, 1)
DAY_BEFORE = [utc(2026, 1, 2) - timedelta(hours=hours) for hours in range(24, 0, -1)]


@pytest.fixture
def ran() -> list[datetime]:
    return []


def hourly(client: SyncClient, ran: list[datetime], **choices: object) -> Runner:
    return Runner(client, ran.append, "0 * * * *", name="hourly", **choices)


def both_run_due(*runners: Runner) -> None:
    for runner in runners:
        runner.run_due()
