"""Limit how often an address may try a token, a password or a session cookie.

Behind a proxy, all visitors have one address. A browser that has signed in gets a random cookie: its attempts are
counted by the user it signed in as, and not by its address. So a stranger's wrong attempts do not lock it out.
"""

from __future__ import annotations

import math
import secrets
import time
from collections import OrderedDict, deque
from collections.abc import Callable
from ipaddress import IPv6Address, IPv6Network, ip_address
from typing import Final

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

MAX_FAILURES: Final = 10
SECONDS: Final = 60
"""An address with this many wrong secrets within this time has to wait, even if it then sends the right one."""

MAX_ADDRESSES: Final = 10_000
"""Beyond this number, the address that failed first is forgotten."""

MAX_KNOWN: Final = 10_000
"""Beyond this number, the browser that signed in first is forgotten."""

KNOWN_COOKIE: Final = "onceward_known"
IPV6_NETWORK: Final = 64
"""Bits of an IPv6 address that count: one customer of a provider has all addresses of such a network."""


class SignInLimit:
    """Counts wrong secrets in the memory of this process."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._failures: OrderedDict[str, deque[float]] = OrderedDict()
        self._known: OrderedDict[str, str] = OrderedDict()  # cookies of browsers that have signed in, and the user

    def seconds_to_wait(self, request: Request) -> int:
        """Return how long the sender has to wait before the next attempt; 0 if they may try now."""
        failures = self._failures.get(self._sender(request))
        if failures is None or len(failures) < MAX_FAILURES:
            return 0
        return max(0, math.ceil(failures[0] + SECONDS - self._clock()))

    def count_failure(self, request: Request) -> None:
        self._failures.setdefault(self._sender(request), deque(maxlen=MAX_FAILURES)).append(self._clock())
        while len(self._failures) > MAX_ADDRESSES:
            self._failures.popitem(last=False)

    def remember(self, request: Request, user: str) -> str | None:
        """Return the cookie for a browser that has signed in; None if it has one."""
        if request.cookies.get(KNOWN_COOKIE) in self._known:
            return None
        cookie = secrets.token_urlsafe(24)
        self._known[cookie] = user
        while len(self._known) > MAX_KNOWN:
            self._known.popitem(last=False)
        return cookie

    def _sender(self, request: Request) -> str:
        user = self._known.get(request.cookies.get(KNOWN_COOKIE, ""))
        return address_of(request) if user is None else f"user {user}"


def address_of(request: Request) -> str:
    """Return the address of the sender, or its network. Headers say nothing about it: any sender can invent them."""
    host = request.client.host if request.client is not None else ""
    try:
        address = ip_address(host)
    except ValueError:
        return host
    if isinstance(address, IPv6Address) and address.ipv4_mapped is None:
        return str(IPv6Network((int(address), IPV6_NETWORK), strict=False))
    return str(getattr(address, "ipv4_mapped", None) or address)


def wait_text(seconds: int) -> str:
    return f"Too many wrong attempts from your address. Wait {seconds} s, then try again."


def too_many(seconds: int) -> Response:
    """Return the answer to a request that carries a secret, from an address that has to wait."""
    return PlainTextResponse(wait_text(seconds), 429, {"retry-after": str(seconds)})
