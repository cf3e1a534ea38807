"""The checker must find each planted bug under the load that sound stores pass."""

from __future__ import annotations

from pathlib import Path

import pytest

from onceward.stores.memory.store import MemoryStore
from tests.conformance import (
    broken,
    broken_counts,
    broken_key_history,
    broken_latest,
    broken_listings,
    broken_trails,
    broken_ways,
    broken_windows,
)
from tests.conformance.test_kit_catches_broken_stores import CAUGHT_BY
from tests.evidence.planted import (
    DETECTABLE,
    IN_FILES,
    UNDETECTABLE,
    CachesLookupsWithoutLimit,
    Hunt,
    caches_that_miss_a_forget,
    get_then_put_by_processes,
    get_then_put_by_threads,
    hunt,
    storms,
)

SEEDS = 200
"""Histories within which a bug must show. Nearly all show in the first, the rarest in about the tenth."""


def assert_found(hunted: Hunt, name: str) -> None:
    assert hunted.found, f"{name}: {hunted.histories} histories, {hunted.operations} operations, and nothing was found"
    explanation = next(one for one in hunted.report.violations if one.id is not None).explanation.splitlines()
    assert "no order explains these answers" in explanation[0]
    assert len(explanation) < 60, "the explanation is too long to read"
    print(f"{name}: history {hunted.histories}, {hunted.operations} operations\n" + "\n".join(explanation))


@pytest.mark.rival(1, 2, 5, 18, 20, 22, 23, 24)
@pytest.mark.fault("F36", "F40", "F41", "F42", "F66")
@pytest.mark.parametrize("kind", [*DETECTABLE, CachesLookupsWithoutLimit])
def test_a_planted_bug_is_found_among_threads(kind: type[MemoryStore]) -> None:
    assert_found(hunt(storms(kind, seeds=SEEDS)), kind.__name__)


@pytest.mark.parametrize(
    "kind",
    [
        broken.BlindTakeOver,
        broken.MissingLeaseIsFree,
        broken.CompletesWithoutOwnerCheck,
        broken.TokenResetByPurge,
        broken_ways.GetThenPut,
        broken_ways.PurgeDecidesThenDeletes,
    ],
)
def test_a_planted_bug_is_found_among_tasks(kind: type[MemoryStore]) -> None:
    assert_found(hunt(storms(kind, seeds=SEEDS, mode="asyncio")), kind.__name__)


@pytest.mark.rival(18)
def test_get_then_put_on_a_file_is_found_among_threads(tmp_path: Path) -> None:
    assert_found(hunt(get_then_put_by_threads(tmp_path, seeds=20)), "get then put, threads")


@pytest.mark.rival(18)
def test_get_then_put_on_a_file_is_found_among_processes(tmp_path: Path) -> None:
    assert_found(hunt(get_then_put_by_processes(tmp_path, seeds=10)), "get then put, processes")


def test_a_cache_that_misses_the_forget_of_others_is_found() -> None:
    """As documented. Its clock is a little behind the store's."""
    assert_found(hunt(caches_that_miss_a_forget(seeds=20), tolerance=10_000), "cache")


def test_what_a_history_cannot_show_is_listed_and_everything_else_is_hunted() -> None:
    assert not set(DETECTABLE) & set(UNDETECTABLE)
    others = (broken_counts, broken_key_history, broken_listings, broken_trails, broken_latest, broken_windows)
    not_in_the_load = {module.__name__ for module in others}
    hunted = {kind for kind in CAUGHT_BY if kind.__module__ not in not_in_the_load}
    assert {*DETECTABLE, *UNDETECTABLE, *IN_FILES} == {*hunted, broken_ways.UnlockedFiles}


@pytest.mark.parametrize("kind", UNDETECTABLE)
def test_what_a_history_cannot_show_is_not_found_by_accident(kind: type[MemoryStore]) -> None:
    """If this fails, the checker has become better: move the store to `DETECTABLE`."""
    assert not hunt(storms(kind, seeds=2)).found
