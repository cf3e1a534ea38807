"""One person out of the contributions of several sources."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from msgspec import Struct

from .fields import Preset
from .normalise import trimmed
from .policy import Said, chosen, is_missing

_encode = msgspec.json.Encoder(order="deterministic").encode
_fields = msgspec.json.Decoder(dict[str, Any]).decode


class Part(Struct, frozen=True):
    """A contribution, as far as merging goes."""

    number: int
    source: str
    fields: bytes | str
    at: int


class MergedPerson(Struct, frozen=True):
    """The columns of a person that follow from the contributions, as they are written."""

    fields: str
    sources: str
    first_seen: int
    last_seen: int


def merged(preset: Preset, parts: Sequence[Part]) -> MergedPerson:
    """The same parts in any order give the same columns."""
    if not parts:
        return MergedPerson("{}", "[]", 0, 0)
    if len(parts) == 1:
        return _alone(preset, parts[0])
    ordered = sorted(parts, key=lambda part: (part.at, part.number))
    said: dict[str, list[Said]] = {}
    for part in ordered:
        for name, value in _fields(part.fields).items():
            if not is_missing(value):
                shown = _shown(preset, name, value)
                said.setdefault(name, []).append(Said(shown, part.source, (part.at, part.number)))
    fields = {name: chosen(preset.policies.get(name, preset.default_policy), told) for name, told in said.items()}
    sources = list(dict.fromkeys(part.source for part in sorted(parts, key=lambda part: part.number)))
    return MergedPerson(_encode(fields).decode(), _encode(sources).decode(), ordered[0].at, ordered[-1].at)


def _alone(preset: Preset, part: Part) -> MergedPerson:
    """As above, for one: most people are known from one record, and imports are made of these."""
    fields = {}
    for name, value in _fields(part.fields).items():
        if not is_missing(value):
            shown = _shown(preset, name, value)
            policy = preset.policies.get(name, preset.default_policy)
            is_union = policy.choose == "union"
            fields[name] = chosen(policy, [Said(shown, part.source, (part.at, part.number))]) if is_union else shown
    return MergedPerson(_encode(fields).decode(), _encode([part.source]).decode(), part.at, part.at)


def _shown(preset: Preset, name: str, value: Any) -> Any:
    if isinstance(value, list):
        return [_shown(preset, name, one) for one in value if not is_missing(one)]
    if not isinstance(value, str):
        return value
    field = preset.fields.get(name)
    if field is not None and field.kind.shows_key:
        try:
            return field.kind.normalise(value)
        except ValueError:
            return trimmed(value)
    return trimmed(value) if field is not None else value


def as_mapping(fields: bytes | str) -> Mapping[str, Any]:
    return _fields(fields)
