"""What a caller may ask of a store, one request for one key, and how the store answers.

Times are microseconds since 1970 on the *store's* clock. Durations are microseconds too.
"""

from __future__ import annotations

from enum import StrEnum

from msgspec import Struct

from .record import AfterCrash, Record, RecordState


class ClaimRequest(Struct, frozen=True, gc=False):
    """Make me the owner of this key. `lease` None is a claim inside the caller's own transaction."""

    id: bytes
    scope: str
    key: str
    nonce: bytes
    lease: int | None
    fingerprint: bytes = b""
    arguments: dict[str, str] = {}
    after_crash: AfterCrash = AfterCrash.RERUN
    max_attempts: int = 0
    owner: str = ""
    note: dict[str, str] = {}


class Renewal(Struct, frozen=True, gc=False):
    """I am alive: extends the lease, and may leave a note."""

    id: bytes
    token: int
    nonce: bytes
    lease: int
    note: dict[str, str] = {}


class Settlement(Struct, frozen=True, gc=False):
    """How an ownership ends. The subclasses say how; this part says whose it is."""

    id: bytes
    token: int
    nonce: bytes


class Validity(Struct, frozen=True, gc=False):
    """How long a settled record answers: for a while from now, until an instant, or (neither) for ever."""

    lasting: int | None = None
    until: int | None = None
    slide: int = 0

    def end(self, now: int) -> int | None:
        if self.until is not None:
            return self.until
        return None if self.lasting is None else now + self.lasting


FOREVER = Validity()


class Complete(Settlement, frozen=True, gc=False):
    """The effect is done. `result` None with `stored` False means that its value was not kept.

    `of` is the record as its owner has it. It is not sent: a store that finds nothing else changed need only say when
    it was completed, and the answer is made of this. `omit_record`: then OK is all that its owner wants to hear, and the
    answer may come without a record.
    """

    result: bytes | None = None
    digest: bytes = b""
    stored: bool = True
    validity: Validity = FOREVER
    note: dict[str, str] = {}
    of: Record | None = None
    omit_record: bool = False


class Fail(Settlement, frozen=True, gc=False):
    """The attempt failed. `known` says that the effect certainly did not happen."""

    error_type: str = ""
    error: str = ""
    final: bool = False
    known: bool = False
    retry_in: int = 0
    max_attempts: int = 0
    validity: Validity = FOREVER
    note: dict[str, str] = {}


class Park(Settlement, frozen=True, gc=False):
    """Nobody here can tell whether the effect happened."""

    error_type: str = ""
    error: str = ""
    note: dict[str, str] = {}


class Release(Settlement, frozen=True, gc=False):
    """The effect was not begun: as if never claimed."""


class Resolution(StrEnum):
    """What somebody who knows says about a parked record."""

    APPLIED = "applied"
    NOT_APPLIED = "not_applied"
    ABANDON = "abandon"


class Resolve(Struct, frozen=True, gc=False):
    """The way out of PARKED: holds only if the record still has the token and the state that were seen.

    Whoever saw it PENDING or FAILED may resolve that, too: its owner is cut off, a live one only by `force`.
    """

    id: bytes
    token_seen: int
    resolution: Resolution
    result: bytes | None = None
    digest: bytes = b""
    stored: bool = True
    validity: Validity = FOREVER
    note: dict[str, str] = {}
    state_seen: RecordState = RecordState.PARKED
    force: bool = False


class ExpectedRecord(Struct, frozen=True):
    """What somebody saw before deciding. The state counts too: a late owner completes under the same token."""

    token: int
    state: RecordState


class Verdict(StrEnum):
    """What the store says to one request."""

    ACQUIRED = "acquired"
    REPLAY = "replay"
    RUNNING = "running"
    MISMATCH = "mismatch"
    FAILED = "failed"
    PARKED = "parked"
    SETTLED = "settled"
    OK = "ok"
    LOST = "lost"
    CONFLICT = "conflict"
    REFUSED = "refused"
    ABSENT = "absent"
    SKEW = "skew"


class Answer(Struct, frozen=True, gc=False):
    """Verdict, the record as it is now (None if there is none), and the store's time."""

    verdict: Verdict
    record: Record | None
    now: int


AnySettlement = Complete | Fail | Park | Release | Resolve
AnyRequest = ClaimRequest | Renewal | AnySettlement
