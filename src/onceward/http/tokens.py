"""Who may push: checks for the `check=` of an endpoint. A check takes the request, and says whether it may pass."""

from __future__ import annotations

import hmac
from collections.abc import Callable
from typing import Any
from urllib.parse import parse_qs

from onceward.errors import ConfigurationError

from .messages import InboundRequest

Check = Callable[[InboundRequest], Any]
"""True: it may pass. False, a ValueError or a PermissionError: it may not. Anything else raised: nobody knows, 503."""


def bearer_token(*tokens: str) -> Check:
    """`Authorization: Bearer …` with one of these tokens, compared in constant time."""
    known = _known(tokens)

    def check(request: InboundRequest) -> bool:
        kind, _, token = request.header("authorization").partition(" ")
        return kind.lower() == "bearer" and _is_one_of(known, token.strip())

    return check


def query_token(*tokens: str, parameter: str = "token") -> Check:
    """`?token=…` with one of these, as a push subscription's URL may have it."""
    known = _known(tokens)

    def check(request: InboundRequest) -> bool:
        given = parse_qs(request.query).get(parameter, [])
        return len(given) == 1 and _is_one_of(known, given[0])

    return check


def _known(tokens: tuple[str, ...]) -> list[bytes]:
    if not tokens or not all(isinstance(one, str) and one for one in tokens):
        raise ConfigurationError("a check needs its token", hint="an empty one would let everybody in")
    return [one.encode() for one in tokens]


def _is_one_of(known: list[bytes], given: str) -> bool:
    found = False
    for one in known:
        found |= hmac.compare_digest(one, given.encode("utf-8", "replace"))
    return found
