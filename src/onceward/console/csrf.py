"""Protection of POST requests: they must come from a page of this console.

Two checks. The browser says where a request comes from (`Sec-Fetch-Site`, `Origin`): it must be the same origin. And
the form must repeat the random token of a `SameSite=Strict` cookie, which a foreign page can neither read nor send.
"""

from __future__ import annotations

import hmac
import re
import secrets
from collections.abc import Mapping
from urllib.parse import urlsplit

from starlette.requests import Request

COOKIE = "onceward_csrf"
FIELD = "csrf"
HEADER = "x-csrf-token"
_VALID = re.compile(r"[A-Za-z0-9_-]{32,64}")


def token_of(request: Request) -> str:
    """Return the token of this browser, or a new one."""
    token = request.cookies.get(COOKIE, "")
    return token if _VALID.fullmatch(token) else secrets.token_urlsafe(32)


def is_same_origin(request: Request) -> bool:
    """Return whether the browser says that the request comes from a page of this origin."""
    site = request.headers.get("sec-fetch-site")
    if site is not None and site not in ("same-origin", "none"):
        return False
    origin = request.headers.get("origin")
    if origin is not None:
        try:
            page = urlsplit(origin)
        except ValueError:
            return False
        # A proxy may speak plain http to the console, so that only the other direction is certain to be foreign.
        if page.scheme == "http" and request.scope["scheme"] == "https":
            return False
        return page.netloc.lower() == request.headers.get("host", "").lower()
    return site is not None or _is_from_program(request)


def _is_from_program(request: Request) -> bool:
    """Return whether a program sent it: one that signs in itself and has no cookies can be made to do nothing."""
    return request.headers.get("authorization", "").lower().startswith("bearer ") and not request.cookies


def has_token(request: Request, form: Mapping[str, str]) -> bool:
    """Return whether the form, or a header, repeats the token of the cookie."""
    if _is_from_program(request):
        return True
    cookie, given = request.cookies.get(COOKIE, ""), form.get(FIELD) or request.headers.get(HEADER, "")
    return bool(_VALID.fullmatch(cookie)) and hmac.compare_digest(cookie.encode(), given.encode())
