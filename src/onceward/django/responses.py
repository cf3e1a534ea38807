"""Convert between Django's requests and responses and those of the idempotency core."""

from __future__ import annotations

import hashlib
from typing import Any

from django.http import HttpResponse

from onceward.http.multipart import MultipartHash, split_boundary
from onceward.http.semantics import IdempotentRequest, RawResponse


def identity_of(request: Any, principal: str) -> IdempotentRequest:
    """Return what identifies a request, except its body."""
    meta = request.META
    return IdempotentRequest(
        principal,
        request.method,
        _encoded(meta.get("HTTP_HOST", "")).lower(),
        _encoded(request.path),
        _encoded(meta.get("QUERY_STRING", "")),
        split_boundary(_encoded(meta.get("CONTENT_TYPE", "")))[0],
    )


def body_digest(request: Any) -> bytes:
    """Return the digest of the body. That of a multipart body does not depend on its boundary."""
    boundary = split_boundary(_encoded(request.META.get("CONTENT_TYPE", "")))[1]
    hashed = MultipartHash(boundary) if boundary else hashlib.sha256()
    hashed.update(request.body)
    return hashed.digest()


def raw_response(response: Any) -> RawResponse:
    """Return a rendered response of Django as raw bytes. Cookies are left out: they are never stored."""
    headers = [(_encoded(name), _encoded(value)) for name, value in response.items()]
    return RawResponse(response.status_code, headers, bytes(response.content))


def django_response(raw: RawResponse) -> HttpResponse:
    """Return the response of Django for raw bytes."""
    response = HttpResponse(raw.body, status=raw.status)
    del response["Content-Type"]
    set_headers(response, raw)
    return response


def set_headers(response: Any, raw: RawResponse) -> None:
    """Set the headers. Django keeps one value per name: repeated ones are joined, as HTTP allows."""
    joined: dict[str, list[str]] = {}
    for name, value in raw.headers:
        joined.setdefault(name.decode("latin-1"), []).append(value.decode("latin-1"))
    for text, values in joined.items():
        response[text] = ", ".join(values)


def _encoded(text: str) -> bytes:
    try:
        return text.encode("latin-1")
    except UnicodeEncodeError:
        return text.encode("utf-8", "surrogatepass")
