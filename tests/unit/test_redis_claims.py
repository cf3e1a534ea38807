"""How a claim is encoded for Redis: the server deletes an unfinished record only if nothing depends on it."""

from __future__ import annotations

from onceward.protocol.record import AfterCrash
from onceward.protocol.requests import ClaimRequest
from onceward.stores.redis.requests import ENCODERS

ID = bytes(32)


def lifetime(**settings: object) -> bytes:
    values = {"lease": 0, **settings}
    return ENCODERS[ClaimRequest](ClaimRequest(ID, "scope", "key", b"nonce", **values))[-1]  # type: ignore[arg-type]


def test_an_unfinished_record_lives_for_its_lease_30_days_and_the_clock_margin() -> None:
    days, hour = 30 * 24 * 3600 * 1000, 3600 * 1000
    assert lifetime(lease=0) == b"%d" % (days + hour + 1)
    assert lifetime(lease=5_000_000) == b"%d" % (days + hour + 5_001)


def test_a_claim_without_a_lease_never_expires_although_one_of_zero_does() -> None:
    assert lifetime(lease=0) != b""
    assert lifetime(lease=None) == b""


def test_a_record_that_decides_what_happens_after_a_crash_never_expires() -> None:
    assert lifetime(after_crash=AfterCrash.VERIFY) == b""
    assert lifetime(after_crash=AfterCrash.PARK) == b""
    assert lifetime(max_attempts=1) == b""
    assert lifetime(max_attempts=2) != b""
