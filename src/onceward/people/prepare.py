"""From a source record to what can be looked up and compared: its fingerprint, its keys, its form."""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import blake2b
from typing import Any, Final

import msgspec
from msgspec import Struct

from onceward.errors import ConfigurationError

from . import normalise
from .blocking import NONE, Blocks, blocks_of
from .fields import GIVEN, SURNAME, Field, Preset
from .person import instant
from .policy import is_missing
from .source import SourceRecord

Form = tuple[str, ...]
"""The keys of a record in the order of the preset's slots; an empty one is missing, and says nothing."""

LONGEST_KEY: Final = 200
"""Characters; longer ones are hashed: databases limit what an index may hold."""

ALPHA_2: Final = 2

_encode = msgspec.json.Encoder(order="deterministic").encode


class Sketch(Struct, frozen=True):
    """All that it takes to see that a record is known already."""

    source: str
    record: str
    fields: bytes
    fingerprint: bytes
    at: int | None


class Prepared(Struct, frozen=True):
    """A source record, ready to be decided upon."""

    source: str
    record: str
    fields: bytes
    fingerprint: bytes
    at: int | None
    keys: tuple[str, ...]
    form: Form
    blocks: Blocks


class Invalid(ValueError):
    """This record cannot be taken in; the message says why."""


def sketched(record: SourceRecord) -> Sketch:
    """Raises `Invalid` for what no database could keep."""
    if not record.source or record.id == "":
        raise Invalid(f"its {'id' if record.source else 'source'} is empty")
    try:
        own = None if record.id is None else bounded(record.id)
        f"{bounded(record.source)}{own}".encode()
    except (TypeError, ValueError) as error:
        raise Invalid(f"its source or its id is no text: {error}") from error
    try:
        fields = _encode(record.fields)
    except (TypeError, ValueError, msgspec.MsgspecError) as error:
        raise Invalid(f"its fields cannot be kept as JSON: {error}") from error
    if record.at is None:
        at, digest = None, blake2b(fields, digest_size=16)
    else:
        at = _instant(record)
        digest = blake2b(fields, digest_size=16, salt=at.to_bytes(8, "big", signed=True))
    return Sketch(bounded(record.source), own or "=" + digest.hexdigest(), fields, digest.digest(), at)


def _instant(record: SourceRecord) -> int:
    if record.at is None or record.at.tzinfo is None:
        raise ConfigurationError(f"{record.at} has no time zone", hint="at=datetime.now(UTC)")
    return instant(record.at)


def prepared(preset: Preset, sketch: Sketch, fields: Mapping[str, Any]) -> Prepared:
    """Raises `Invalid` for a strong key that is none: it would lead to nobody, or to somebody else."""
    keys, form, is_telling = _read(preset, fields)
    if not keys and not is_telling:
        raise Invalid("none of the fields that tell people apart is filled: " + ", ".join(preset.fields))
    return Prepared(
        sketch.source,
        sketch.record,
        sketch.fields,
        sketch.fingerprint,
        sketch.at,
        keys,
        form,
        blocks_of(preset, form) if is_telling else NONE,
    )


def _read(preset: Preset, values: Mapping[str, Any]) -> tuple[tuple[str, ...], Form, bool]:
    """Keys, form, and whether the form tells more than the keys do."""
    declared, order = preset.fields, preset.order
    keys: list[str] = []
    form = list(preset.nothing)
    is_telling = False
    for name in sorted(values.keys() & declared.keys(), key=order.__getitem__):
        value, field = values[name], declared[name]
        if value is None or is_missing(value):
            continue
        kind = field.kind
        if kind.role == "name":
            if kind.name == "full name":
                parts = normalise.full_name(_text(value))
            else:
                part = normalise.name(_text(value))
                parts = (part, "") if kind.name == "given name" else ("", part)
            form[GIVEN], form[SURNAME] = parts[0] or form[GIVEN], parts[1] or form[SURNAME]
            is_telling = is_telling or any(parts)
            continue
        theirs = _keys(name, field, value, _country(preset, values) if kind.by_country else None)
        if field.strong:
            keys += [f"{name}:{bounded(one)}" for one in theirs]
            for other, implied in field.implies.items():
                keys += [f"{other}:{bounded(implied(one))}" for one in theirs]
        if kind.role != "key" and theirs:
            form[preset.places[name]] = theirs[0]
            is_telling = is_telling or not field.strong
    return tuple(dict.fromkeys(keys)) if len(keys) > 1 else tuple(keys), tuple(form), is_telling


def _country(preset: Preset, values: Mapping[str, Any]) -> str | None:
    """Of the first field that is one: numbers are written as the country does."""
    for name, field in preset.fields.items():
        if field.kind.name == "country" and isinstance(values.get(name), str):
            code = normalise.country(values[name])
            return code if len(code) == ALPHA_2 and code.isupper() else None
    return None


def _keys(name: str, field: Field, value: Any, country: str | None) -> list[str]:
    found = []
    normalised = field.kind.normalise
    for one in value if isinstance(value, list | tuple) else (value,):
        if is_missing(one):
            continue
        try:
            key = normalised(_text(one), country) if field.kind.by_country else normalised(_text(one))
        except ValueError as error:
            if field.strong:
                raise Invalid(f"{name}: {error}") from error
            continue  # what cannot be read says nothing
        if key:
            found.append(key)
    return found


def _text(value: Any) -> str:
    return value if isinstance(value, str) else str(value)


def bounded(text: str) -> str:
    """The text, or what stands for it if it is too long for an index, or not text for every database."""
    if len(text) <= LONGEST_KEY and "\0" not in text:
        return text
    return "#" + blake2b(text.encode("utf-8", "surrogatepass"), digest_size=20).hexdigest()
