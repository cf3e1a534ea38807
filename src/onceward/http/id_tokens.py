"""Verify signed ID tokens with a provider's public keys, which are fetched and cached.

`oidc.py` decides which claims are accepted.
"""

from __future__ import annotations

import math
import threading
import time
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from onceward.errors import ConfigurationError, MissingExtra
from onceward.protocol.duration import Duration, microseconds
from onceward.protocol.policy import SECOND

from .tokens import Refusal

if TYPE_CHECKING:
    import jwt

ALGORITHMS: Final = ["RS256"]
REQUIRED_CLAIMS: Final = ["aud", "iss", "exp", "iat", "email", "email_verified"]

MALFORMED: Final = Refusal("malformed_token")
REASONS: Final = {
    "ExpiredSignatureError": "expired",
    "ImmatureSignatureError": "not_yet_valid",
    "InvalidAlgorithmError": "wrong_algorithm",
    "InvalidAudienceError": "wrong_audience",
    "InvalidIssuerError": "wrong_issuer",
    "InvalidSignatureError": "bad_signature",
    "MissingRequiredClaimError": "missing_claim",
}
"""Why a token is refused, by the error of PyJWT, which is imported only if it is used."""

FETCH_TIMEOUT: Final = 5.0
"""Seconds to fetch the public keys."""


class KeysUnavailable(Exception):
    """The public keys cannot be fetched, so the token cannot be verified: the endpoint returns 503."""


class PublicKeys:
    """The provider's public keys, which the client caches.

    If tokens name unknown keys, the keys are fetched again, by one thread at a time and at most once per interval, even
    if that fails. Tokens with a known key do not wait for it.
    """

    def __init__(self, client: jwt.PyJWKClient, interval: float) -> None:
        self._client = client
        self._interval = interval
        self._lock = threading.Lock()
        self._next_fetch = -math.inf
        self._has_failed = False

    def find(self, kid: str) -> jwt.PyJWK | None:
        """Return the key, or None if the provider does not publish it. Raise KeysUnavailable if that is unknown."""
        found = self._cached(kid)
        if found is not None:
            return found
        with self._lock:
            found = self._cached(kid)  # another thread may have fetched it
            if found is None and time.monotonic() >= self._next_fetch:
                self._has_failed, self._next_fetch = True, time.monotonic() + self._interval
                found = self._match(kid, refresh=True)
                self._has_failed = False
            if found is None and self._has_failed:
                raise KeysUnavailable("the public keys could not be fetched again")
        return found

    def _cached(self, kid: str) -> jwt.PyJWK | None:
        cache = self._client.jwk_set_cache
        if cache is None or cache.get() is None:  # the first token, or the keys have expired
            found = self._match(kid)
            self._has_failed, self._next_fetch = False, time.monotonic() + self._interval
            return found
        return self._match(kid)

    def _match(self, kid: str, *, refresh: bool = False) -> jwt.PyJWK | None:
        import jwt

        try:
            return self._client.match_kid(self._client.get_signing_keys(refresh), kid)
        except (jwt.PyJWTError, ValueError, OSError, RecursionError) as error:
            raise KeysUnavailable("the public keys cannot be fetched") from error


def verified_claims(
    keys: PublicKeys, token: str, audiences: list[str], issuers: list[str], leeway: float
) -> dict[str, Any] | Refusal:
    """Return the claims of a token with a valid signature, audience, issuer and time; else why it is refused."""
    import jwt

    try:
        kid = jwt.get_unverified_header(token).get("kid")
    except jwt.PyJWTError:
        return MALFORMED
    if not isinstance(kid, str):
        return MALFORMED
    key = keys.find(kid)
    if key is None:
        return Refusal("unknown_key")
    try:
        claims: dict[str, Any] = jwt.decode(
            token,
            key,
            algorithms=ALGORITHMS,
            audience=audiences,
            issuer=issuers,
            leeway=leeway,
            options={"require": REQUIRED_CLAIMS},
        )
    except (jwt.PyJWTError, ValueError, TypeError) as error:
        return Refusal(REASONS.get(type(error).__name__, MALFORMED.reason))
    return claims


def key_client(url: str, keep: Duration) -> jwt.PyJWKClient:
    try:
        from jwt import PyJWKClient
    except ImportError:
        raise MissingExtra("google_oidc needs PyJWT", hint="pip install 'onceward[oidc]'") from None
    parts = urlsplit(url)
    if parts.scheme != "https" and parts.hostname not in ("localhost", "127.0.0.1", "::1"):
        raise ConfigurationError(
            f"keys_url={url!r} is not encrypted: an attacker on the network could sign tokens",
            hint="use an https:// URL",
        )
    lifespan = microseconds(keep, "keep_keys") / SECOND
    if not lifespan:
        raise ConfigurationError("keep_keys=0 would fetch the keys for every request", hint='pass "1h"')
    return PyJWKClient(url, lifespan=lifespan, timeout=FETCH_TIMEOUT)
