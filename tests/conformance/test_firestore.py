"""The whole kit on Firestore's emulator, in fake time; and the checks about time on the server's own clock."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from onceward.protocol.requests import Renewal
from onceward.stores.clock import WallClock
from onceward.stores.firestore import audit as trail
from onceward.stores.firestore import calls, latest
from onceward.stores.firestore import counters as counts
from onceward.stores.firestore import maintenance as upkeep
from onceward.testing.conformance.fencing import FencingChecks
from onceward.testing.conformance.replies import ReplyChecks
from onceward.testing.conformance.windows import WindowChecks
from onceward.testing.history import check, storm
from tests.conformance.on_firestore import Hooks, OnFirestore

MOMENT = 300_000
"""µs: longer than a call of the emulator."""

BEHIND = 1_000_000
"""µs that an answer may take to arrive on a busy machine."""

IN_ONE_MODE = {
    "test_processes_never_own_a_key_at_the_same_time": "blocking",
    "test_processes_that_deliver_a_history_end_in_the_same_state": "asyncio",
}
"""Each of these starts three interpreters, which take a second to load Google's client."""


class TestFirestore(OnFirestore):
    """In fake time, so that every check runs."""

    def pytest_generate_tests(self, metafunc: Any) -> None:
        only = IN_ONE_MODE.get(metafunc.function.__name__)
        if only is None:
            super().pytest_generate_tests(metafunc)
        else:
            metafunc.parametrize("mode", [only])


class TestFirestoreInItsOwnTime(Hooks, FencingChecks, ReplyChecks, WindowChecks):
    """The read time of a get is the clock. The class above runs the same calls in both modes."""

    fake_clock = False

    def pytest_generate_tests(self, metafunc: Any) -> None:
        if "mode" in metafunc.fixturenames:
            metafunc.parametrize("mode", ["asyncio"])


@pytest.mark.parametrize(
    "what",
    [
        "sorted_pages_do_not_depend_on_ids",
        "pages_of_any_size_show_each_record_once",
        "filters_choose_by_state_scope_key_and_age",
        "purge_deletes_all_expired_records_in_batches",
        "the_trail_can_be_filtered",
        "processes_and_hours_do_not_overwrite_each_other",
        "batches_in_different_orders_neither_deadlock_nor_share_a_key",
        "any_order_and_repetition_of_a_history_ends_in_the_same_state",
        "entities_with_a_value_are_listed_in_pages",
    ],
)
def test_calls_limited_to_two_items_continue_where_they_ended(
    what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In every other test, everything fits into one call."""
    for module in (upkeep, trail, counts):
        monkeypatch.setattr(module, "PAGE", 2)
    for name, module in (
        ("READS_PER_CALL", calls),
        ("WRITES_PER_CALL", calls),
        ("READS_PER_CALL", latest),
        ("MAX_BATCH", latest),
        ("IDS_PER_QUERY", calls),
    ):
        monkeypatch.setattr(module, name, 2)
    getattr(OnFirestore(), f"test_{what}")("blocking", tmp_path)


@pytest.mark.rival(18)
@pytest.mark.parametrize("shared", [False, True], ids=["each its own", "one for all"])
@pytest.mark.parametrize("mode", ["blocking", "asyncio"])
def test_answers_to_concurrent_requests_are_linearizable(mode: str, shared: bool, tmp_path: Path) -> None:
    """On the server's own clock. A settlement's time comes from an earlier answer, so it may be a little behind.

    On a busy machine, the store repeats a renewal that used an outdated time: both renewals take effect.
    """
    hooks = Hooks()
    history = storm(
        lambda: hooks.open(tmp_path, WallClock()),
        seed=18, workers=4, steps=25, keys=3, time_unit=MOMENT, mode=mode, shared=shared,
    )  # fmt: skip
    first_tries = [replace(one, answer=None) for one in history if isinstance(one.request, Renewal)]
    report = check([*history, *first_tries], tolerance=BEHIND)
    assert report.linearizable, str(report)
    assert report.overlapping, "no requests overlapped"
