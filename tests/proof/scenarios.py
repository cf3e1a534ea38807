"""What the clients of a search declare. The clock is small: a step is half a lease, and windows end after two."""

from __future__ import annotations

from typing import NamedTuple

from onceward.protocol.cells import KEEP_UNFINISHED
from onceward.protocol.record import AfterCrash
from onceward.protocol.requests import Validity

STEP = KEEP_UNFINISHED  # so that one step more than a lapse is also "nobody came back for 30 days"
LEASE = 2 * STEP
WINDOW = 2 * STEP
SAME, OTHER = b"\x01a", b"\x01b"


class Caller(NamedTuple):
    """What one client asks with."""

    after_crash: AfterCrash = AfterCrash.RERUN
    fingerprint: bytes = SAME
    max_attempts: int = 0
    lease: int | None = LEASE


class Scenario(NamedTuple):
    """The clients, how long their results answer, and what may go wrong beside crashes and the network.

    `clock`: it is set back and right again. `newer`: a newer version of Onceward rewrites the record.
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
    Scenario("for ever, beside a newer version", (RERUN, RERUN), validity=Validity(), newer=True),
)
"""What CI searches."""

DEEP = tuple(
    one._replace(name=f"{one.name}, three clients", callers=(*one.callers, one.callers[0]), clock=True)
    for one in SCENARIOS
)
"""What a soak searches: a third client comes along, and the clock is set back everywhere."""


def scenario(name: str) -> Scenario:
    return next(one for one in SCENARIOS if one.name == name)
