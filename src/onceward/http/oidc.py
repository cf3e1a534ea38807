"""Verify the OpenID Connect tokens that Google signs for Pub/Sub push, Cloud Tasks, Cloud Scheduler and Eventarc.

    check = google_oidc("https://shop.example/push", email="push@project.iam.gserviceaccount.com")
    push = PubSubPush(once, "orders", check=check)

A token is accepted if Google signed it with RS256, if it has not expired, and if it names our audience and the e-mail
address of the expected service account, which Google has verified. The public keys are cached. If a token has an
unknown key, they are fetched again, at most once per `refresh_interval`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from onceward.errors import ConfigurationError
from onceward.protocol.duration import Duration, microseconds
from onceward.protocol.policy import SECOND

from .id_tokens import MALFORMED, KeysUnavailable, PublicKeys, key_client, verified_claims
from .messages import InboundRequest
from .tokens import MISSING_TOKEN, Check, Refusal, sent_bearer_token

__all__ = ["KeysUnavailable", "google_oidc"]

GOOGLE_ISSUERS: Final = ("https://accounts.google.com", "accounts.google.com")
GOOGLE_KEYS: Final = "https://www.googleapis.com/oauth2/v3/certs"
MAX_TOKEN: Final = 8192
"""Characters. Google's tokens have fewer than 2,000."""


def google_oidc(
    audience: str | Iterable[str],
    *,
    email: str | Iterable[str],
    issuers: Iterable[str] = GOOGLE_ISSUERS,
    keys_url: str = GOOGLE_KEYS,
    max_clock_skew: Duration = "10s",
    keep_keys: Duration = "1h",
    refresh_interval: Duration = "30s",
) -> Check:
    """Return a check that requires `Authorization: Bearer …` with a Google token.

    Args:
        audience: The audience of the push subscription, or several. Google's default is the URL of the endpoint.
        email: The address of its service account, or several.
        issuers: Accepted issuers, for another provider.
        keys_url: Where the provider publishes its public keys.
        max_clock_skew: How far the clocks of Google and this machine may differ.
        keep_keys: How long public keys are cached.
        refresh_interval: The minimum time between two requests for public keys, if tokens name an unknown one.

    Returns:
        The function to pass as `check=`.

    Raises:
        ConfigurationError: An audience or address is empty, or a duration cannot be read.
        MissingExtra: The package that verifies tokens is not installed.
    """
    audiences, addresses = _texts("audience", audience), _texts("email", email)
    trusted = _texts("issuers", issuers)
    leeway = microseconds(max_clock_skew, "max_clock_skew") / SECOND
    keys = PublicKeys(key_client(keys_url, keep_keys), microseconds(refresh_interval, "refresh_interval") / SECOND)

    def check(request: InboundRequest) -> bool | Refusal:
        token = sent_bearer_token(request)
        if not token:
            return MISSING_TOKEN
        if len(token) > MAX_TOKEN:
            return MALFORMED
        claims = verified_claims(keys, token, audiences, trusted, leeway)
        if isinstance(claims, Refusal):
            return claims
        if claims["email"] not in addresses:
            return Refusal("wrong_email")
        return True if claims["email_verified"] is True else Refusal("unverified_email")

    return check


def _texts(name: str, given: str | Iterable[str]) -> list[str]:
    texts = [given] if isinstance(given, str) else list(given)
    if not texts or not all(isinstance(text, str) and text for text in texts):
        raise ConfigurationError(
            f"google_oidc needs a non-empty {name}",
            hint="without it, tokens issued for other services would be accepted",
        )
    return texts
