"""Contents for the tests: two small documents, and one that is too large for one request."""

from __future__ import annotations

from collections.abc import Iterator

from onceward import content_key
from onceward.objects.backend import PIECE
from onceward.objects.cloud import MAX_SINGLE_UPLOAD

PDF = b"%PDF-1.7 one"
OTHER = b"%PDF-1.7 two"
LARGE = MAX_SINGLE_UPLOAD + 3 * PIECE + 5


def large() -> Iterator[bytes]:
    """Yield more than fits into one request, piece by piece."""
    for number in range(LARGE // PIECE):
        yield bytes([number % 251]) * PIECE
    yield b"12345"


LARGE_KEY = content_key(b"".join(large()))
