"""Build the parameters of batch statements: one array per column of the requests."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from msgspec.structs import astuple

from onceward.protocol.requests import AnyRequest, ClaimRequest, Complete, Renewal
from onceward.stores.sql import json_text

from .values import MAX_BIGINT

MAX_DURATION = MAX_BIGINT // 2
"""A duration that can be added to any time without overflow."""


def group_by_kind(
    requests: Iterable[AnyRequest],
) -> tuple[list[ClaimRequest], list[Complete], list[Renewal], list[AnyRequest]]:
    claims: list[ClaimRequest] = []
    completions: list[Complete] = []
    renewals: list[Renewal] = []
    others: list[AnyRequest] = []
    for request in requests:
        if type(request) is ClaimRequest and has_plain_lease(request):
            claims.append(request)
        elif type(request) is Complete and is_simple(request):
            completions.append(request)
        elif type(request) is Renewal and not request.note and request.lease < MAX_DURATION:
            renewals.append(request)
        else:
            others.append(request)
    return claims, completions, renewals, others


def has_plain_lease(request: ClaimRequest) -> bool:
    return request.lease is None or request.lease < MAX_DURATION


def is_simple(request: Complete) -> bool:
    """Return whether one statement can complete it."""
    lasting = request.validity.lasting
    return not request.note and (lasting is None or lasting < MAX_DURATION)


def claim_values(
    claims: Sequence[ClaimRequest], now: int | None, locks_of: Callable[[Sequence[bytes]], list[int]]
) -> list[Any]:
    ids, scopes, keys, nonces, leases, fingerprints, arguments, after_crash, max_attempts, owners, notes = zip(
        *map(astuple, claims), strict=True
    )
    return [
        now,
        ids,
        scopes,
        keys,
        nonces,
        leases,
        fingerprints,
        _json_texts(arguments),
        [one._value_ for one in after_crash],
        max_attempts,
        owners,
        _json_texts(notes),
        locks_of(ids),
    ]


def complete_values(completions: Sequence[Complete], now: int | None) -> list[Any]:
    ids, tokens, nonces, results, digests, stored, validities, _ = zip(*map(astuple, completions), strict=True)
    return [
        now,
        ids,
        tokens,
        nonces,
        results,
        digests,
        stored,
        [one.lasting for one in validities],
        [one.until for one in validities],
        [one.slide for one in validities],
    ]


def _json_texts(mappings: Sequence[dict[str, str]]) -> list[str | None] | None:
    """Encode the mappings as JSON, or return None if all are empty, as they mostly are."""
    return [json_text(one) for one in mappings] if any(mappings) else None


def renew_values(renewals: Sequence[Renewal], now: int | None) -> list[Any]:
    return [
        now,
        [one.id for one in renewals],
        [one.token for one in renewals],
        [one.nonce for one in renewals],
        [one.lease for one in renewals],
    ]
