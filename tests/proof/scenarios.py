"""The settings of the clients of a search. Time is coarse: a step is half a lease, and windows last two steps."""

from __future__ import annotations

from typing import NamedTuple

from onceward.protocol.cells import KEEP_UNFINISHED
from onceward.protocol.record import AfterCrash
from onceward.protocol.requests import Validity

STEP = KEEP_UNFINISHED  # so that one step after a lease expires is also 30 days without a retry
LEASE = 2 * STEP
WINDOW = 2 * STEP
SAME, OTHER = b"\x01a", b"\x01b"


class Caller(NamedTuple):
    """The settings of one client's claims."""

    after_crash: AfterCrash = AfterCrash.RERUN
    fingerprint: bytes = SAME
    max_attempts: int = 0
    lease: int | None = LEASE


class Scenario(NamedTuple):
    """The clients, how long their results are valid, and the faults besides crashes and the network.

    `clock`: the clock is set back and forward again. `newer`: a newer version of Onceward rewrites the record.
    """

    name: str
    callers: tuple[Caller, ...]
    validity: Validity = Validity(lasting=WINDOW)
    retry_in: int = 0
    clock: bool = False
    newer: bool = False


RERUN, VERIFY, PARK = Caller(), Caller(AfterCrash.VERIFY), Caller(AfterCrash.PARK)

SCENARIOS = (
    Scenario("rerun", (RERUN, RERUN)),
    Scenario("two attempts", (RERUN._replace(max_attempts=2),) * 2, retry_in=STEP, clock=True),
    Scenario("verify meets rerun", (VERIFY._replace(max_attempts=1), RERUN._replace(max_attempts=1))),
    Scenario("park meets rerun", (PARK, RERUN)),
    Scenario("park meets verify", (PARK, VERIFY)),
    Scenario("inside a transaction", (RERUN._replace(lease=None), RERUN)),
    Scenario("other payloads", (RERUN, RERUN._replace(fingerprint=OTHER))),
    Scenario("sliding window", (RERUN, RERUN), validity=Validity(lasting=WINDOW, slide=WINDOW)),
    Scenario("no expiry, with a newer version", (RERUN, RERUN), validity=Validity(), newer=True),
)
"""The scenarios that CI searches."""

DEEP = tuple(
    one._replace(name=f"{one.name}, three clients", callers=(*one.callers, one.callers[0]), clock=True)
    for one in SCENARIOS
)
"""The scenarios that the soak searches: with a third client, and the clock set back in all of them."""


def scenario(name: str) -> Scenario:
    return next(one for one in SCENARIOS if one.name == name)
