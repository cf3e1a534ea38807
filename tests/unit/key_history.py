"""One key and its history, for tests that go through it step by step."""

from __future__ import annotations

from typing import Any

from onceward.protocol.record import Record
from onceward.protocol.requests import ClaimRequest, ExpectedRecord, Renewal, Resolution, Resolve, Verdict
from onceward.protocol.transitions import claim, forget, renew, settle

SECOND = 1_000_000
LEASE = 600 * SECOND
HOUR = 3600 * SECOND
NOON = 1_800_000_000 * SECOND


class Key:
    """One record and the calls on it. The verdict of every answer is checked."""

    def __init__(self, now: int = NOON) -> None:
        self.record: Record | None = None
        self.now = now

    @property
    def is_(self) -> Record:
        assert self.record is not None
        return self.record

    def claim(self, nonce: bytes, expected: Verdict = Verdict.ACQUIRED, **settings: Any) -> Record:
        asked: dict[str, Any] = {"lease": LEASE, **settings}
        request = ClaimRequest(id=b"id", scope="s", key="k", nonce=nonce, **asked)
        self.record, verdict = claim(self.record, request, self.now)
        assert verdict is expected
        return self.record

    def settle(self, kind: type[Any], grant: Record, expected: Verdict = Verdict.OK, **settings: Any) -> Record:
        request = kind(id=b"id", token=grant.token, nonce=grant.nonce, **settings)
        self.record, verdict = settle(self.record, request, self.now)
        assert verdict is expected
        return self.is_

    def renew(self, grant: Record, expected: Verdict = Verdict.OK) -> Record:
        self.record, verdict = renew(self.record, Renewal(b"id", grant.token, grant.nonce, LEASE), self.now)
        assert verdict is expected
        return self.is_

    def resolve(self, seen: int, how: Resolution, expected: Verdict = Verdict.OK, **settings: Any) -> Record:
        self.record, verdict = settle(self.record, Resolve(b"id", seen, how, **settings), self.now)
        assert verdict is expected
        return self.is_

    def forget(
        self, expected: Verdict = Verdict.OK, *, force: bool = False, seen: ExpectedRecord | None = None
    ) -> None:
        self.record, verdict = forget(self.record, self.now, force=force, seen=seen)
        assert verdict is expected
