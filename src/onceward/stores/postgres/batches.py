"""What a statement for many requests is given: each column of theirs as one array."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from onceward.model.record import ClaimRequest, Complete, Renewal, Validity
from onceward.ports import AnyRequest

from .rows import text_of
from .values import LARGEST

FITS = LARGEST // 2
"""A duration that can be added to any time without overflow."""


def sorted_by_kind(
    requests: Iterable[AnyRequest],
) -> tuple[list[ClaimRequest], list[Complete], list[Renewal], list[AnyRequest]]:
    claims: list[ClaimRequest] = []
    completions: list[Complete] = []
    renewals: list[Renewal] = []
    others: list[AnyRequest] = []
    for request in requests:
        if type(request) is ClaimRequest and (request.lease is None or request.lease < FITS):
            claims.append(request)
        elif type(request) is Complete and not request.note and fits(request.validity):
            completions.append(request)
        elif type(request) is Renewal and not request.note and request.lease < FITS:
            renewals.append(request)
        else:
            others.append(request)
    return claims, completions, renewals, others


def fits(validity: Validity) -> bool:
    return validity.lasting is None or validity.lasting < FITS


def claim_values(claims: Sequence[ClaimRequest], now: int | None, locks: Sequence[int]) -> list[Any]:
    return [
        now,
        [one.id for one in claims],
        [one.scope for one in claims],
        [one.key for one in claims],
        [one.nonce for one in claims],
        [one.lease for one in claims],
        [one.fingerprint for one in claims],
        [text_of(one.arguments) for one in claims],
        [one.after_crash._value_ for one in claims],
        [one.max_attempts for one in claims],
        [one.owner for one in claims],
        [text_of(one.note) for one in claims],
        locks,
    ]


def complete_values(completions: Sequence[Complete], now: int | None) -> list[Any]:
    return [
        now,
        [one.id for one in completions],
        [one.token for one in completions],
        [one.nonce for one in completions],
        [one.result for one in completions],
        [one.digest for one in completions],
        [one.stored for one in completions],
        [one.validity.lasting for one in completions],
        [one.validity.until for one in completions],
        [one.validity.slide for one in completions],
        [None if one.of is None else one.of.updated_at for one in completions],
        [None if one.of is None else text_of(one.of.note) for one in completions],
    ]


def renew_values(renewals: Sequence[Renewal], now: int | None) -> list[Any]:
    return [
        now,
        [one.id for one in renewals],
        [one.token for one in renewals],
        [one.nonce for one in renewals],
        [one.lease for one in renewals],
    ]
