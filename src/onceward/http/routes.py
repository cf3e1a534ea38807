"""Which paths are meant: as they are, `{id}` for one segment, `{rest:path}` or `*` for any number of them."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from onceward.errors import ConfigurationError

_HOLE: Final = re.compile(r"(\{[^{}]*\}|\*)")
_ANY_SEGMENTS: Final = ":path}"


class Routes:
    """Paths, each with the answer to whether a key is required there."""

    def __init__(self, required: Iterable[str], optional: Iterable[str]) -> None:
        self._exact: dict[str, bool | None] = {}
        self._patterns: list[tuple[re.Pattern[str], bool | None]] = []
        for route, is_required in (*((one, True) for one in required), *((one, False) for one in optional)):
            self._add(route, required=is_required)

    def _add(self, route: str, *, required: bool) -> None:
        if not isinstance(route, str) or not route.startswith(("/", "*")):
            raise ConfigurationError(f"{route!r} is no route", hint='as in "/payments", "/orders/{id}/pay" or "/api/*"')
        if _HOLE.search(route) is None:
            self._exact.setdefault(route, required)
        else:
            self._patterns.append((re.compile(_expression(route), re.DOTALL), required))

    def __bool__(self) -> bool:
        return bool(self._exact or self._patterns)

    def required(self, path: str) -> bool | None:
        """True: with a key only. False: with a key if there is one. None: not our business."""
        path = path.removesuffix("\n")  # Starlette's routes end with `$`, which matches in front of it as well
        if path in self._exact:
            return self._exact[path]
        for pattern, required in self._patterns:
            if pattern.fullmatch(path) is not None:
                return required
        return None


def _expression(route: str) -> str:
    parts = []
    for piece in _HOLE.split(route):
        if piece == "*" or piece.endswith(_ANY_SEGMENTS):
            parts.append(".*")
        elif piece.startswith("{"):
            parts.append("[^/]+")
        else:
            parts.append(re.escape(piece))
    return "".join(parts)
