"""Source records, and the decisions about them."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Literal

import msgspec
from msgspec import Struct

Action = Literal["created", "updated", "skipped", "to_review", "rejected"]


class SourceRecord(Struct, frozen=True):
    """One row, statement or message about one person.

    `source` is the name of its system, and `fields` map names such as `email` to values. `id` is the source's own id: a
    record with the same id replaces the previous one. Without an id, the content identifies the record, so a record
    with other content is added. `at` is when the source recorded it; the default is the time of arrival.
    """

    source: str
    fields: Mapping[str, Any]
    id: str | None = None
    at: datetime | None = None


class Evidence(Struct, frozen=True):
    """How one field of two records compares. `weight` is in bits: positive supports the same person, negative not."""

    field: str
    """The compared field, such as `surname`."""
    level: str
    """How far the values agree, such as `equal` or `close`."""
    here: str
    """The normalised value of the new record."""
    there: str
    """The normalised value of the record that it was compared with."""
    weight: float


decode_evidence = msgspec.json.Decoder(tuple[Evidence, ...]).decode


class Decision(Struct, frozen=True):
    """What was done with a source record, and why.

    `person` is None only if the record was rejected. `rule` is for programs, `reason` for people. `confidence` is the
    probability that the decision is correct. With `to_review`, a new person was created and `candidate` may be the same
    person, with probability `confidence`; `onceward review` asks. With `created`, `candidate` is the most similar
    person, if any.
    """

    action: Action
    """What happened: a person was created, updated, left as it was (`skipped`) or needs a review; or the record was
    rejected."""
    person: str | None
    rule: str
    reason: str
    confidence: float = 1.0
    candidate: str | None = None
    evidence: tuple[Evidence, ...] = ()
    """How the fields compare with those of the most similar record. Empty if similarity did not decide."""
    merged: tuple[str, ...] = ()
    """People merged into this one: their ids redirect here from now on."""

    ignored: tuple[str, ...] = ()
    """Values that could not be read, such as a malformed address, and why. They are stored, but not compared."""
