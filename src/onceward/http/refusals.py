"""Why a request that ran has no stored response: exceptions that its claim is settled with."""

from __future__ import annotations


class RequestRefused(Exception):
    """The application refused the request before it started any work: 401, 403, 425, 429 or another 4xx to retry."""


class RequestFailed(Exception):
    """The application answered 408 or 5xx: it is unknown how much of the work was done."""
