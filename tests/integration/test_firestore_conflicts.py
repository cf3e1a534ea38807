"""Writers that interfere on Firestore: a write takes effect only on the version of the document that was read."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from onceward import Once
from onceward.latest import Ordering
from onceward.protocol.requests import ClaimRequest, Verdict
from onceward.runtime.threads import ThreadRuntime, run
from onceward.stores.firestore import FirestoreStore
from tests.firestore_backends import PROJECT, named
from tests.servers.firestore import EMULATOR, shared
from tests.servers.firestore_tap import Tap, tapped

ID = bytes(range(32))
LEASE = 600_000_000


class Writers(NamedTuple):
    """Two stores on the same collection. What the slow one sends can be delayed."""

    tap: Tap
    slow: FirestoreStore
    fast: FirestoreStore

    def before_the_next_commit(self, call: Callable[[], object]) -> None:
        """Call this after the slow store has read and before it writes."""
        pending = [call]

        def before(method: str) -> None:
            if method == "Commit" and pending:
                pending.pop()()

        self.tap.before = before


@pytest.fixture
def writers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Writers]:
    address = f"firestore://{PROJECT}/{named(tmp_path, 'conflicts')}"
    direct = shared()
    with tapped(direct) as (tap, proxy):
        stores = []
        for server in (proxy, direct):
            monkeypatch.setenv(EMULATOR, server)
            stores.append(FirestoreStore(address))
            run(stores[-1].open(ThreadRuntime()))
        yield Writers(tap, *stores)
        for store in stores:
            run(store.close())


def claim(store: FirestoreStore, nonce: bytes, lease: int = LEASE) -> Verdict:
    [answer] = run(store.claim([ClaimRequest(ID, "s", "k", nonce * 16, lease)], timeout=20))
    return answer.verdict


@pytest.mark.mission("A3")
@pytest.mark.parametrize("expired", [False, True])
def test_a_worker_that_is_overtaken_between_its_read_and_its_write_does_not_acquire(
    writers: Writers, *, expired: bool
) -> None:
    """Both have read that the document is free: that it does not exist, or that its lock has expired."""
    if expired:
        assert claim(writers.fast, b"c", lease=1) is Verdict.ACQUIRED
    verdicts: list[Verdict] = []
    writers.before_the_next_commit(lambda: verdicts.append(claim(writers.fast, b"f")))
    assert claim(writers.slow, b"s") is Verdict.RUNNING
    assert verdicts == [Verdict.ACQUIRED]
    [seen] = run(writers.fast.read([ID], timeout=20))
    assert seen.record is not None
    assert seen.record.nonce == b"f" * 16


@pytest.mark.mission("E2", "E6")
@pytest.mark.parametrize("known", [False, True])
def test_an_event_that_is_overtaken_between_its_read_and_its_write_is_stale(writers: Writers, *, known: bool) -> None:
    """The mark of the message and the state are written together, on what was read, or not at all."""
    with Once(writers.fast) as fast, Once(writers.slow) as slow:

        def apply(once: Once, minute: int) -> str:
            ordering = Ordering(f"2026-03-01T08:{minute:02}:00Z", None, None, f"m{minute}")
            return str(once.state("services").apply("prod__api", ordering, minute).reason)

        if known:
            assert apply(fast, 1) == "applied"
        reasons: list[str] = []
        writers.before_the_next_commit(lambda: reasons.append(apply(fast, 6)))
        assert apply(slow, 5) == "stale_event_ignored"
        assert reasons == ["applied"]
        assert fast.state("services").get("prod__api") == 6
        assert apply(fast, 5) == "duplicate_message_noop", "the stale event claimed its message"
