"""What somebody who sees every grant and every settlement expects, without knowing the table or the record.

`kept`: a result that was accepted, and until when it must be answered (None: for ever). `doubted`, `begun`: an earlier
attempt, or the current one, may have had its effect, was claimed under park or verify, and nobody said how it ended.
`cycle`: in which attempts may have called others under derived keys; `opened`: only the current attempt may have.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from onceward.protocol.record import AfterCrash, Record, RecordState
from onceward.protocol.requests import Complete, Fail, Release, Resolution, Resolve, Verdict

from .logic import Promise

REPLAYED = "what completed is replayed, never run again inside its window"
ASKED = "what may have happened under park or verify is never silently run again"
CYCLE = "derived keys stay the same until the window is over or somebody forgets the key"


class Observer(NamedTuple):
    kept: tuple[bytes, int | None] | None = None
    doubted: bool = False
    begun: bool = False
    cycle: int | None = None
    opened: bool = False

    def expects_of_claim(self, record: Record | None, verdict: Verdict, *, new: bool, over: bool) -> Iterator[Promise]:
        if self.kept is not None and verdict not in (Verdict.MISMATCH, Verdict.SKEW):
            yield REPLAYED, verdict is Verdict.REPLAY and record is not None and record.digest == self.kept[0]
        if new and record is not None and (self.doubted or self.begun):
            yield ASKED, record.ask_first
        if new and record is not None and not over and self.cycle is not None:
            yield CYCLE, record.cycle == self.cycle

    def after_claim(self, record: Record | None, verdict: Verdict, *, new: bool, over: bool, heard: bool) -> Observer:
        if record is None:
            return self
        if verdict is Verdict.REPLAY and record.slide and self.kept is not None:
            return self._replace(kept=(self.kept[0], record.valid_until))
        if verdict is not Verdict.ACQUIRED:
            return self
        begins = heard and record.after_crash is not AfterCrash.RERUN
        seen = self._replace(doubted=self.doubted or self.begun, begun=False, opened=False) if new else self
        if new and over:
            seen = seen._replace(cycle=None)
        if heard and seen.cycle != record.cycle:
            seen = seen._replace(cycle=record.cycle, opened=True)
        return seen._replace(begun=seen.begun or begins)

    def after_settlement(self, request: Any, record: Record | None, now: int) -> Observer:
        """The store accepted it, and the record changed."""
        if record is None:
            return self
        if isinstance(request, Complete) or (isinstance(request, Resolve) and request.resolution is Resolution.APPLIED):
            return Observer(kept=(request.digest, request.validity.end(now)))
        if isinstance(request, Release):
            return self._replace(begun=False, cycle=None if self.opened else self.cycle, opened=False)
        said = isinstance(request, Resolve) or (isinstance(request, Fail) and record.state is RecordState.FAILED)
        return self._replace(doubted=False, begun=False, opened=False) if said else self

    def at(self, now: int) -> Observer:
        """A window that the store's clock has once seen the end of is over."""
        over = self.kept is not None and self.kept[1] is not None and now >= self.kept[1]
        return self._replace(kept=None) if over else self
