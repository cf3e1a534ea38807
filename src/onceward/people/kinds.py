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

from . import distance, normalise

Role = Literal["name", "person", "place", "key"]


class MatchLevel(NamedTuple):
    """A degree of agreement with its probabilities, as described above."""

    name: str
    same: float
    household: float
    strangers: float
    colleagues: float | None = None
    """None: the same as `strangers`."""

    @property
    def among_colleagues(self) -> float:
        return self.strangers if self.colleagues is None else self.colleagues


class FieldKind(Struct, frozen=True):
    """How a field is normalised and compared. `compare` returns the level of two different keys; equal keys have 0.

    `levels` are the degrees of agreement that `compare` numbers. `role` says what the field describes: a
    name sets the given name, the family name or both, and a key is never compared by similarity.
    """

    name: str
    normalise: Callable[..., str]
    levels: tuple[MatchLevel, ...] = ()
    compare: Callable[[str, str], int] = distance.always_different
    role: Role = "person"
    shows_key: bool = False
    """Whether the merged field shows the normalised key instead of the original text."""

    by_country: bool = False
    """Whether `normalise` also takes the record's country: a code of two letters, or None."""

    worst_value_counts: bool = False
    """If a person has several values, the best match counts. With this set, unless one value is equal, the worst match
    counts: otherwise a person with many addresses would be similar to everyone."""

    organisation_levels: frozenset[int] = frozenset()
    """Levels at which both records belong to one organisation, so that they may be those of colleagues."""


EMAIL: Final = FieldKind(
    "email",
    normalise.email,
    (
        MatchLevel("equal", 0.70, 0.10, 0.000001, 0.001),
        # Addresses consist of names: anna.s@ and hanna.s@ are as similar as Anna and Hanna. So these are the
        # probabilities among people with similar names, and a different address never supports "the same person".
        MatchLevel("close", 0.02, 0.03, 0.03, 0.09),
        # Providers have few domains, and organisations give one mailbox to each person ...
        MatchLevel("same domain", 0.05, 0.12, 0.12, 0.50),
        # ... with a number if the name is already taken.
        MatchLevel("numbered", 0.002, 0.004, 0.004, 0.109),
        MatchLevel("different", 0.228, 0.746, 0.845999, 0.30),
    ),
    distance.address,
    shows_key=True,
    worst_value_counts=True,
    organisation_levels=frozenset({1, 2, 3}),
)
EXTERNAL_ID: Final = FieldKind("external id", normalise.external_id, role="key")
FULL_NAME: Final = FieldKind("full name", normalise.name, role="name")
GIVEN_NAME: Final = FieldKind(
    "given name",
    normalise.name,
    (
        MatchLevel("equal", 0.85, 0.012, 0.006),
        MatchLevel("close", 0.07, 0.01, 0.006),
        MatchLevel("shortened", 0.04, 0.02, 0.013),
        MatchLevel("different", 0.04, 0.958, 0.975),
    ),
    distance.given_name,
    role="name",
)
SURNAME: Final = FieldKind(
    "surname",
    normalise.name,
    (
        MatchLevel("equal", 0.86, 0.75, 0.0015),
        MatchLevel("close", 0.08, 0.04, 0.0025),
        MatchLevel("in part", 0.02, 0.02, 0.001),
        MatchLevel("different", 0.04, 0.19, 0.995),
    ),
    distance.surname,
    role="name",
)
SWAPPED: Final = MatchLevel("swapped", 0.02, 0.0005, 0.00001)
"""Given name and surname are interchanged."""

BIRTH_DATE: Final = FieldKind(
    "birth date",
    normalise.birth_date,
    (
        MatchLevel("equal", 0.91, 0.003, 0.00005),  # household: twins; strangers: one day of 60 years
        MatchLevel("close", 0.06, 0.004, 0.002),  # about 40 dates are one typo away
        MatchLevel("in part", 0.01, 0.02, 0.008),
        MatchLevel("different", 0.02, 0.973, 0.98995),
    ),
    distance.birth_date,
)
NUMBER: Final = FieldKind(
    "number",
    normalise.number,
    (
        MatchLevel("equal", 0.92, 0.0005, 0.000002),
        MatchLevel(
            "close", 0.06, 0.0003, 0.00001
        ),  # household: consecutive numbers; strangers: about 80 of 10^7 or more
        MatchLevel("different", 0.02, 0.9992, 0.999988),
    ),
    distance.number,
)
PHONE: Final = FieldKind(
    "phone",
    normalise.phone,
    (
        MatchLevel("equal", 0.60, 0.40, 0.00005, 0.30),  # a switchboard
        MatchLevel("close", 0.03, 0.02, 0.0005, 0.20),  # extensions
        MatchLevel("different", 0.37, 0.58, 0.99945, 0.50),
    ),
    distance.number,
    shows_key=True,
    by_country=True,
)
COMPANY: Final = FieldKind(
    "company",
    normalise.company,
    (
        MatchLevel("equal", 0.60, 0.08, 0.001, 0.85),
        MatchLevel("close", 0.10, 0.02, 0.003, 0.14),
        MatchLevel("different", 0.30, 0.90, 0.996, 0.01),
    ),
    distance.words,
    organisation_levels=frozenset({0, 1}),
)
STREET: Final = FieldKind(
    "street",
    normalise.street,
    (
        MatchLevel("equal", 0.82, 0.002, 0.0003),
        MatchLevel("close", 0.12, 0.008, 0.003),
        MatchLevel("different", 0.06, 0.99, 0.9967),
    ),
    distance.words,
    role="place",
)
POSTCODE: Final = FieldKind(
    "postcode",
    normalise.postcode,
    (
        MatchLevel("equal", 0.92, 0.20, 0.0005),
        MatchLevel("close", 0.06, 0.15, 0.01),
        MatchLevel("different", 0.02, 0.65, 0.9895),
    ),
    distance.code,
    role="place",
)
CITY: Final = FieldKind(
    "city",
    normalise.city,
    (
        MatchLevel("equal", 0.90, 0.90, 0.005),
        MatchLevel("close", 0.06, 0.06, 0.005),
        MatchLevel("different", 0.04, 0.04, 0.99),
    ),
    distance.place,
    role="place",
)
REGION: Final = FieldKind(
    "region",
    normalise.fold,
    (
        MatchLevel("equal", 0.95, 0.95, 0.15),
        MatchLevel("close", 0.03, 0.03, 0.05),
        MatchLevel("different", 0.02, 0.02, 0.80),
    ),
    distance.code,
    role="place",
)
COUNTRY: Final = FieldKind(
    "country",
    normalise.country,
    (MatchLevel("equal", 0.99, 0.99, 0.40), MatchLevel("different", 0.01, 0.01, 0.60)),
    role="place",
    shows_key=True,
)
PLACES: Final = ((0.86, 0.06, 0.08), (0.96, 0.02, 0.02), (0.00002, 0.02, 0.97998), (0.60, 0.25, 0.15))
"""How often two records of one person, one household, strangers, colleagues (rows) have the same dwelling or
office, the same town, or neither (columns)."""
