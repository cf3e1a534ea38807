"""Match paths: literally, with `{id}` for one segment, and with `{rest:path}` or `*` for any number of segments."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from onceward.errors import ConfigurationError

_PLACEHOLDER: Final = re.compile(r"(\{[^{}]*\}|\*)")
_ANY_SEGMENTS: Final = ":path}"


class Routes:
    """Path patterns, each with whether a key is required there."""

    def __init__(self, required: Iterable[str], optional: Iterable[str]) -> None:
        self._exact: dict[str, bool | None] = {}
        self._patterns: list[tuple[re.Pattern[str], bool | None]] = []
        for route, is_required in (*((path, True) for path in required), *((path, False) for path in optional)):
            self._add(route, required=is_required)

    def _add(self, route: str, *, required: bool) -> None:
        if not isinstance(route, str) or not route.startswith(("/", "*")):
            raise ConfigurationError(
                f"{route!r} is not a route", hint='such as "/payments", "/orders/{id}/pay" or "/api/*"'
            )
        if _PLACEHOLDER.search(route) is None:
            self._exact.setdefault(route, required)
        else:
            self._patterns.append((re.compile(_expression(route), re.DOTALL), required))

    def __bool__(self) -> bool:
        return bool(self._exact or self._patterns)

    def required(self, path: str) -> bool | None:
        """Return True if the path requires a key, False if a key is optional, None if the path is not configured."""
        path = path.removesuffix("\n")  # Starlette's routes end with `$`, which also matches before a newline
        if path in self._exact:
            return self._exact[path]
        for pattern, required in self._patterns:
            if pattern.fullmatch(path) is not None:
                return required
        return None


def _expression(route: str) -> str:
    parts = []
    for piece in _PLACEHOLDER.split(route):
        if piece == "*" or piece.endswith(_ANY_SEGMENTS):
            parts.append(".*")
        elif piece.startswith("{"):
            parts.append("[^/]+")
        else:
            parts.append(re.escape(piece))
    return "".join(parts)
