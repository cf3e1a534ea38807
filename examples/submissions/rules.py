"""The insurer's own rules: what a submission is, which ones are declined, and what a risk costs. No I/O."""

from __future__ import annotations

from datetime import date, datetime
from decimal import Decimal
from typing import Annotated, Literal

from msgspec import Meta, Struct

from onceward import Payload

LARGEST = Decimal(50_000_000)
DECLINED = ("mining", "fireworks")
RATES = {"retail": Decimal("0.0021"), "marine": Decimal("0.0064"), "offices": Decimal("0.0013")}
CENT = Decimal("0.01")


Name = Annotated[str, Meta(pattern=r"^[^\x00]+$", max_length=300)]
"""PostgreSQL keeps no NUL."""


class Envelope(Struct, frozen=True, kw_only=True):
    """How a submission came; not what it is."""

    broker: str
    reference: str
    sent_at: datetime
    correlation_id: str
    retry_count: int = 0


class Location(Struct, frozen=True, kw_only=True):
    """A place that is insured. `geocoded_at` is a note of the sender's machine."""

    city: str
    value: Decimal
    geocoded_at: datetime | None = None

    def __post_init__(self) -> None:
        if not (self.value.is_finite() and self.value >= 0):
            raise ValueError(f"{self.value} is no amount of money")


class Submission(Struct, frozen=True, kw_only=True):
    """A risk that a broker offers."""

    company: Name
    industry: str
    begins: date
    locations: list[Location]
    envelope: Envelope

    @property
    def risk(self) -> str:
        return f"{self.company}, {self.begins}"

    @property
    def insured(self) -> Decimal:
        return sum((location.value for location in self.locations), Decimal(0))


SAME_SUBMISSION = Payload(exclude=["envelope", "locations.*.geocoded_at"])
"""The same content is the same submission, whoever sends it, when, and how often."""


class Quote(Struct, frozen=True, kw_only=True):
    """The answer to a submission. `charge` is the number of what the credit bureau billed for it."""

    decision: Literal["quoted", "declined"]
    premium: Decimal = Decimal(0)
    charge: str = ""
    why: str = ""


def triage(submission: Submission) -> Quote | None:
    """Declined at once, or worth a look that costs money."""
    if submission.industry in DECLINED:
        return Quote(decision="declined", why=f"no {submission.industry}")
    if submission.insured > LARGEST:
        return Quote(decision="declined", why="too large")
    return None


def price(submission: Submission, score: int, charge: str) -> Quote:
    """A score of 100 is an average company; more is worse."""
    rate = RATES.get(submission.industry, max(RATES.values()))
    premium = (submission.insured * rate * score / 100).quantize(CENT)
    return Quote(decision="quoted", premium=premium, charge=charge)
