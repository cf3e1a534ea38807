"""What the search and the proof reason about: one record, three clocks, and the grants that clients were given."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from onceward.protocol import transitions
from onceward.protocol.record import Record
from onceward.protocol.requests import ClaimRequest, Renewal, Verdict

Step = tuple[Record | None, Verdict]


class Rules(NamedTuple):
    """The functions under test: the shipped table, or one with a single rule broken."""

    claim: Callable[[Record | None, ClaimRequest, int], Step] = transitions.claim
    renew: Callable[[Record | None, Renewal, int], Step] = transitions.renew
    settle: Callable[[Record | None, Any, int], Step] = transitions.settle
    forget: Callable[..., Step] = transitions.forget
    purgeable: Callable[[Record, int], Any] = transitions.purgeable


SHIPPED = Rules()


class Grant(NamedTuple):
    """One call of a client, and what it was granted.

    `ends` is when the client's own clock says that its lease is over, counted from before it first asked; `unending`:
    it asked for no lease. `heard`: the grant reached it. `ended`: it has settled, given up or died, and works no more.
    """

    token: Any
    nonce: Any
    lease: Any
    ends: Any
    unending: Any
    issued: Any
    heard: Any
    ended: Any


class World(NamedTuple):
    """`now` is the store's clock, `peak` the highest that it ever showed, `real` the time that clients count in.

    `highest` is the largest token ever; `jumped` says that the store's clock once ran ahead of real time.
    """

    record: Record | None
    now: Any
    peak: Any
    real: Any
    jumped: Any
    highest: Any
    grants: tuple[Grant, ...]


class Broken(Exception):
    """A promise does not hold."""

    def __init__(self, promise: str, label: str) -> None:
        super().__init__(promise)
        self.promise = promise
        self.label = label
