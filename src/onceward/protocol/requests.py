"""Requests to a store, each for one key, and the store's answers.

Times are microseconds since 1970 on the *store's* clock. Durations are microseconds too.
"""

from __future__ import annotations

from enum import StrEnum

from msgspec import Struct

from .record import AfterCrash, Record, RecordState


class ClaimRequest(Struct, frozen=True, gc=False):
    """Ask to become the owner of a key. `lease` None is a claim inside the caller's own transaction."""

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
    """Extend the lease of a live owner, and optionally add a note."""

    id: bytes
    token: int
    nonce: bytes
    lease: int
    note: dict[str, str] = {}


class Settlement(Struct, frozen=True, gc=False):
    """End an ownership. The subclasses say how; these fields identify the owner."""

    id: bytes
    token: int
    nonce: bytes


class Validity(Struct, frozen=True, gc=False):
    """How long a settled record is valid: `lasting` from now, `until` a time, or (neither) forever."""

    lasting: int | None = None
    until: int | None = None
    slide: int = 0

    def end(self, now: int) -> int | None:
        if self.until is not None:
            return self.until
        return None if self.lasting is None else now + self.lasting


FOREVER = Validity()


class Complete(Settlement, frozen=True, gc=False):
    """The effect is done. `result` None with `stored` False means that its value was not stored."""

    result: bytes | None = None
    digest: bytes = b""
    stored: bool = True
    validity: Validity = FOREVER
    note: dict[str, str] = {}


class Fail(Settlement, frozen=True, gc=False):
    """The attempt failed. `known`: it is certain that the effect did not happen."""

    error_type: str = ""
    error: str = ""
    final: bool = False
    known: bool = False
    retry_in: int = 0
    max_attempts: int = 0
    validity: Validity = FOREVER
    note: dict[str, str] = {}


class Park(Settlement, frozen=True, gc=False):
    """The owner cannot tell whether the effect happened."""

    error_type: str = ""
    error: str = ""
    note: dict[str, str] = {}


class Release(Settlement, frozen=True, gc=False):
    """The work was not started: undo the claim."""


class Resolution(StrEnum):
    """How an operator resolves a record."""

    APPLIED = "applied"
    NOT_APPLIED = "not_applied"
    ABANDON = "abandon"


class Resolve(Struct, frozen=True, gc=False):
    """Resolve a parked record. Applies only if the record still has the token and the state that the operator saw.

    A PENDING or FAILED record can be resolved too. Its owner loses the key; a live owner only with `force`.
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
    """What the operator saw before deciding. The state matters too: a late owner completes under the same token."""

    token: int
    state: RecordState


class Verdict(StrEnum):
    """The store's decision on one request."""

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
    """The verdict, the current record (None if there is none), and the store's time.

    A store may leave the record out of the answer to a completion that succeeded: the owner has just sent the result,
    which may be large.
    """

    verdict: Verdict
    record: Record | None
    now: int


AnySettlement = Complete | Fail | Park | Release | Resolve
AnyRequest = ClaimRequest | Renewal | AnySettlement
