"""Built-in authentication: by token, by user and password, or only from this machine."""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
from collections.abc import Mapping
from ipaddress import ip_address

from starlette.requests import Request

from onceward.errors import ConfigurationError

from .access import Access

SESSION_COOKIE = "onceward_session"
MIN_SECRET = 8
_names_this_machine = re.compile(r"(?:localhost|127\.0\.0\.1|\[::1\])(?::[0-9]+)?", re.IGNORECASE).fullmatch
FORWARDED = ("forwarded", "x-forwarded-for", "x-forwarded-host", "x-real-ip")


def is_loopback(host: str) -> bool:
    """Return whether this host is the machine itself."""
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


class LoopbackOnly:
    """Grant `access` to requests from this machine, and nothing to others.

    The `Host` header must name this machine, so that a foreign page whose name resolves to 127.0.0.1 gets nothing.
    A request that a proxy forwarded is refused, because the proxy's visitors may be anywhere.
    """

    def __init__(self, access: Access | None = None) -> None:
        self.access = Access("admin") if access is None else access

    def __call__(self, request: Request) -> Access | None:
        """Return the access of a `request` from this machine; None for any other."""
        client = request.client
        if client is None or not is_loopback(client.host):
            return None
        if any(name in request.headers for name in FORWARDED):
            return None
        # The header itself: for an invalid one, the request's address would name the server instead.
        return self.access if _names_this_machine(request.headers.get("host", "")) else None


class TokenAuth:
    """Grant `access` to requests with this token: `Authorization: Bearer …`, or signed in on the sign-in page."""

    def __init__(self, token: str, access: Access | None = None) -> None:
        check_secret("token", token)
        self._token = token.encode()
        self.access = Access("admin", user="token") if access is None else access

    def __call__(self, request: Request) -> Access | None:
        """Return the access of a `request` with the token, in a header or the sign-in cookie; else None."""
        kind, _, given = request.headers.get("authorization", "").partition(" ")
        if kind.lower() == "bearer" and hmac.compare_digest(given.strip().encode(), self._token):
            return self.access
        cookie = request.cookies.get(SESSION_COOKIE, "")
        return self.access if hmac.compare_digest(cookie.encode(), self.session().encode()) else None

    def session(self) -> str:
        """Return the value of the session cookie. It does not contain the token."""
        return hmac.new(self._token, b"onceward console session", hashlib.sha256).hexdigest()

    def accepts(self, token: str) -> bool:
        return hmac.compare_digest(token.encode(), self._token)


class BasicAuth:
    """Ask for user and password. `users` maps each name to a password, or to a password and an `Access`."""

    def __init__(self, users: Mapping[str, str | tuple[str, Access]]) -> None:
        self._users: dict[str, tuple[bytes, Access]] = {}
        for name, value in users.items():
            password, access = (value, Access("admin")) if isinstance(value, str) else value
            check_secret(f"password of {name}", password)
            own = access if access.user else Access(access.level, access.scopes, access.tenants, name)
            self._users[name] = _hashed(password), own
        if not self._users:
            raise ConfigurationError("BasicAuth needs a user", hint='BasicAuth({"ann": "a long password"})')

    def __call__(self, request: Request) -> Access | None:
        """Return the access of a `request` with a known user and password; else None."""
        kind, _, encoded = request.headers.get("authorization", "").partition(" ")
        if kind.lower() != "basic":
            return None
        try:
            name, _, password = base64.b64decode(encoded, validate=True).decode().partition(":")
        except ValueError:  # not base64, or not UTF-8
            return None
        known, access = self._users.get(name, (bytes(hashlib.sha256().digest_size), None))
        # Hashes have one length, so the time does not reveal which names exist.
        return access if hmac.compare_digest(_hashed(password), known) else None


def _hashed(password: str) -> bytes:
    return hashlib.sha256(password.encode("utf-8", "surrogatepass")).digest()


def check_secret(what: str, secret: str) -> None:
    if len(secret) < MIN_SECRET:
        raise ConfigurationError(
            f"the {what} has fewer than {MIN_SECRET} characters",
            hint="generate one: python -c 'import secrets; print(secrets.token_urlsafe(24))'",
        )
