"""Prepare a source record for lookup and comparison: fingerprint, strong keys, normal form, blocking keys."""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import blake2b
from typing import Any, Final

import msgspec
from msgspec import Struct
from msgspec.structs import asdict

from onceward.errors import ConfigurationError
from onceward.protocol.instants import instant

from . import normalise
from .blocking import NO_BLOCKS, Blocks, blocks_of
from .fields import GIVEN, SURNAME, Field, Preset
from .normalise.placeholders import is_of_a_role, is_of_nobody, stands_for_missing
from .policy import is_missing
from .source import SourceRecord
from .trust import claimed_key

NormalForm = tuple[str, ...]
"""The normalised values of a record in the order of the preset's slots. An empty string is a missing value."""

MAX_KEY_LENGTH: Final = 200
"""Characters. Longer keys are hashed because databases limit the size of index entries."""

ALPHA_2: Final = 2
NAMES: Final = 2  # slots

_encode = msgspec.json.Encoder(order="deterministic").encode
decode_form = msgspec.json.Decoder(NormalForm).decode


class EncodedRecord(Struct, frozen=True):
    """A source record as it is stored: enough to check whether it is already known."""

    source: str
    record: str
    fields: bytes
    fingerprint: bytes
    at: int | None


class PreparedRecord(EncodedRecord, frozen=True):
    """A source record that is ready for matching."""

    keys: tuple[str, ...]
    form: NormalForm
    blocks: Blocks
    ignored: tuple[str, ...] = ()
    """Why values could not be read: they are stored, but not compared."""

    claims: tuple[str, ...] = ()
    """Keys of other units that this record is linked to, because one of the two sources is not trusted."""


class InvalidRecord(ValueError):
    """This record cannot be stored; the message says why."""


def encode_record(record: SourceRecord) -> EncodedRecord:
    """Encode a record. Raise `InvalidRecord` if a database could not store it."""
    if not record.source or record.id == "":
        raise InvalidRecord(f"its {'id' if record.source else 'source'} is empty")
    try:
        own = None if record.id is None else index_text(record.id)
        f"{index_text(record.source)}{own}".encode()
    except (TypeError, ValueError) as error:
        raise InvalidRecord(f"its source or its id is not valid text: {error}") from error
    try:
        fields = _encode(record.fields)
    except (TypeError, ValueError, msgspec.MsgspecError) as error:
        raise InvalidRecord(f"its fields cannot be stored as JSON: {error}") from error
    if record.at is None:
        at, digest = None, blake2b(fields, digest_size=16)
    else:
        if record.at.tzinfo is None:
            raise ConfigurationError(
                f"at={record.at} has no time zone", hint="pass an aware datetime: at=datetime.now(UTC)"
            )
        at = instant(record.at)
        digest = blake2b(fields, digest_size=16, salt=at.to_bytes(8, "big", signed=True))
    return EncodedRecord(index_text(record.source), own or "=" + digest.hexdigest(), fields, digest.digest(), at)


def prepare_record(preset: Preset, encoded: EncodedRecord, fields: Mapping[str, Any]) -> PreparedRecord:
    """Normalise a record. An invalid strong key is ignored: it would find no person, or a wrong one.

    Raise `InvalidRecord` if nothing else identifies a person: a name alone does not.
    """
    ignored: list[str] = []
    keys, form, has_weak_values = _read(preset, fields, ignored)
    keys, claims = _divide_keys(preset, encoded.source, keys)
    if ignored and not keys and not any(form[NAMES:]):
        raise InvalidRecord("; ".join(ignored))
    if not keys and not has_weak_values:
        raise InvalidRecord("it has no value in any of the fields that identify a person: " + ", ".join(preset.fields))
    blocks = blocks_of(preset, form) if has_weak_values else NO_BLOCKS
    values = asdict(encoded)
    return PreparedRecord(**values, keys=keys, form=form, blocks=blocks, ignored=tuple(ignored), claims=claims)


def prepare_stored(preset: Preset, source: str, record: str, fields: Mapping[str, Any]) -> PreparedRecord:
    """Normalise a record that is already stored."""
    return prepare_record(preset, encode_record(SourceRecord(source, fields, record)), fields)


def _divide_keys(preset: Preset, source: str, keys: tuple[str, ...]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the keys that this source may use, and the keys that it is linked to only."""
    if not preset.trust:
        return keys, ()
    trust = preset.trust.get(source)
    if trust is None:
        return keys, tuple(claimed_key(other, key) for other in preset.trust for key in keys)
    trusted = tuple(key for key in keys if key.partition(":")[0] in trust.identifiers)
    others = tuple(key for key in keys if key not in trusted)
    claims = tuple(claimed_key(other, key) for other in preset.trust if other != source for key in keys)
    return (*trusted, *(claimed_key(source, key) for key in others)), (*others, *claims)


def _read(preset: Preset, values: Mapping[str, Any], ignored: list[str]) -> tuple[tuple[str, ...], NormalForm, bool]:
    """Return strong keys, normal form, and whether the form has values that are not strong keys."""
    declared, order = preset.fields, preset.order
    keys: list[str] = []
    form = list(preset.empty_form)
    has_weak_values = False
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
            has_weak_values = has_weak_values or any(parts)
            continue
        found = _keys(name, field, value, _country(preset, values) if kind.by_country else None, ignored)
        if field.strong:
            keys += [f"{name}:{index_text(one)}" for one in found]
            for other, implied in field.implies.items():
                keys += [f"{other}:{index_text(implied(one))}" for one in found]
            for other, implied in field.implies_as_written.items() if found else ():
                texts = [_text(one) for one in (value if isinstance(value, list | tuple) else (value,))]
                keys += [f"{other}:{index_text(key)}" for key in map(implied, texts) if key]
        if kind.role != "key" and found:
            form[preset.places[name]] = found[0]
            has_weak_values = has_weak_values or not field.strong
    if form[GIVEN] or form[SURNAME]:
        keys = [key for one in keys if (key := _key_of_one(preset, one, form, ignored))]
    return tuple(dict.fromkeys(keys)) if len(keys) > 1 else tuple(keys), tuple(form), has_weak_values


def _key_of_one(preset: Preset, key: str, form: list[str], ignored: list[str]) -> str:
    """Return a key that only one person has. Empty if there is none.

    Several people share the address of a role, so that only the name and the birth date make it a key.
    """
    name, _, address = key.partition(":")
    field = preset.fields[name]
    if field.kind.name != "email" or field.implies or field.implies_as_written:
        return key
    if is_of_nobody(address):
        form[preset.places[name]] = ""
        ignored.append(f"{name}: no person reads {address!r}")
        return ""
    if not is_of_a_role(address):
        return key
    born = [form[n] for n, slot in enumerate(preset.slots) if slot.kind.name == "birth date" and form[n]]
    who = " ".join(filter(None, (form[GIVEN], form[SURNAME], *born)))
    return f"{name}:{index_text(f'{address} of {who}')}"


def _country(preset: Preset, values: Mapping[str, Any]) -> str | None:
    """Return the country code of the record: phone numbers are written in the national format."""
    for name, field in preset.fields.items():
        if field.kind.name == "country" and isinstance(values.get(name), str):
            code = normalise.country(values[name])
            return code if len(code) == ALPHA_2 and code.isupper() else None
    return None


def _keys(name: str, field: Field, value: Any, country: str | None, ignored: list[str]) -> list[str]:
    found = []
    normalised = field.kind.normalise
    for one in value if isinstance(value, list | tuple) else (value,):
        if is_missing(one):
            continue
        try:
            key = normalised(_text(one), country) if field.kind.by_country else normalised(_text(one))
        except ValueError as error:
            ignored.append(f"{name}: {error}")
            continue  # an unreadable value counts as missing
        if stands_for_missing(field.kind.name, key):
            ignored.append(f"{name}: {key!r} stands for a missing value")
        elif key:
            found.append(key)
    return found


def _text(value: Any) -> str:
    return value if isinstance(value, str) else str(value)


def index_text(text: str) -> str:
    """Return the text, or a hash of it if it is too long for an index or contains a NUL character."""
    if len(text) <= MAX_KEY_LENGTH and "\0" not in text:
        return text
    return "#" + blake2b(text.encode("utf-8", "surrogatepass"), digest_size=20).hexdigest()
