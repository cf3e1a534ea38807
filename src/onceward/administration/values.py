"""Decode stored results and inputs for people, without the application's classes, and with secrets hidden."""

from __future__ import annotations

from typing import Any

from onceward.errors import OncewardError
from onceward.protocol.record import Record
from onceward.protocol.unstored import unstored_reason
from onceward.results.codec import Codec
from onceward.results.stored_input import INPUT_PART, stored_input_bytes

from .json_values import as_json
from .model import StoredValue
from .redaction import Redaction

NOT_REQUESTED = "hidden; show it on request"


def stored_result(record: Record, codec: Codec, redaction: Redaction, *, show: bool) -> StoredValue:
    """Return the stored result; its value only with `show`."""
    if record.result is None:
        return StoredValue(0, problem=unstored_reason(record.note) or "no result is stored")
    return decoded(record.result, codec, redaction, (record.id, record.cycle), show=show)


def stored_input(record: Record, codec: Codec, redaction: Redaction, *, show: bool) -> StoredValue:
    """Return the stored arguments as `{"args": […], "kwargs": {…}}`; only with `show`."""
    try:
        data = stored_input_bytes(record.note)
    except OncewardError as error:
        return StoredValue(0, problem=str(error))
    if not data:
        return StoredValue(0, problem="no input is stored")
    found = decoded(data, codec, redaction, (record.id + INPUT_PART, 0), show=show)
    if isinstance(found.value, list) and len(found.value) == len(("args", "kwargs")):
        return StoredValue(found.size, {"args": found.value[0], "kwargs": found.value[1]})
    return found


def decoded(data: bytes, codec: Codec, redaction: Redaction, place: tuple[bytes, int], *, show: bool) -> StoredValue:
    """Return the decoded value; only its size without `show`."""
    if not show:
        return StoredValue(len(data), problem=NOT_REQUESTED)
    try:
        value: Any = codec.decode(data, *place)
    except OncewardError as error:
        return StoredValue(len(data), problem=f"cannot be decoded: {error}")
    return StoredValue(len(data), redaction.apply(as_json(value)))
