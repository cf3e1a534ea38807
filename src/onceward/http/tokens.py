"""Authenticate push requests: checks for the `check=` of an endpoint. A check returns whether a request may pass."""

from __future__ import annotations

import hmac
from collections.abc import Callable
from typing import Any, Final
from urllib.parse import parse_qs

from onceward.errors import ConfigurationError

from .messages import InboundRequest


class Refusal:
    """The result of a check that refuses a request; it is false. `reason` is logged but not sent: name no secrets."""

    __slots__ = ("reason",)

    def __init__(self, reason: str) -> None:
        self.reason = reason

    def __bool__(self) -> bool:
        return False


MISSING_TOKEN: Final = Refusal("missing_token")
WRONG_TOKEN: Final = Refusal("wrong_token")

Check = Callable[[InboundRequest], Any]
"""Called before the body is read: `request.body` is empty.

Return True to accept. To refuse, return False, or a `Refusal` that names the reason for the log, or raise ValueError or
PermissionError. Other exceptions mean 503."""


def bearer_token(*tokens: str) -> Check:
    """Return a check that requires `Authorization: Bearer …` with one of these `tokens`.

    Pass several while you rotate them. They are compared in constant time. Without a token, or with an empty one, it
    raises `ConfigurationError`.
    """
    known = _known(tokens)

    def check(request: InboundRequest) -> bool | Refusal:
        token = sent_bearer_token(request)
        if not token:
            return MISSING_TOKEN
        return True if _is_one_of(known, token) else WRONG_TOKEN

    return check


def query_token(*tokens: str, parameter: str = "token") -> Check:
    """Return a check that requires `?token=…` with one of these `tokens`, as in the URL of a push subscription.

    `parameter` is the name of the parameter in the URL. Access logs may contain the token: prefer a header if you can.
    Without a token, or with an empty one, it raises `ConfigurationError`.
    """
    known = _known(tokens)

    def check(request: InboundRequest) -> bool | Refusal:
        given = parse_qs(request.query).get(parameter, [])
        if not given:
            return MISSING_TOKEN
        return True if len(given) == 1 and _is_one_of(known, given[0]) else WRONG_TOKEN

    return check


def sent_bearer_token(request: InboundRequest) -> str:
    """Return the token of `Authorization: Bearer …`, or "" if there is none.

    Args:
        request: The request, with its headers.
    """
    kind, _, token = request.header("authorization").partition(" ")
    return token.strip() if kind.lower() == "bearer" else ""


def _known(tokens: tuple[str, ...]) -> list[bytes]:
    if not tokens or not all(isinstance(token, str) and token for token in tokens):
        raise ConfigurationError(
            "a check needs at least one non-empty token", hint="an empty token would accept every request"
        )
    return [token.encode() for token in tokens]


def _is_one_of(known: list[bytes], given: str) -> bool:
    found = False
    for token in known:
        found |= hmac.compare_digest(token, given.encode("utf-8", "replace"))
    return found
