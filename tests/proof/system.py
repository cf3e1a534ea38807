"""The model that the search and the proof reason about: one record, three clocks, and the clients' grants."""

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
    """One call of a client, and its grant.

    `ends`: when the lease ends by the client's own clock, counted from before its first request; `unending`: it
    requested no lease. `received`: the grant reached the client. `ended`: it has settled, given up or crashed.
    """

    token: Any
    nonce: Any
    lease: Any
    ends: Any
    unending: Any
    issued: Any
    received: Any
    ended: Any


class SystemState(NamedTuple):
    """`now` is the store's clock, `peak` its highest value so far, `real` the clock of the clients.

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
