"""The stores that are broken on purpose, under the same load: which of them a history betrays, and which it cannot."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from pathlib import Path

from msgspec import Struct

from onceward.protocol.ports import Clock
from onceward.protocol.record import Record
from onceward.stores.cached import CachedStore
from onceward.stores.memory.store import MemoryStore
from onceward.testing.clock import FakeClock
from onceward.testing.history import Operation, Report, check, storm
from tests.conformance import broken, broken_lookups, broken_ways
from tests.evidence.clocks import SharedClock
from tests.evidence.fleet import sail
from tests.evidence.runs import eager_threads
from tests.evidence.tiny import TinyStore

HOUR = 3_600_000_000
MONTH = 31 * 24 * HOUR

UNSEEN: dict[type[MemoryStore], str] = {
    broken.CompletesWhatItsOwnerHas: "the load's completions do not say what their owner has",
    broken.TrustsTheCarriedRecord: "the same",
    broken.WritesNothingWithOmitRecord: "the load's completions want to hear all",
    broken.CompletesAgainWithOmitRecord: "the same",
    broken.ReplaysWrite: "it writes what was there already, and no answer shows that",
    broken.IgnoresNewerVersions: "no request of this version makes a record of a newer one",
    broken_ways.InlineWithoutOwnerCheck: "the load asks by the verbs, never at once",
    broken_ways.InlineInTwoSteps: "as above",
    broken_ways.BatchJoinsOnTheKeyAlone: "the load keeps to the port: one request a key a batch",
    broken_ways.AnswersEmptyRequests: "the load asks for something in every batch",
    broken_ways.PurgesNothing: "to delete too little is not wrong, only wasteful",
    broken_ways.ScanSkipsAtPageEnds: "what a page leaves out is not recorded",
    broken_ways.ScanByOffset: "as above",
    broken_ways.ScanBeginsAnew: "as above",
    broken_ways.SortsWhatItFoundFirst: "as above",
    broken_ways.ScanIgnoresAge: "which records a page should hold is not looked at",
    broken_ways.CountsWithoutScopes: "counts are of many keys, and are not recorded",
    broken_ways.NotifiesNoWatcher: "to be woken is no answer",
    broken_ways.Nameless: "a name is no answer",
    broken_lookups.LookupReturnsNothing: "to show nothing is always right: the key is claimed then",
    broken_lookups.LookupIgnoresNewerVersions: "as IgnoresNewerVersions",
}
"""And why. The conformance kit sees these."""

IN_FILES = frozenset({broken_ways.UnlockedFiles})
"""Broken only among processes; `TinyStore` is the same mistake, in a database."""

SEEN = [
    kind
    for module in (broken, broken_ways, broken_lookups)
    for kind in vars(module).values()
    if isinstance(kind, type)
    and issubclass(kind, MemoryStore)
    and not kind.__subclasses__()
    and kind not in IN_FILES
    and kind not in UNSEEN
]


class Hunt(Struct, frozen=True):
    """How long it took: histories and operations recorded until one of them had no order, and what was said then."""

    histories: int
    operations: int
    report: Report

    @property
    def found(self) -> bool:
        return bool(self.report.violations)


def hunt(histories: Iterable[list[Operation]], *, tolerance: int = 0) -> Hunt:
    """Check one after the other until something is found."""
    recorded = operations = 0
    report = check([])
    for history in histories:
        recorded += 1
        operations += len(history)
        report = check(history, tolerance=tolerance)
        if report.violations:
            break
    return Hunt(recorded, operations, report)


def storms(kind: type[MemoryStore], *, seeds: int, mode: str = "blocking") -> Iterable[list[Operation]]:
    """On a fake clock: pauses cost nothing, and some of them last for hours or for a month, so that purges happen."""
    for seed in range(seeds):
        clock = FakeClock()

        async def pause(microseconds: int, clock: FakeClock = clock) -> None:
            long = MONTH if microseconds % 23 == 0 else HOUR + 1 if microseconds % 5 == 0 else 0
            clock.advance_microseconds(microseconds + long)

        store = kind(clock=clock)
        with eager_threads():
            yield storm(partial(_same, store), seed=seed, steps=100, keys=3, pause=pause, mode=mode)


def get_then_put_by_threads(folder: Path, *, seeds: int, locked: bool = False) -> Iterable[list[Operation]]:
    for seed in range(seeds):
        path, clock = folder / f"tiny {seed}.db", SharedClock()
        yield storm(partial(TinyStore, path, clock, locked=locked), seed=seed, steps=60, late_effects=False)


def get_then_put_by_processes(folder: Path, *, seeds: int) -> Iterable[list[Operation]]:
    for seed in range(seeds):
        place = folder / str(seed)
        place.mkdir()
        yield sail(place, "unlocked", seed, seconds=0.5, workers=4)[0]


def caches_that_see_no_forget(*, seeds: int) -> Iterable[list[Operation]]:
    """Not a bug but a choice, and documented: a cache of one's own does not see what others forget."""
    for seed in range(seeds):
        store = MemoryStore()
        with eager_threads():
            yield storm(partial(CachedStore, store, 10), seed=seed, steps=100)


class ShowsWhatItOnceShowed(MemoryStore):
    """Keeps what it was glanced at for the next glance, and does not look again."""

    def __init__(self, *, max_records: int | None = None, clock: Clock | None = None) -> None:
        super().__init__(max_records=max_records, clock=clock)
        self._shown: dict[bytes, Record] = {}

    def lookup(self, id: bytes, fingerprint: bytes) -> Record | None:
        shown = self._shown.get(id) or super().lookup(id, fingerprint)
        if shown is not None:
            self._shown[id] = shown
        return shown


def _same(store: MemoryStore) -> MemoryStore:
    return store
