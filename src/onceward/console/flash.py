"""One message about the last action, shown on the next page. It travels in a short-lived cookie."""

from __future__ import annotations

import base64
import binascii
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

from starlette.requests import Request
from starlette.responses import Response

if TYPE_CHECKING:
    from .visit import Visit

COOKIE = "onceward_flash"
MAX_AGE = 20  # seconds: the redirect follows at once
MAX_LENGTH = 600  # characters: a cookie has 4096 bytes


@dataclass(frozen=True)
class Flash:
    """A message: something was done, or could not be done."""

    done: str = ""
    problem: str = ""


class Flashes:
    """Write and read the cookie. Its text comes from the browser, so it is shown escaped, like any other text."""

    def put(self, response: Response, visit: Visit, *, done: str, problem: str) -> None:
        text = json.dumps([done[:MAX_LENGTH], problem[:MAX_LENGTH]])
        value = base64.urlsafe_b64encode(text.encode()).decode()
        visit.console.set_cookie(response, visit.request, COOKIE, value, max_age=MAX_AGE)

    def take(self, request: Request) -> Flash:
        value = request.cookies.get(COOKIE, "")
        try:
            done, problem = json.loads(base64.urlsafe_b64decode(value)) if value else ("", "")
            return Flash(str(done), str(problem))
        except (ValueError, TypeError, binascii.Error):
            return Flash()
