"""The kinds of fields, and how much it means if two values agree.

Each match level has probabilities: how often two records agree to this degree. For fields of a person, there is one for
the *same* person, one for two members of a *household*, one for two *strangers*, and one for two *colleagues* (if it is
missing, that of strangers). For fields of a place: the same *dwelling*, the same *town*, or *elsewhere*.
The probabilities of one column add up to 1. They are general estimates for registers of people, and are not fitted to
any particular data set.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Literal, NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from . import distance, normalise

Role = Literal["name", "person", "place", "key"]

NEVER: Final = float("-inf")
"""The evidence of a difference that only an equal number of the person outweighs (a level with evidence 3 or more),
if other fields agree, too. Otherwise only a strong key or an operator merges such records."""

PERSONAL: Final = -1.5
"""The evidence of a deviation in what tells the members of a household apart: their birth date has to agree too."""

ONE_LETTER: Final = -1.6
"""The evidence of given names that differ by a letter and may be those of twins, who share everything that a household
shares, and the birth date. It prevents a merge, unless a strong key or an identifying number of the person agrees."""

ELSEWHERE: Final = -1.5
"""The evidence of another town: name and birth date are not enough then."""

RENAMED: Final = -2.5
"""The evidence of another surname. A person who has married keeps given name, birth date and often the home: only all
of these together outweigh it. Without the same birth date, or another identifying number, it prevents a merge."""

SLIGHT: Final = -1.0
"""The evidence of another deviation."""


class MatchLevel(NamedTuple):
    """A degree of agreement, and how likely it is. Over the levels of a field, each probability adds up to 1."""

    name: str
    """What reviewers and evidence show, such as `close`."""
    same: float
    """How often two records of the same person (or dwelling) agree to this degree, from 0 to 1."""
    household: float
    """How often those of two members of one household (or places in one town) do."""
    strangers: float
    """How often those of two strangers (or places elsewhere) do."""
    colleagues: float | None = None
    """None: the same as `strangers`."""

    evidence: float | None = None
    """What this level counts in favour of an automatic merge, which needs a sum of 1. Name and town alone count 0:
    many people share them. `NEVER` prevents the merge. None: 2 if the level is 1,000 times more likely for the same
    person than for strangers, 1 if it is 100 times more likely, otherwise 0."""

    @property
    def among_colleagues(self) -> float:
        return self.strangers if self.colleagues is None else self.colleagues

    @property
    def counted_evidence(self) -> float:
        if self.evidence is not None:
            return self.evidence
        ratio = self.same / self.strangers if self.strangers else 0.0
        return 2.0 if ratio >= 1000 else 1.0 if ratio >= 100 else 0.0  # noqa: PLR2004 (as documented)


class FieldKind(Struct, frozen=True):
    """How a field is normalised and compared. `compare` returns the level of two different keys; equal keys have 0.

    `levels` are the degrees of agreement that `compare` numbers. `role` says what the field describes: a
    name sets the given name, the family name or both, and a key is never compared by similarity.
    """

    name: str
    """What messages call the kind, such as `full name`."""
    normalise: Callable[..., str]
    """Converts a value to the key that is compared. Returns an empty string if there is nothing to compare, and
    raises `ValueError` for a value that cannot be read."""
    levels: tuple[MatchLevel, ...] = ()
    compare: Callable[[str, str], int] = distance.always_different
    role: Role = "person"
    shows_key: bool = False
    """Whether the merged field shows the normalised key instead of the original text."""

    by_country: bool = False
    """Whether `normalise` also takes the record's country: a code of two letters, or None."""

    organisation_levels: frozenset[int] = frozenset()
    """Levels at which both records belong to one organisation, so that they may be those of colleagues."""


EMAIL: Final = FieldKind(
    "email",
    normalise.email,
    (
        MatchLevel("equal", 0.70, 0.10, 0.000001, 0.001, evidence=2),
        # Addresses consist of names: anna.s@ and hanna.s@ are as similar as Anna and Hanna. So these are the
        # probabilities among people with similar names, and a different address never supports "the same person".
        MatchLevel("close", 0.02, 0.03, 0.03, 0.09, evidence=0),
        # Providers have few domains, and organisations give one mailbox to each person ...
        MatchLevel("same domain", 0.05, 0.12, 0.12, 0.50, evidence=0),
        # ... with a number if the name is already taken.
        MatchLevel("numbered", 0.002, 0.004, 0.004, 0.109, evidence=0),
        MatchLevel("different", 0.228, 0.746, 0.845999, 0.30, evidence=0),
    ),
    distance.address,
    shows_key=True,
    organisation_levels=frozenset({1, 2, 3}),
)
MAILBOX: Final = replace(EMAIL, name="mailbox")
"""An address that identifies its readers as one contact: so does `info@…`, whatever names its records have."""

EXTERNAL_ID: Final = FieldKind("external id", normalise.external_id, role="key")
FULL_NAME: Final = FieldKind("full name", normalise.name, role="name")
GIVEN_NAME: Final = FieldKind(
    "given name",
    normalise.name,
    (
        MatchLevel("equal", 0.87, 0.012, 0.006, evidence=0),
        MatchLevel("close", 0.035, 0.005, 0.003, evidence=PERSONAL),
        MatchLevel("other form", 0.04, 0.02, 0.013, evidence=PERSONAL),
        MatchLevel("one letter apart", 0.035, 0.005, 0.003, evidence=ONE_LETTER),
        MatchLevel("different", 0.02, 0.958, 0.975, evidence=NEVER),
    ),
    distance.given_name,
    role="name",
)
SURNAME: Final = FieldKind(
    "surname",
    normalise.name,
    (
        MatchLevel("equal", 0.86, 0.75, 0.0015, evidence=0),
        MatchLevel("close", 0.08, 0.04, 0.0025, evidence=SLIGHT / 2),
        MatchLevel("in part", 0.02, 0.02, 0.001, evidence=SLIGHT),
        MatchLevel("different", 0.04, 0.19, 0.995, evidence=RENAMED),
    ),
    distance.surname,
    role="name",
)
SWAPPED: Final = MatchLevel("swapped", 0.02, 0.0005, 0.00001, evidence=SLIGHT)
"""Given name and surname are interchanged."""

SWAPPED_TWINS: Final = SWAPPED._replace(evidence=ONE_LETTER)
"""They are interchanged, and a letter of one of them differs: it may be the given name of a twin."""

BIRTH_DATE: Final = FieldKind(
    "birth date",
    normalise.birth_date,
    (
        MatchLevel("equal", 0.91, 0.003, 0.00005, evidence=2),  # household: twins; strangers: one day of 60 years
        MatchLevel("close", 0.06, 0.004, 0.002, evidence=SLIGHT),  # about 40 dates are one typo away
        MatchLevel("in part", 0.01, 0.02, 0.008, evidence=NEVER),
        MatchLevel("different", 0.02, 0.973, 0.98995, evidence=NEVER),
    ),
    distance.birth_date,
)
NUMBER: Final = FieldKind(
    "number",
    normalise.number,
    (
        MatchLevel("equal", 0.87, 0.0001, 0.000002, evidence=4),
        MatchLevel("close", 0.048, 0.0001, 0.000008, evidence=3),  # strangers: 80 of 10^7
        MatchLevel("ten apart", 0.002, 0.00015, 0.0000003, evidence=2.5),
        # A typo, or the next number: twins and families get their numbers one after the other.
        MatchLevel("consecutive", 0.01, 0.00085, 0.0000017, evidence=2),
        MatchLevel("different", 0.07, 0.9988, 0.999988, evidence=0),
    ),
    distance.assigned_number,
)
PHONE: Final = FieldKind(
    "phone",
    normalise.phone,
    (
        MatchLevel("equal", 0.60, 0.40, 0.00005, 0.30, evidence=1),  # a switchboard
        MatchLevel("close", 0.03, 0.02, 0.0005, 0.20, evidence=0),  # extensions
        MatchLevel("different", 0.37, 0.58, 0.99945, 0.50, evidence=0),
    ),
    distance.number,
    shows_key=True,
    by_country=True,
)
COMPANY: Final = FieldKind(
    "company",
    normalise.company,
    (
        MatchLevel("equal", 0.60, 0.08, 0.001, 0.85, evidence=0),
        MatchLevel("close", 0.10, 0.02, 0.003, 0.14, evidence=0),
        MatchLevel("different", 0.30, 0.90, 0.996, 0.01, evidence=0),
    ),
    distance.words,
    organisation_levels=frozenset({0, 1}),
)
STREET: Final = FieldKind(
    "street",
    normalise.street,
    (
        MatchLevel("equal", 0.82, 0.002, 0.0003, evidence=1),
        MatchLevel("close", 0.12, 0.008, 0.003, evidence=1),
        MatchLevel("different", 0.06, 0.99, 0.9967, evidence=0),
    ),
    distance.street,
    role="place",
)
POSTCODE: Final = FieldKind(
    "postcode",
    normalise.postcode,
    (
        MatchLevel("equal", 0.92, 0.20, 0.0005, evidence=0.5),
        MatchLevel("close", 0.06, 0.15, 0.01, evidence=0),
        MatchLevel("different", 0.02, 0.65, 0.9895, evidence=0),
    ),
    distance.code,
    role="place",
)
CITY: Final = FieldKind(
    "city",
    normalise.city,
    (
        MatchLevel("equal", 0.90, 0.90, 0.005, evidence=0),
        MatchLevel("close", 0.06, 0.06, 0.005, evidence=0),
        MatchLevel("different", 0.04, 0.04, 0.99, evidence=ELSEWHERE),
    ),
    distance.place,
    role="place",
)
REGION: Final = FieldKind(
    "region",
    normalise.fold,
    (
        MatchLevel("equal", 0.95, 0.95, 0.15, evidence=0),
        MatchLevel("close", 0.03, 0.03, 0.05, evidence=0),
        MatchLevel("different", 0.02, 0.02, 0.80, evidence=0),
    ),
    distance.code,
    role="place",
)
COUNTRY: Final = FieldKind(
    "country",
    normalise.country,
    (MatchLevel("equal", 0.99, 0.99, 0.40, evidence=0), MatchLevel("different", 0.01, 0.01, 0.60, evidence=0)),
    role="place",
    shows_key=True,
)
PLACES: Final = ((0.86, 0.06, 0.08), (0.96, 0.02, 0.02), (0.00002, 0.02, 0.97998), (0.60, 0.25, 0.15))
"""How often two records of one person, one household, strangers, colleagues (rows) have the same dwelling or
office, the same town, or neither (columns)."""
