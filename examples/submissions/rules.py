"""The insurer's own rules: what a submission is, which ones are declined, and what a risk costs. No I/O."""

from __future__ import annotations

from datetime import date, datetime
from decimal import Decimal
from typing import Annotated, Literal

from msgspec import Meta, Struct

from onceward import Payload

MAX_INSURED = Decimal(50_000_000)
DECLINED = ("mining", "fireworks")
RATES = {"retail": Decimal("0.0021"), "marine": Decimal("0.0064"), "offices": Decimal("0.0013")}
CENT = Decimal("0.01")


Name = Annotated[str, Meta(pattern=r"^[^\x00]+$", max_length=300)]
"""Without NUL, which PostgreSQL cannot store."""


class Envelope(Struct, frozen=True, kw_only=True):
    """Delivery metadata of a submission, which is not part of its content."""

    broker: str
    reference: str
    sent_at: datetime
    correlation_id: str
    retry_count: int = 0


class Location(Struct, frozen=True, kw_only=True):
    """An insured location. `geocoded_at` is metadata of the sender's system."""

    city: str
    value: Decimal
    geocoded_at: datetime | None = None

    def __post_init__(self) -> None:
        if not (self.value.is_finite() and self.value >= 0):
            raise ValueError(f"{self.value} is not an amount of money")


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
"""Equal content is the same submission, whatever the sender, the time and the number of deliveries."""


class Quote(Struct, frozen=True, kw_only=True):
    """The answer to a submission. `charge` is the id of the charge of the credit bureau."""

    decision: Literal["quoted", "declined"]
    premium: Decimal = Decimal(0)
    charge: str = ""
    why: str = ""


def triage(submission: Submission) -> Quote | None:
    """Return a declined quote, or None if the submission is worth a paid credit check."""
    if submission.industry in DECLINED:
        return Quote(decision="declined", why=f"no {submission.industry}")
    if submission.insured > MAX_INSURED:
        return Quote(decision="declined", why="too large")
    return None


def price(submission: Submission, score: int, charge: str) -> Quote:
    """Return the price. A score of 100 is an average company; a higher score is worse."""
    rate = RATES.get(submission.industry, max(RATES.values()))
    premium = (submission.insured * rate * score / 100).quantize(CENT)
    return Quote(decision="quoted", premium=premium, charge=charge)
