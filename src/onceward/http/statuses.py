"""What the status of the application's response means for the key."""

from __future__ import annotations

from typing import Final

SERVER_ERROR: Final = 500
RETRY_STATUSES: Final = frozenset((401, 403, 408, 425, 429, *range(SERVER_ERROR, 600)))
"""Statuses that free the key by default: the client may retry the same request."""

REDIRECTS: Final = frozenset((307, 308))
_REQUEST_TIMEOUT: Final = 408
WITHOUT_BODY: Final = frozenset((204, 205, 304))
"""Statuses of responses that have no body: servers refuse to send one."""


def says_not_started(status: int) -> bool:
    """Return whether a response that frees the key says that no work was started.

    Then even a key with `after_crash="park"` may be retried.
    """
    return status < SERVER_ERROR and status != _REQUEST_TIMEOUT


def is_redirect(status: int) -> bool:
    """Return whether the client must repeat the request, with method and body, at another URL: no work was started."""
    return status in REDIRECTS


class RequestRefused(Exception):
    """The application refused the request before it started any work: 401, 403, 425, 429 or a retryable 4xx."""


class RequestFailed(Exception):
    """The application answered 408 or 5xx: it is unknown how much of the work was done."""
