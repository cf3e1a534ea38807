"""Which fields there are: how each is compared, and how it is merged."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from hashlib import blake2b
from typing import Final

import msgspec
from msgspec import Struct

from onceward.errors import ConfigurationError

from . import kinds, normalise
from .kinds import FieldKind
from .policy import NEWEST, MergePolicy

ACCEPTED: Final = 0.9
REVIEWED: Final = 0.5


class Field(Struct, frozen=True):
    """A field of the declared name. `strong`: whoever has the same value is the same person, whatever else differs.

    `implies` names other strong fields whose keys follow from this one's key, each with a function that tells: who has
    the address has its hash as well, so that somebody who is known by the hash alone is found.
    """

    kind: FieldKind
    strong: bool = False
    policy: MergePolicy = NEWEST
    implies: Mapping[str, Callable[[str], str]] = {}


PERSON: Final[Mapping[str, Field]] = {
    "email": Field(kinds.EMAIL, strong=True),
    "external_id": Field(kinds.EXTERNAL_ID, strong=True),
    "name": Field(kinds.FULL_NAME),
    "given_name": Field(kinds.GIVEN_NAME),
    "surname": Field(kinds.SURNAME),
    "date_of_birth": Field(kinds.BIRTH_DATE),
    "national_id": Field(kinds.NUMBER),
    "phone": Field(kinds.PHONE),
    "company": Field(kinds.COMPANY),
    "street": Field(kinds.STREET),
    "street_2": Field(kinds.STREET),
    "postcode": Field(kinds.POSTCODE),
    "city": Field(kinds.CITY),
    "region": Field(kinds.REGION),
    "country": Field(kinds.COUNTRY),
}
"""The fields that are known unless you declare others. All that a record has besides is kept, and merged as it is."""


class Slot(Struct, frozen=True):
    """One place in the form of a record: what it holds, and which fields fill it."""

    name: str
    kind: FieldKind
    strong: bool = False


class Preset(Struct, frozen=True):
    """All choices of how people are told apart, frozen."""

    fields: Mapping[str, Field]
    order: Mapping[str, int]
    """Of the fields: the first strong key decides."""

    slots: tuple[Slot, ...]
    places: Mapping[str, int]
    """Where the form has a field."""

    nothing: tuple[str, ...]
    """The form of a record that says nothing."""

    policies: Mapping[str, MergePolicy]
    default_policy: MergePolicy
    accept: float
    ask: float
    likeness: bool
    """Whether people are also told by likeness; else by their keys alone."""

    digest: str
    """Changes when an index that was made with it has to be made anew."""


GIVEN, SURNAME = 0, 1
"""Where the form has the parts of the name, whichever fields they come from."""


def preset(
    fields: Mapping[str, Field] = PERSON,
    *,
    policies: Mapping[str, MergePolicy] | None = None,
    default_policy: MergePolicy = NEWEST,
    accept: float = ACCEPTED,
    ask: float = REVIEWED,
    likeness: bool = True,
) -> Preset:
    """Checked, and laid out for comparing."""
    if not 0 < ask <= accept <= 1:
        raise ConfigurationError(
            f"ask={ask} and accept={accept} are no band of confidence", hint="0 < ask <= accept <= 1"
        )
    for name, field in fields.items():
        for other in field.implies:
            if not (field.strong and other in fields and fields[other].strong):
                raise ConfigurationError(
                    f"{name} implies {other}, but not both of them are strong fields",
                    hint="declare both, with strong=True",
                )
    slots = [Slot("given_name", kinds.GIVEN_NAME), Slot("surname", kinds.SURNAME)]
    slots += [Slot(name, one.kind, one.strong) for name, one in fields.items() if one.kind.role in ("person", "place")]
    return Preset(
        fields=dict(fields),
        order={name: place for place, name in enumerate(fields)},
        slots=tuple(slots),
        places={slot.name: place for place, slot in enumerate(slots)},
        nothing=("",) * len(slots),
        policies={name: field.policy for name, field in fields.items()} | dict(policies or {}),
        default_policy=default_policy,
        accept=accept,
        ask=ask,
        likeness=likeness,
        digest=_digest(fields, slots),
    )


def _digest(fields: Mapping[str, Field], slots: Sequence[Slot]) -> str:
    told: list[object] = [
        normalise.VERSION,
        [[name, field.kind.name, field.kind.normalise.__qualname__, field.strong] for name, field in fields.items()],
        [slot.name for slot in slots],
    ]
    implied = [[name, sorted(field.implies)] for name, field in fields.items() if field.implies]
    if implied:
        told.append(implied)
    return blake2b(msgspec.json.encode(told), digest_size=8).hexdigest()


class Declaration(Struct, frozen=True):
    """What is noted beside the people: which fields there are, and how they are merged."""

    fields: dict[str, tuple[str, bool]]
    policies: dict[str, MergePolicy]
    default_policy: MergePolicy


def declaration(preset: Preset) -> str:
    fields = {name: (field.kind.name, field.strong) for name, field in preset.fields.items()}
    return msgspec.json.encode(Declaration(fields, dict(preset.policies), preset.default_policy)).decode()
