"""The stores that are broken on purpose, under the same load: which bugs a history can show, and which it cannot."""

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
from tests.evidence.fleet import run_fleet
from tests.evidence.runs import eager_threads
from tests.evidence.tiny import TinyStore

HOUR = 3_600_000_000
MONTH = 31 * 24 * HOUR

UNDETECTABLE: dict[type[MemoryStore], str] = {
    broken.ReplaysWrite: "it writes the same record again, and no answer shows that",
    broken.IgnoresNewerVersions: "no request of this version creates a record of a newer one",
    broken_ways.LacksCapability: "the load sends only the verbs of the port",
    broken_ways.BatchJoinsOnTheKeyAlone: "the load follows the port's rule: one request per key in a batch",
    broken_ways.AnswersEmptyRequests: "the load sends no empty batch",
    broken_ways.PurgesNothing: "deleting too little is not wrong, only wasteful",
    broken_ways.ScanSkipsAtPageEnds: "a missing record of a page is not recorded",
    broken_ways.ScanByOffset: "as above",
    broken_ways.ScanBeginsAnew: "as above",
    broken_ways.SortsWhatItFoundFirst: "as above",
    broken_ways.ScanIgnoresAge: "the filter of a page is not checked",
    broken_ways.CountsWithoutScopes: "counts are about many keys, and are not recorded",
    broken_ways.NotifiesNoWatcher: "notifications are not recorded",
    broken_ways.Nameless: "names are not recorded",
    broken_lookups.LookupReturnsNothing: "returning nothing is always right: then the key is claimed",
    broken_lookups.LookupIgnoresNewerVersions: "as IgnoresNewerVersions",
}
"""Bugs that a history cannot show, and why. The conformance kit catches them."""

IN_FILES = frozenset({broken_ways.UnlockedFiles})
"""Broken only among processes; `TinyStore` is the same mistake, in a database."""

DETECTABLE = [
    kind
    for module in (broken, broken_ways, broken_lookups)
    for kind in vars(module).values()
    if isinstance(kind, type)
    and issubclass(kind, MemoryStore)
    and not kind.__subclasses__()
    and kind not in IN_FILES
    and kind not in UNDETECTABLE
]


class Hunt(Struct, frozen=True):
    """The histories and operations recorded until one had no order, and the report about it."""

    histories: int
    operations: int
    report: Report

    @property
    def found(self) -> bool:
        return bool(self.report.violations)


def hunt(histories: Iterable[list[Operation]], *, tolerance: int = 0) -> Hunt:
    """Check one history after the other until a violation is found."""
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
    """Use a fake clock: pauses cost nothing, and some last for hours or a month, so that purges happen."""
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
        yield run_fleet(place, "unlocked", seed, seconds=0.5, workers=4)[0]


def caches_that_miss_a_forget(*, seeds: int) -> Iterable[list[Operation]]:
    """A documented limitation, not a bug: a local cache does not see what others forget."""
    for seed in range(seeds):
        store = MemoryStore()
        with eager_threads():
            yield storm(partial(CachedStore, store, 10), seed=seed, steps=100)


class CachesLookupsWithoutLimit(MemoryStore):
    """Caches the result of a lookup, and never checks it again."""

    def __init__(self, *, max_records: int | None = None, clock: Clock | None = None) -> None:
        super().__init__(max_records=max_records, clock=clock)
        self._shown: dict[bytes, Record] = {}

    def lookup_completed(self, id: bytes, fingerprint: bytes, /) -> Record | None:
        shown = self._shown.get(id) or super().lookup_completed(id, fingerprint)
        if shown is not None:
            self._shown[id] = shown
        return shown


def _same(store: MemoryStore) -> MemoryStore:
    return store
