"""Send the response that a transaction of the handler has committed: it is what every retry gets, byte for byte."""

from __future__ import annotations

import logging
from collections.abc import Iterable

from .config import IdempotencyConfig
from .semantics import Header, RawResponse

logger = logging.getLogger("onceward.http")
warned_names: set[bytes] = set()
"""Headers that this process has warned about."""

HEADER_HINT = "Add it with tx.respond(headers=…), or in a middleware outside the idempotency middleware"


def committed_headers(
    sent: Iterable[Iterable[bytes]], committed: RawResponse, config: IdempotencyConfig, hint: str = HEADER_HINT
) -> list[Header]:
    """Return the committed headers, and those of the application's response that are never stored, such as cookies.

    Headers that the application added after the commit are dropped, because retries could not get them. The warning
    ends with `hint`: where else to add them.
    """
    names = {name for name, _ in committed.headers}
    headers = [*committed.headers]
    for name, value in sent:
        lowered = name.lower()
        if lowered in config.not_stored:
            headers.append((lowered, value))
        elif lowered not in names and lowered not in warned_names:
            warned_names.add(lowered)
            logger.warning(
                "the header %s was added after the response was committed, so it is not sent: retries could not get it."
                " %s",
                lowered.decode("latin-1"),
                hint,
            )
    return headers
