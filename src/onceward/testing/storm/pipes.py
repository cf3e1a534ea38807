"""Messages between the supervisor and its workers (one line of JSON each), and to the fork server."""

from __future__ import annotations

from msgspec import MsgspecError, Struct, json

from .contract import HandlerResult, StormSetting, Trouble
from .traffic import StormDelivery

READY = 0  # the delivery number of the message that a worker sends when it has opened everything

START, WAIT, PAUSE, RESUME = b"start", b"wait", b"pause", b"resume"
"""Requests to the fork server. START is also its greeting."""
MAX_MESSAGE = 100  # bytes of such a message


class DeliveryResult(Struct, frozen=True):
    """A handler result with the number of its delivery."""

    number: int
    result: HandlerResult


def encode_line(thing: StormSetting | StormDelivery | DeliveryResult) -> bytes:
    return json.encode(thing) + b"\n"


def decode_result(text: bytes) -> DeliveryResult:
    try:
        return json.decode(text, type=DeliveryResult)
    except MsgspecError as error:
        shown = text.decode(errors="replace")
        raise Trouble(
            f"a worker sent {shown}: a handler must return a HandlerResult with a known kind ({error})"
        ) from error
