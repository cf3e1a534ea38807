"""Who is asking: the same for every framework. A real one checks a signature or a session; this one has a list."""

from __future__ import annotations

from typing import Any

TOKENS = {"Bearer alice-token": "alice", "Bearer bob-token": "bob"}


def of_scope(scope: Any) -> str | None:
    """The principal of an ASGI request."""
    sent = dict(scope["headers"]).get(b"authorization", b"")
    return TOKENS.get(sent.decode("latin-1"))


def of_environ(environ: Any) -> str | None:
    """The principal of a WSGI request."""
    return TOKENS.get(environ.get("HTTP_AUTHORIZATION", ""))
