"""What kinds of fields there are, and what it means if they agree.

Each level of agreement has chances. For what belongs to a person: how often two records agree to this degree if they
are of the *same* person, of two members of one *household*, of two *strangers*; and of two *colleagues*, who are as
strangers unless it is said. For what belongs to a place: if both are of the same *dwelling*, of the same *town*, of
places *elsewhere*. The chances of one column add up to 1. They are estimates of what is common in registers of people,
made once and for all, and fitted to no particular data.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Literal, NamedTuple

from msgspec import Struct

from . import distance as closeness
from . import normalise

Role = Literal["name", "person", "place", "key"]


class MatchLevel(NamedTuple):
    """A degree of agreement: its chances as told above."""

    name: str
    same: float
    household: float
    strangers: float
    colleagues: float | None = None
    """None: as strangers."""

    @property
    def among_colleagues(self) -> float:
        return self.strangers if self.colleagues is None else self.colleagues


class FieldKind(Struct, frozen=True):
    """How a field is normalised and compared. `compare` tells the level of two keys that differ; equal ones have 0."""

    name: str
    normalise: Callable[..., str]
    levels: tuple[MatchLevel, ...] = ()
    compare: Callable[[str, str], int] = closeness.nothing_else
    role: Role = "person"
    shows_key: bool = False
    """Whether the merged field shows the key instead of what people wrote."""

    by_country: bool = False
    """Whether `normalise` also takes the record's country, as two letters or None."""

    telling_apart: bool = False
    """Of several values that a person has, the one that fits best counts; here, unless one is equal, the one that fits
    worst: who has many addresses is not more like everybody."""

    organised: frozenset[int] = frozenset()
    """Levels that show that both records are of one organisation, so that they may be colleagues'."""


EMAIL: Final = FieldKind(
    "email",
    normalise.email,
    (
        MatchLevel("equal", 0.70, 0.10, 0.000001, 0.001),
        # Addresses are made of names: anna.s@ and hanna.s@ are as close as Anna and Hanna. So these are the chances
        # among those whose names are alike, and another address never speaks for one person.
        MatchLevel("close", 0.02, 0.03, 0.03, 0.09),
        # Providers share out few domains, and organisations give one mailbox to each ...
        MatchLevel("same domain", 0.05, 0.12, 0.12, 0.50),
        # ... with a number where the name is taken already.
        MatchLevel("numbered", 0.002, 0.004, 0.004, 0.109),
        MatchLevel("different", 0.228, 0.746, 0.845999, 0.30),
    ),
    closeness.address,
    shows_key=True,
    telling_apart=True,
    organised=frozenset({1, 2, 3}),
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
    closeness.given_name,
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
    closeness.surname,
    role="name",
)
SWAPPED: Final = MatchLevel("swapped", 0.02, 0.0005, 0.00001)
"""Given name and surname in each other's place."""

BIRTH_DATE: Final = FieldKind(
    "birth date",
    normalise.birth_date,
    (
        MatchLevel("equal", 0.91, 0.003, 0.00005),  # twins; one of 60 years' days
        MatchLevel("close", 0.06, 0.004, 0.002),  # some 40 days are a slip away
        MatchLevel("in part", 0.01, 0.02, 0.008),
        MatchLevel("different", 0.02, 0.973, 0.98995),
    ),
    closeness.birth_date,
)
NUMBER: Final = FieldKind(
    "number",
    normalise.number,
    (
        MatchLevel("equal", 0.92, 0.0005, 0.000002),
        MatchLevel("close", 0.06, 0.0003, 0.00001),  # numbers given out one after the other; some 80 of 10^7 and more
        MatchLevel("different", 0.02, 0.9992, 0.999988),
    ),
    closeness.number,
)
PHONE: Final = FieldKind(
    "phone",
    normalise.phone,
    (
        MatchLevel("equal", 0.60, 0.40, 0.00005, 0.30),  # a switchboard
        MatchLevel("close", 0.03, 0.02, 0.0005, 0.20),  # extensions
        MatchLevel("different", 0.37, 0.58, 0.99945, 0.50),
    ),
    closeness.number,
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
    closeness.words,
    organised=frozenset({0, 1}),
)
STREET: Final = FieldKind(
    "street",
    normalise.street,
    (
        MatchLevel("equal", 0.82, 0.002, 0.0003),
        MatchLevel("close", 0.12, 0.008, 0.003),
        MatchLevel("different", 0.06, 0.99, 0.9967),
    ),
    closeness.words,
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
    closeness.code,
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
    closeness.place,
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
    closeness.code,
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
"""How often records of one person, of one household, of strangers, of colleagues are of one dwelling (or office), of
one town, of neither."""
