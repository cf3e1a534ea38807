"""The page registry. A page is one file in `pages/`: its address, its place in the menu, and what its requests do."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from importlib import import_module
from pkgutil import iter_modules
from typing import TYPE_CHECKING

from starlette.responses import Response

from .access import Level

if TYPE_CHECKING:
    from .visit import Visit

Handler = Callable[["Visit"], Awaitable[Response]]


@dataclass(frozen=True)
class Action:
    """One request that a page answers. A POST is refused if the console is read-only."""

    method: str
    path: str
    handler: Handler
    needs: Level


@dataclass
class Page:
    """One page of the console.

    - `name`: the first part of its address, and its name in the menu's links.
    - `title`: what the menu shows.
    - `group`: the heading in the menu under which it is listed. Empty: not listed.
    - `order`: its place in the group.
    - `needs_all`: hidden from visitors who see only some scopes or tenants, because its data have neither.
    - `actions`: filled by `get` and `post`.
    """

    name: str
    title: str
    group: str = ""
    order: int = 100
    needs_all: bool = False
    actions: list[Action] = field(default_factory=list)

    def get(self, path: str = "", *, needs: Level = Level.READ) -> Callable[[Handler], Handler]:
        """Return a decorator for the handler of GET requests to a `path` below the page's address.

        Visitors with a lower level than `needs` get 403.
        """
        return self._add("GET", path, needs)

    def post(self, path: str, *, needs: Level = Level.ACT) -> Callable[[Handler], Handler]:
        """Return a decorator for the handler of POST requests to a `path` below the page's address.

        Origin, CSRF token and access are checked before it runs. Visitors with a lower level than `needs` get 403.
        """
        return self._add("POST", path, needs)

    def _add(self, method: str, path: str, needs: Level) -> Callable[[Handler], Handler]:
        def register(handler: Handler) -> Handler:
            self.actions.append(Action(method, f"/{self.name}{path}", handler, needs))
            return handler

        return register


def built_in_pages() -> list[Page]:
    """Return the pages of all files in `pages/`, in the order of the menu."""
    from . import pages

    found = [import_module(f"{pages.__name__}.{file.name}") for file in iter_modules(pages.__path__)]
    return in_menu_order(module.PAGE for module in found)


def in_menu_order(pages: Iterable[Page]) -> list[Page]:
    return sorted(
        pages, key=lambda page: (GROUPS.index(page.group) if page.group in GROUPS else len(GROUPS), page.order)
    )


GROUPS = ("Work", "Features", "System")
"""The headings of the menu, in order. Other headings follow."""
