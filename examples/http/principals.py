"""Identify the caller of a request, for all frameworks. A real application checks a signature or a session."""

from __future__ import annotations

from typing import Any

TOKENS = {"Bearer alice-token": "alice", "Bearer bob-token": "bob"}


def asgi_principal(scope: Any) -> str | None:
    """Return the principal of an ASGI request."""
    token = dict(scope["headers"]).get(b"authorization", b"")
    return TOKENS.get(token.decode("latin-1"))


def wsgi_principal(environ: Any) -> str | None:
    """Return the principal of a WSGI request."""
    return TOKENS.get(environ.get("HTTP_AUTHORIZATION", ""))
