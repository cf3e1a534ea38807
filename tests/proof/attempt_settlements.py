"""The settlements that an attempt of the model sends, and what they make of the record."""

from __future__ import annotations

from typing import Any

from onceward.protocol.record import RecordState
from onceward.protocol.requests import Complete, Fail, Park, Release, Validity

from .attempt_world import WINDOW, Client
from .moves import ID

BECOMES: dict[type[Any], RecordState] = {
    Complete: RecordState.COMPLETED,
    Fail: RecordState.FAILED,
    Park: RecordState.PARKED,
    Release: RecordState.FREE,
}


def settlement(verb: str, client: Client) -> Any:
    token, nonce, validity = client.token, client.nonce, Validity(lasting=WINDOW)
    match verb:
        case "complete" | "complete otherwise":
            return Complete(ID, token, nonce, digest=verb.encode(), validity=validity)
        case "park":
            return Park(ID, token, nonce)
        case "release":
            return Release(ID, token, nonce)
    known = verb != "fail, effect unknown"
    return Fail(ID, token, nonce, final=verb == "fail for good", known=known, validity=validity)
