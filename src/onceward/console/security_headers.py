"""Headers of every answer: no inline code or style, no framing, no sniffing, no caching of records."""

from __future__ import annotations

from starlette.datastructures import MutableHeaders
from starlette.types import Message, Send

SOURCES = {
    "default-src": "'none'",
    "script-src": "'self'",
    "style-src": "'self'",
    "img-src": "'self'",
    "connect-src": "'self'",
    "form-action": "'self'",
    "base-uri": "'none'",
    "frame-ancestors": "'none'",
}
POLICY = "; ".join(f"{name} {source}" for name, source in SOURCES.items())
HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "same-origin",  # addresses contain keys
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
}


def add_security_headers(send: Send) -> Send:
    """Return a `send` that adds the headers to the start of the answer."""

    async def send_with_headers(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            for name, value in HEADERS.items():
                headers[name] = value
            if not headers.get("etag"):  # only the static files have one
                headers["cache-control"] = "no-store"
        await send(message)

    return send_with_headers
