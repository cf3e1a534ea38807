"""What an observer that sees every grant and every settlement expects, without knowing the table or the record.

`kept`: a result that was accepted, and until when it must be replayed (None: no expiry). `doubted`, `begun`: an earlier
attempt, or the current one, was claimed under park or verify, may have had its effect, and did not report its outcome.
`cycle`: the cycle whose attempts may have used derived keys; `opened`: only the current attempt may have used them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from onceward.protocol.record import AfterCrash, Record, RecordState
from onceward.protocol.requests import Complete, Fail, Release, Resolution, Resolve, Verdict

from .logic import Promise

REPLAYED = "a completed call is replayed, never run again, inside its window"
ASKED = "an effect that may have happened under park or verify is never silently repeated"
CYCLE = "derived keys stay the same until the window ends or the key is forgotten"


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

    def after_claim(
        self, record: Record | None, verdict: Verdict, *, new: bool, over: bool, received: bool
    ) -> Observer:
        if record is None:
            return self
        if verdict is Verdict.REPLAY and record.slide and self.kept is not None:
            return self._replace(kept=(self.kept[0], record.valid_until))
        if verdict is not Verdict.ACQUIRED:
            return self
        begins = received and record.after_crash is not AfterCrash.RERUN
        seen = self._replace(doubted=self.doubted or self.begun, begun=False, opened=False) if new else self
        if new and over:
            seen = seen._replace(cycle=None)
        if received and seen.cycle != record.cycle:
            seen = seen._replace(cycle=record.cycle, opened=True)
        return seen._replace(begun=seen.begun or begins)

    def after_settlement(self, request: Any, record: Record | None, now: int) -> Observer:
        """Update the expectations after the store accepted a settlement and the record changed."""
        if record is None:
            return self
        if isinstance(request, Complete) or (isinstance(request, Resolve) and request.resolution is Resolution.APPLIED):
            return Observer(kept=(request.digest, request.validity.end(now)))
        if isinstance(request, Release):
            return self._replace(begun=False, cycle=None if self.opened else self.cycle, opened=False)
        said = isinstance(request, Resolve) or (isinstance(request, Fail) and record.state is RecordState.FAILED)
        return self._replace(doubted=False, begun=False, opened=False) if said else self

    def at(self, now: int) -> Observer:
        """Drop the kept result as soon as the store's clock has reached the end of its window."""
        over = self.kept is not None and self.kept[1] is not None and now >= self.kept[1]
        return self._replace(kept=None) if over else self
