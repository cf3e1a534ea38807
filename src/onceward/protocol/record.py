"""The record: what the store holds under (scope, key).

Times are microseconds since 1970 on the *store's* clock. Durations are microseconds too.
"""

from __future__ import annotations

from enum import IntEnum, StrEnum
from typing import Protocol

from msgspec import Struct, field

NO_OWNER = b""
"""The nonce of a record without an owner."""


READER = 1
"""The latest record layout that this code understands. Records with a higher `min_reader` are left alone."""


class RecordState(StrEnum):
    """What is known about the work under a key."""

    FREE = "FREE"
    """No work: only the last token is kept, so that the next owner gets a larger one."""
    PENDING = "PENDING"
    """A worker owns the key. It is processing the work, or it stopped renewing its lease."""
    COMPLETED = "COMPLETED"
    """The effect happened. Deliveries get the stored result until the window ends."""
    FAILED = "FAILED"
    """The last attempt failed: for good (final), or until its retry is due."""
    PARKED = "PARKED"
    """It is unknown whether the effect happened. Nothing runs until an operator resolves the key."""


class AfterCrash(IntEnum):
    """What to do after a lease has expired, from the most lenient to the strictest."""

    RERUN = 0
    VERIFY = 1
    PARK = 2


class Record(Struct, frozen=True, gc=False):
    """What the store holds under (scope, key).

    - `token`, `nonce`: the fencing number of the last ownership, and the claim call that acquired it.
    - `cycle`: the life of the key that `attempt` counts in; part of every derived key.
    - `arguments`: a short hash per argument, so that a mismatch can name those that differ.
    - `ask_first`: the owner must verify whether an earlier attempt took effect before it runs the handler.
    - `released`: the last owner gave the key up before its handler began.
    - `result`, `digest`, `stored`: the encoded result, the hash of its value, and whether a result was kept at all.
    - `final`: a failure that is not retried. `retry_at`: when a failure may be retried.
    - `valid_until`, `slide`: the end of the window, and by how much a replay extends it.
    """

    id: bytes
    scope: str
    key: str
    state: RecordState
    token: int
    nonce: bytes = NO_OWNER
    cycle: int = 0
    attempt: int = 0
    created_at: int = 0
    claimed_at: int = 0
    updated_at: int = 0
    renewed_at: int = 0
    lease_until: int | None = None
    after_crash: AfterCrash = AfterCrash.RERUN
    max_attempts: int = 0
    fingerprint: bytes = b""
    arguments: dict[str, str] = field(default_factory=dict)
    owner: str = ""
    note: dict[str, str] = field(default_factory=dict)
    ask_first: bool = False
    released: bool = False
    result: bytes | None = None
    digest: bytes = b""
    stored: bool = True
    error_type: str = ""
    error: str = ""
    final: bool = False
    retry_at: int | None = None
    valid_until: int | None = None
    slide: int = 0
    min_reader: int = READER


class CompletedRecord(Protocol):
    """The fields of a COMPLETED record that a replay needs."""

    @property
    def state(self) -> RecordState: ...
    @property
    def token(self) -> int: ...
    @property
    def cycle(self) -> int: ...
    @property
    def attempt(self) -> int: ...
    @property
    def fingerprint(self) -> bytes: ...
    @property
    def result(self) -> bytes | None: ...
    @property
    def stored(self) -> bool: ...
    @property
    def valid_until(self) -> int | None: ...
    @property
    def slide(self) -> int: ...
    @property
    def owner(self) -> str: ...
    @property
    def min_reader(self) -> int: ...
