"""What goes through the pipes between the supervisor and its workers: a line of JSON each."""

from __future__ import annotations

from msgspec import MsgspecError, Struct, json

from .contract import Answer, Setting
from .errors import Trouble
from .traffic import Delivery

READY = 0  # the number of the answer that a worker gives unasked, once it has opened everything


START, BURY, PAUSE, WAKE = b"start", b"bury", b"pause", b"wake"
"""What a nursery is asked. The first is also its greeting; after the other greeting it is not asked for that."""
THREADS = b"threads"
"""The other greeting: it must not fork."""
LARGEST = 100  # bytes of such a message


class Answered(Struct, frozen=True):
    """An answer, and the number of the delivery that it is about."""

    number: int
    answer: Answer


def line(thing: Setting | Delivery | Answered) -> bytes:
    return json.encode(thing) + b"\n"


def setting(text: bytes) -> Setting:
    return json.decode(text, type=Setting)


def delivery(text: bytes) -> Delivery:
    return json.decode(text, type=Delivery)


def answered(text: bytes) -> Answered:
    try:
        return json.decode(text, type=Answered)
    except MsgspecError as error:
        said = text.decode(errors="replace")
        raise Trouble(f"a worker said {said}: a handler has to return an Answer, of a known kind ({error})") from error
