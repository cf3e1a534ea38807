"""From a source record to what can be looked up and compared: its keys, its form, its fingerprint."""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import blake2b
from typing import Any, Final

import msgspec
from msgspec import Struct

from onceward.errors import ConfigurationError

from . import normalise
from .blocks import blocks_of
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


class Prepared(Struct, frozen=True):
    """A source record, ready to be decided upon."""

    source: str
    record: str
    fields: bytes
    keys: tuple[str, ...]
    form: Form
    blocks: tuple[int, ...]
    fingerprint: bytes
    at: int | None


class Invalid(ValueError):
    """This record cannot be taken in; the message says why."""


def prepared(preset: Preset, record: SourceRecord) -> Prepared:
    """Raises `Invalid` for a strong key that is none: it would lead to nobody, or to somebody else."""
    if not record.source or record.id == "":
        raise Invalid(f"its {'id' if record.source else 'source'} is empty")
    try:
        fields = _encode(record.fields)
    except (TypeError, ValueError, msgspec.MsgspecError) as error:
        raise Invalid(f"its fields cannot be kept as JSON: {error}") from error
    at = _instant(record)
    fingerprint = blake2b(fields, digest_size=16, salt=b"" if at is None else at.to_bytes(8, "big", signed=True))
    keys, form = _read(preset, record.fields)
    if not keys and not any(form):
        raise Invalid("none of the fields that tell people apart is filled: " + ", ".join(preset.fields))
    return Prepared(
        record.source,
        bounded(record.id) if record.id is not None else "=" + fingerprint.hexdigest(),
        fields,
        keys,
        form,
        blocks_of(preset, form),
        fingerprint.digest(),
        at,
    )


def _instant(record: SourceRecord) -> int | None:
    if record.at is None:
        return None
    if record.at.tzinfo is None:
        raise ConfigurationError(f"{record.at} has no time zone", hint="at=datetime.now(UTC)")
    return instant(record.at)


def _read(preset: Preset, values: Mapping[str, Any]) -> tuple[tuple[str, ...], Form]:
    country = _country(preset, values)
    keys: list[str] = []
    found: dict[str, str] = {}
    given = surname = ""
    for name, field in preset.fields.items():
        value = values.get(name)
        if value is None or is_missing(value):
            continue
        kind = field.kind
        if kind.role == "name":
            if kind.name == "full name":
                given, surname = normalise.full_name(_text(value))
            else:
                found[kind.name] = normalise.name(_text(value))
            continue
        theirs = _keys(name, field, value, country)
        if field.strong:
            keys += [f"{name}:{bounded(one)}" for one in theirs]
        if kind.role != "key" and theirs:
            found[name] = theirs[0]
    form = [found.get(slot.name, "") for slot in preset.slots]
    form[GIVEN] = found.get("given name") or given
    form[SURNAME] = found.get("surname") or surname
    return tuple(dict.fromkeys(keys)), tuple(form)


def _country(preset: Preset, values: Mapping[str, Any]) -> str | None:
    """Of the first field that is one: numbers are written as the country does."""
    for name, field in preset.fields.items():
        if field.kind.name == "country" and isinstance(values.get(name), str):
            code = normalise.country(values[name])
            return code if len(code) == ALPHA_2 and code.isupper() else None
    return None


def _keys(name: str, field: Field, value: Any, country: str | None) -> list[str]:
    found = []
    for one in value if isinstance(value, list | tuple) else (value,):
        if is_missing(one):
            continue
        try:
            key = (
                field.kind.normalise(_text(one), country) if field.kind.by_country else field.kind.normalise(_text(one))
            )
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
