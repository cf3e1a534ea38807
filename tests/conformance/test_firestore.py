"""The whole kit on Firestore's emulator, in fake time; and what is about time on the server's own clock."""

from __future__ import annotations

from typing import Any

import pytest

from onceward.stores.firestore import calls, counts, newest, trail, upkeep
from onceward.testing.conformance.auditing import AuditChecks
from onceward.testing.conformance.counting import CountChecks
from onceward.testing.conformance.fencing import FencingChecks
from onceward.testing.conformance.reading import ReadingChecks
from onceward.testing.conformance.replies import ReplyChecks
from onceward.testing.conformance.windows import WindowChecks
from tests.conformance.on_firestore import Hooks, OnFirestore

IN_ONE_COLOUR = {
    "test_processes_on_one_place_never_own_a_key_at_the_same_time": "blocking",
    "test_processes_that_deliver_a_history_end_in_the_same_state": "asyncio",
}
"""Each of these starts three interpreters, which take a second to load Google's client."""


class TestFirestore(OnFirestore):
    """In fake time, so that every check runs."""

    def pytest_generate_tests(self, metafunc: Any) -> None:
        only = IN_ONE_COLOUR.get(metafunc.function.__name__)
        if only is None:
            super().pytest_generate_tests(metafunc)
        else:
            metafunc.parametrize("colour", [only])


class TestFirestoreInItsOwnTime(Hooks, FencingChecks, ReplyChecks, WindowChecks):
    """The read time of a get is the clock. How calls get there was seen above, in both colours."""

    fake_clock = False

    def pytest_generate_tests(self, metafunc: Any) -> None:
        if "colour" in metafunc.fixturenames:
            metafunc.parametrize("colour", ["asyncio"])


class TestFirestoreInSmallPages(Hooks, ReadingChecks, AuditChecks, CountChecks):
    """What is asked about many comes page by page: here each holds two documents."""

    many = 5
    test_a_signed_purge_is_one_entry_that_counts: Any = None  # it is one a page, committed with what the page lost

    @pytest.fixture(autouse=True)
    def _pages(self, monkeypatch: pytest.MonkeyPatch) -> None:
        for module in (upkeep, trail, counts):
            monkeypatch.setattr(module, "PAGE", 2)
        for module in (calls, newest):
            monkeypatch.setattr(module, "LOOKS", 2)

    def pytest_generate_tests(self, metafunc: Any) -> None:
        if "colour" in metafunc.fixturenames:
            metafunc.parametrize("colour", ["blocking"])
