"""Records as documents and back. Only what changed is written: what others keep in the document stays.

A document without our own fields, as a lock that was written by hand before, is read by those that it has: a status
and the times. So a collection can be taken over as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from onceward.errors import ConfigurationError, StoreBroken
from onceward.protocol.cells import KEEP_UNFINISHED, attempts_used_up
from onceward.protocol.record import READER, AfterCrash, Record, RecordState
from onceward.protocol.requests import ClaimRequest
from onceward.protocol.transitions import CLOCK_MARGIN

from . import values
from .layout import REST, Layout, Path
from .values import NOTHING, MapValue, Value, plain

Fields = Mapping[str, Any]
"""Of a document, as the messages have them."""

Changes = dict[Path, Any]
"""By where they stand: what is to be written."""

NOT_OURS: Final = 0
"""The token of a record that was read from a document which Onceward did not write."""

_NULLABLE: Final = frozenset({"error", "error_type"})  # texts that are shown as null while there is none
_json = msgspec.json.Encoder(order="deterministic").encode
_mapping = msgspec.json.Decoder(dict[str, str]).decode


def _text_or_null(words: str) -> Any:
    return values.text(words) if words else NOTHING


def _bytes(data: bytes | None) -> Any:
    return NOTHING if data is None else Value(bytes_value=data)


def _flag(value: bool) -> Any:  # noqa: FBT001 (the value of a field)
    return Value(boolean_value=value)


def _words(words: Mapping[str, str]) -> Any:
    """A map, which can be read and searched; as one text if a name cannot be the name of a member."""
    plainly = {values.spelled_out(name): values.spelled_out(value) for name, value in words.items()}
    if all(map(values.is_member, plainly)):
        return Value(map_value=MapValue(fields={name: values.text(value) for name, value in plainly.items()}))
    return Value(bytes_value=_json(plainly))


_ENCODERS: Final[dict[str, Callable[[Any], Any]]] = {
    **dict.fromkeys(("id", "nonce", "fingerprint", "digest", "result"), _bytes),
    **dict.fromkeys(("scope", "key", "owner", "state"), values.text),
    **dict.fromkeys(_NULLABLE, _text_or_null),
    **dict.fromkeys(("token", "cycle", "attempt", "after_crash", "max_attempts", "slide", "min_reader"), values.number),
    **dict.fromkeys(
        ("created_at", "claimed_at", "updated_at", "renewed_at", "lease_until", "retry_at", "valid_until"), values.time
    ),
    **dict.fromkeys(("ask_first", "released", "stored", "final"), _flag),
    **dict.fromkeys(("arguments", "note"), _words),
}


_TYPES: Final[dict[str, type]] = {
    name: kind
    for encode, kind in (
        (_bytes, bytes), (values.text, str), (_text_or_null, str), (values.number, int), (values.time, int),
        (_flag, bool), (_words, dict),
    )
    for name, own in _ENCODERS.items()
    if own is encode
}  # fmt: skip


_TIMES: Final = tuple(name for name, encode in _ENCODERS.items() if encode is values.time)


class Records:
    """Records in documents of one layout."""

    def __init__(self, layout: Layout) -> None:
        self.paths = layout.paths()
        self.expiry: Path = (layout.expiry,)
        self._notes = layout.notes

    def path(self, field: str) -> str:
        """As queries name it."""
        return ".".join(self.paths[field])

    # ── writing ──

    def changes(self, before: Record | None, after: Record) -> Changes:
        """What has to be written so that the document says this instead of that."""
        made: Changes = {}
        if before is not None and before.token == NOT_OURS:
            before = None  # it lacks most of it
        for field, path in self.paths.items():
            value = getattr(after, field)
            if before is None or value != getattr(before, field):
                made[path] = _ENCODERS[field](self._others(value) if field == "note" else value)
        if before is None or before.note != after.note:
            for name in self._notes:
                made[name,] = _text_or_null(after.note.get(name, ""))
        end = expires(after)
        if before is None or end != expires(before):
            made[self.expiry] = values.time(end)
        return made

    def _others(self, note: Mapping[str, str]) -> dict[str, str]:
        """The notes that have no field of their own. An empty one has: a field that is null means none."""
        return {name: value for name, value in note.items() if name not in self._notes or not value}

    # ── reading ──

    def record(self, id: bytes, fields: Fields) -> Record:
        """The record in a document. `id`: whose it is if it does not say so itself."""
        rest = plain(fields[REST]) if REST in fields else {}
        rest = rest if isinstance(rest, dict) else {}
        found = {field: _at(path, fields, rest) for field, path in self.paths.items()}
        adopted = found["token"] is None
        known = {field: value for field, value in found.items() if value is not None}
        known.setdefault("id", id)
        try:
            return self._read(known, fields, adopted=adopted)
        except (KeyError, TypeError, ValueError, msgspec.DecodeError) as error:
            return _stranger(known, error)

    def _read(self, known: dict[str, Any], fields: Fields, *, adopted: bool) -> Record:
        known["state"] = RecordState(known["state"])
        known["after_crash"] = AfterCrash(known.get("after_crash", 0))
        for name in ("arguments", "note"):
            words = known.get(name, {})
            known[name] = _mapping(words) if isinstance(words, bytes) else _texts(words)
        for name in _TIMES:
            path = self.paths[name]
            if len(path) == 1 and path[0] in fields and _is_guess(fields[path[0]]):
                raise TypeError(f"{path[0]} is a number, and may be seconds or milliseconds")
        for name in self._notes:
            shown = plain(fields[name]) if name in fields else None
            if shown is not None:
                known["note"] = {**known["note"], name: str(shown)}
        if adopted:
            known = {**known, "token": NOT_OURS, "stored": False}
        for name, value in known.items():
            if not isinstance(value, _TYPES[name]) or (isinstance(value, bool) and _TYPES[name] is int):
                raise TypeError(f"{name} is {type(value).__name__}")
        return Record(**{"scope": "", "key": "", **known})

    def claimed(self, request: ClaimRequest, fields: Fields, store: str) -> Record:
        """The record that a claim finds in its document."""
        record = self.record(request.id, fields)
        if record.id != request.id:
            raise ConfigurationError(
                f"{store}: this content is on record for {record.scope}, and a document has room for one",
                key=request.key,
                hint="give each operation that works on contents a collection of its own",
            )
        if record.token == NOT_OURS:
            return replace(record, scope=request.scope, key=request.key)
        return record

    def owner_of(self, fields: Fields) -> bytes | None:
        """The id of the record that a document holds; None if it does not say."""
        rest = fields[REST].map_value.fields if REST in fields else {}
        return bytes(rest["id"].bytes_value) if "id" in rest else None


def _at(path: Path, fields: Fields, rest: Mapping[str, Any]) -> Any:
    if path[0] == REST:
        return rest.get(path[1])
    return plain(fields[path[0]]) if path[0] in fields else None


def _texts(words: Any) -> Any:
    """Somebody may have written a number among the notes."""
    return {name: str(said) for name, said in words.items()} if isinstance(words, dict) else words


def _is_guess(value: Any) -> bool:
    """A time as a number, written by hand: seconds or milliseconds? We write a number only beyond the calendar."""
    number = value.integer_value if value.WhichOneof("value_type") == "integer_value" else None
    return number is not None and values.EARLIEST <= number <= values.LATEST


def _stranger(known: Mapping[str, Any], error: Exception) -> Record:
    """A newer layout may hold what we cannot read. It is left alone anyway; PENDING without a lease means held."""
    min_reader, key = known.get("min_reader", 0), str(known.get("key", ""))
    if isinstance(min_reader, int) and min_reader > READER:
        token = known.get("token", 0)
        return Record(
            known["id"], str(known.get("scope", "")), key, RecordState.PENDING, token if isinstance(token, int) else 0,
            min_reader=min_reader,
        )  # fmt: skip
    raise StoreBroken(
        "a document holds what no Onceward of its version writes", key=key, hint="was it edited by hand?"
    ) from error


def expires(record: Record) -> int | None:
    """From when on nobody needs the record: `transitions.purgeable` holds then, by any clock within the margin."""
    state = record.state
    if state is RecordState.FREE:
        end: int | None = record.token
    elif state is RecordState.PENDING:
        given_up = record.after_crash is AfterCrash.RERUN and not attempts_used_up(record.attempt, record.max_attempts)
        lapses = None if record.released or not given_up else record.lease_until
        end = None if lapses is None else lapses + KEEP_UNFINISHED
    else:
        end = None if state is RecordState.PARKED else record.valid_until
    return None if end is None else max(end, record.token + CLOCK_MARGIN + 1)
