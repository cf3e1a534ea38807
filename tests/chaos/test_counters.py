"""Eight processes that count are killed at random: nothing counts twice, and nothing that was written is lost."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.chaos.counting_pool import WORKERS, Worked, complaints, run_and_kill_workers
from tests.servers.postgres import URL, schema_of
from tests.servers.redis import shared

SOAKING = os.environ.get("ONCEWARD_HYPOTHESIS_PROFILE") == "soak"
ROUNDS, CALLS = (20, 400) if SOAKING else (1, 30)


def checked(url: str, folder: Path) -> None:
    for seed in range(ROUNDS):
        place = folder / f"round {seed}"
        place.mkdir()
        pool = run_and_kill_workers(url, place, seed, CALLS)
        assert complaints(pool) == []
        assert len(pool) == WORKERS
        assert any(one.written for one in pool), "no worker wrote anything, so nothing was tested"
        done, stored = sum(one.done for one in pool), sum(one.stored for one in pool)
        print(f"{done} calls, {stored} counted in the store, {sum(max(one.done - one.stored, 0) for one in pool)} lost")


def test_on_sqlite(tmp_path: Path) -> None:
    checked(f"sqlite:///{tmp_path}/once.db?synchronous=NORMAL", tmp_path)


@pytest.mark.usefixtures("postgres")
def test_on_postgres(tmp_path: Path) -> None:
    url = os.environ[URL]
    mark = "&" if "?" in url else "?"
    checked(f"{url}{mark}schema={schema_of(tmp_path)}&migrate=1", tmp_path)


def test_on_valkey(tmp_path: Path) -> None:
    url = shared().url()
    mark = "&" if "?" in url else "?"
    checked(f"{url}{mark}prefix=counters", tmp_path)


def test_the_comparison_would_notice() -> None:
    assert complaints([Worked(done=10, written=8, stored=8)]) == []
    assert complaints([Worked(done=10, written=8, stored=11)]) == []
    assert complaints([Worked(done=10, written=8, stored=12)])[0].startswith("counted twice")
    assert complaints([Worked(done=10, written=8, stored=7)])[0].startswith("lost")
