"""One message about the last action, shown on the next page. It travels in a short-lived cookie."""

from __future__ import annotations

import base64
import binascii
from dataclasses import dataclass
from typing import TYPE_CHECKING

from starlette.requests import Request
from starlette.responses import Response

if TYPE_CHECKING:
    from .visit import Visit

COOKIE = "onceward_flash"
MAX_AGE = 20  # seconds: the redirect follows at once
MAX_BYTES = 1200  # of each of the two texts: a browser drops a cookie of more than 4096 bytes


@dataclass(frozen=True)
class Flash:
    """A message: something was done, or could not be done."""

    done: str = ""
    problem: str = ""


class Flashes:
    """Write and read the cookie. Its text comes from the browser, so it is shown escaped, like any other text."""

    def put(self, response: Response, visit: Visit, *, done: str, problem: str) -> None:
        value = f"{_encoded(done)}.{_encoded(problem)}"
        visit.console.set_cookie(response, visit.request, COOKIE, value, max_age=MAX_AGE)

    def take(self, request: Request) -> Flash:
        done, _, problem = request.cookies.get(COOKIE, "").partition(".")
        try:
            return Flash(_decoded(done), _decoded(problem))
        except (ValueError, binascii.Error):
            return Flash()


def _encoded(text: str) -> str:
    return base64.urlsafe_b64encode(text.encode("utf-8", "replace")[:MAX_BYTES]).decode("ascii")


def _decoded(text: str) -> str:
    """Return the text. A character that was cut in half is left out."""
    return base64.urlsafe_b64decode(text).decode("utf-8", "ignore")
