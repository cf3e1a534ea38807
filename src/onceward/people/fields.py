"""The fields of a person: how each is compared, and how it is merged."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from hashlib import blake2b
from typing import Any, Final

import msgspec
from msgspec import Struct

from onceward.errors import ConfigurationError

from . import kinds, normalise
from .kinds import FieldKind
from .policy import NEWEST, MergePolicy
from .trust import Trust, check_trust

ACCEPTED: Final = 0.9
REVIEWED: Final = 0.5
NAME_SLOTS: Final = ("given_name", "surname")


class Field(Struct, frozen=True):
    """Declares a field.

    With `strong=True`, records with the same value belong to the same person, whatever else differs. An exception is
    an address that several people read (`info@…`): it identifies a person only together with name and birth date. With
    the kind `MAILBOX`, or if it implies another field, there is no exception.

    `implies` maps other strong fields to functions that compute their key from this field's key. For example, an e-mail
    address implies its hash, so that a person known only by the hash is found by the address. `implies_as_written` does
    the same with the text as it was written: others may have hashed that. Its functions may return "" for no key.
    """

    kind: FieldKind
    """How values are normalised and compared, such as `EMAIL`."""
    strong: bool = False
    policy: MergePolicy = NEWEST
    """Which value the person gets if its records differ. By default the newest one."""
    implies: Mapping[str, Callable[[str], str]] = {}
    implies_as_written: Mapping[str, Callable[[str], str]] = {}


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
"""The default fields. Other fields of a record are stored and merged, but not compared."""


class MergeRule(Struct, frozen=True):
    """A rule of your own: records that are equal in all these fields are one person, with at least this confidence.

    It applies unless another name, birth date or strong key contradicts it. For example, in a list of prospects,
    `MergeRule(("name", "city", "country"), 0.95)`. Without such a rule, a name and a town never merge people.
    """

    fields: tuple[str, ...]
    """The fields that must all be equal and not empty."""
    confidence: float = 0.95
    """The probability, from 0 to 1, that such records belong to one person."""

    @property
    def slots(self) -> tuple[str, ...]:
        """The names of the slots that must be equal. A full name has two."""
        return tuple(slot for field in self.fields for slot in (NAME_SLOTS if field == "name" else (field,)))


class FieldSlot(Struct, frozen=True):
    """One position in the normal form of a record."""

    name: str
    kind: FieldKind
    strong: bool = False


class Preset(Struct, frozen=True):
    """All settings of how people are matched and merged."""

    fields: Mapping[str, Field]
    order: Mapping[str, int]
    """The position of each declared field. If strong keys belong to different people, the first field decides."""

    slots: tuple[FieldSlot, ...]
    places: Mapping[str, int]
    """The slot of each field."""

    empty_form: tuple[str, ...]
    """The normal form of a record without any value to compare."""

    policies: Mapping[str, MergePolicy]
    default_policy: MergePolicy
    accept: float
    ask: float
    rules: tuple[MergeRule, ...]
    trust: Mapping[str, Trust]
    """What each source is trusted with. Sources that are missing here are trusted with everything."""

    use_similarity: bool
    """Whether records are also matched by similarity, and not only by strong keys."""

    digest: str
    """Changes if an index built with these settings must be rebuilt."""

    def settings(self) -> dict[str, Any]:
        """Return the arguments of `People` that produce this preset."""
        names = ("fields", "policies", "default_policy", "accept", "ask", "rules", "trust")
        return {name: getattr(self, name) for name in names} | {"similarity": self.use_similarity}


GIVEN, SURNAME = 0, 1
"""The slots of the parts of the name, whichever fields they come from."""


def preset(
    fields: Mapping[str, Field] = PERSON,
    *,
    policies: Mapping[str, MergePolicy] | None = None,
    default_policy: MergePolicy = NEWEST,
    accept: float = ACCEPTED,
    ask: float = REVIEWED,
    similarity: bool = True,
    rules: Sequence[MergeRule] = (),
    trust: Mapping[str, Trust] | None = None,
) -> Preset:
    """Check the settings and compute the slots of the normal form."""
    if not 0 < ask <= accept <= 1:
        raise ConfigurationError(
            f"ask={ask} and accept={accept} are not a valid range of confidence", hint="choose 0 < ask <= accept <= 1"
        )
    for name, field in fields.items():
        for other in (*field.implies, *field.implies_as_written):
            if not (field.strong and other in fields and fields[other].strong):
                raise ConfigurationError(
                    f"{name} implies {other}, but both must be declared as strong fields",
                    hint="declare both with strong=True",
                )
    slots = [FieldSlot("given_name", kinds.GIVEN_NAME), FieldSlot("surname", kinds.SURNAME)]
    slots += [
        FieldSlot(name, one.kind, one.strong) for name, one in fields.items() if one.kind.role in ("person", "place")
    ]
    places = {slot.name: place for place, slot in enumerate(slots)}
    _check_rules(rules, places)
    check_trust(trust or {}, [name for name, field in fields.items() if field.strong])
    return Preset(
        fields=dict(fields),
        order={name: place for place, name in enumerate(fields)},
        slots=tuple(slots),
        places=places,
        empty_form=("",) * len(slots),
        policies={name: field.policy for name, field in fields.items()} | dict(policies or {}),
        default_policy=default_policy,
        accept=accept,
        ask=ask,
        rules=tuple(rules),
        trust=dict(trust or {}),
        use_similarity=similarity,
        digest=_digest(fields, slots, rules),
    )


def _check_rules(rules: Sequence[MergeRule], places: Mapping[str, int]) -> None:
    for rule in rules:
        unknown = [slot for slot in rule.slots if slot not in places]
        if unknown or not rule.fields:
            raise ConfigurationError(
                f"the rule {rule.fields} has {unknown[0]!r}, which is not compared"
                if unknown
                else "a rule has no field",
                hint=f"use some of: name, {', '.join(places)}",
            )
        if not 0 < rule.confidence <= 1:
            raise ConfigurationError(
                f"the rule {rule.fields} has the confidence {rule.confidence}", hint="choose 0 < confidence <= 1"
            )


def _digest(fields: Mapping[str, Field], slots: Sequence[FieldSlot], rules: Sequence[MergeRule]) -> str:
    parts: list[object] = [
        normalise.VERSION,
        [[name, field.kind.name, field.kind.normalise.__qualname__, field.strong] for name, field in fields.items()],
        [slot.name for slot in slots],
    ]
    implied = [[name, sorted(field.implies)] for name, field in fields.items() if field.implies]
    if implied:
        parts.append(implied)
    as_written = [[name, sorted(one.implies_as_written)] for name, one in fields.items() if one.implies_as_written]
    if as_written:
        parts.append(["as written", as_written])
    if rules:
        parts.append([rule.fields for rule in rules])
    return blake2b(msgspec.json.encode(parts), digest_size=8).hexdigest()


class FieldDeclaration(Struct, frozen=True):
    """The fields and merge policies, as they are stored in the database."""

    fields: dict[str, tuple[str, bool]]
    policies: dict[str, MergePolicy]
    default_policy: MergePolicy
    rules: tuple[MergeRule, ...] = ()
    trust: dict[str, Trust] = {}


def declaration(preset: Preset) -> str:
    fields = {name: (field.kind.name, field.strong) for name, field in preset.fields.items()}
    declared = FieldDeclaration(fields, dict(preset.policies), preset.default_policy, preset.rules, dict(preset.trust))
    return msgspec.json.encode(declared).decode()
