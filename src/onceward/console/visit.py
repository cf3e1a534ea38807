"""One request to the console: who sent it, what it asks for, and how to answer it."""

from __future__ import annotations

import inspect
from collections.abc import Coroutine, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import quote, urlencode

from starlette.concurrency import run_in_threadpool
from starlette.datastructures import ImmutableMultiDict
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from onceward.administration import Admin
from onceward.client.sync import Once
from onceward.runtime.threads import run

from . import csrf
from .access import Access, Level
from .page import Page
from .rendering import TEMPLATES
from .table import Table

if TYPE_CHECKING:
    from .app import Console

T = TypeVar("T")
Form = ImmutableMultiDict[str, str]
MAX_DIGITS = 19  # of a 64-bit integer; for thousands of digits, `int` would raise


def is_sync(people: object) -> bool:
    """Return whether calls of these people block."""
    return not inspect.iscoroutinefunction(getattr(people, "reviews", None))


def whole_number(text: str, default: int) -> int:
    """Return the number that a browser sent, or `default` if the text is not a number."""
    return int(text) if text.isdecimal() and len(text) <= MAX_DIGITS else default


class Visit:
    """One request. Pages read filters from it, call the store through it and answer with it."""

    def __init__(self, console: Console, request: Request, access: Access, page: Page | None, form: Form) -> None:
        self.console = console
        self.once = console.once
        self.request = request
        self.access = access
        self.page = page
        self.form = form
        self.csrf_token = csrf.token_of(request)

    @property
    def admin(self) -> Admin:
        """What the visitor may see and change, through the administration of the library."""
        return self.console.admin.limited(self.access.visible, self.who)

    @property
    def who(self) -> str:
        """The name of the visitor for the audit trail."""
        return f"{self.access.user or 'someone'} (console)"

    def menu(self) -> list[tuple[str, list[Page]]]:
        """Return the headings of the menu and their pages, without pages that the visitor may not see."""
        groups: dict[str, list[Page]] = {}
        for page in self.console.pages:
            if page.group and not (page.needs_all and self.access.is_limited):
                groups.setdefault(page.group, []).append(page)
        return list(groups.items())

    @property
    def path(self) -> Mapping[str, str]:
        """The parts of the path that the page's route names."""
        return self.request.path_params

    def filter(self, name: str) -> str:
        """Return the filter `name` of the query string; empty if it is not set."""
        return self.request.query_params.get(name, "").strip()

    def filters(self, *names: str) -> dict[str, str]:
        """Return these filters by their `names`; those that are not set are empty."""
        return {name: self.filter(name) for name in names}

    async def call(self, flow: Coroutine[Any, Any, T]) -> T:
        """Run a `flow` of the library and return its result: in a thread for `Once`, on this loop for `AsyncOnce`."""
        if isinstance(self.once, Once):
            return await run_in_threadpool(run, flow)
        return await flow

    async def call_people(self, flow: Coroutine[Any, Any, T]) -> T:
        """Run a `flow` that uses only the database of people, and return its result: in a thread for `People`."""
        people = self.console.admin.people
        return await run_in_threadpool(run, flow) if is_sync(people) else await flow

    async def store_time(self) -> datetime:
        """Return the time of the store's clock."""
        return (await self.call(self.admin.keys(limit=1))).now

    def may(self, level: str) -> bool:
        """Return whether the visitor has at least this `level`: "read", "act" or "admin"."""
        return self.access.allows(Level[level.upper()])

    def url(self, path: str, /, **query: object) -> str:
        """Return the address of a `path` of the console, below the path at which it is mounted.

        `query` are the fields of the query string, with any name. Empty ones are left out.
        """
        root = self.request.scope.get("root_path", "").rstrip("/")
        asked = {name: value for name, value in query.items() if value not in ("", None)}
        return quote(f"{root}/{path.lstrip('/')}", safe="/") + (f"?{urlencode(asked)}" if asked else "")

    def same_page(self, /, **changes: object) -> str:
        """Return the address of this page with `changes` to its filters. A new filter starts at the first page."""
        query = dict(self.request.query_params.items())
        if "after" not in changes:
            query.pop("after", None)
        query |= {name: str(value) for name, value in changes.items() if value is not None}
        root = self.request.scope.get("root_path", "").rstrip("/")
        return self.url(self.request.scope["path"].removeprefix(root), **query)

    @property
    def here(self) -> str:
        """The address of this page, with all of its filters."""
        return self.same_page(after=self.filter("after"))

    def back(self, default: str, *, target: str | None = None, done: str = "", problem: str = "") -> Response:
        """Return a redirect to the page that the form was on, which shows a message there.

        Args:
            default: The path of the console to go to if the form names no page, or one of another site.
            target: The page to go to instead.
            done: The message about what was done.
            problem: The message about what went wrong.
        """
        target = self.form.get("back", "") if target is None else target
        root = self.request.scope.get("root_path", "").rstrip("/")
        is_ours = target.startswith(f"{root}/") and not target.startswith(("//", "/\\")) and "\\" not in target
        response = RedirectResponse(target if is_ours else self.url(default), status_code=303)
        self.console.flashes.put(response, self, done=done, problem=problem)
        return response

    def render(self, template: str, status: int = 200, **values: Any) -> Response:
        """Return a page. A request by htmx gets the same page: it selects the part that it replaces.

        `template` is the file of the template, `status` the HTTP status, and `values` are its variables.
        """
        flash = self.console.flashes.take(self.request)
        context = {"visit": self, "console": self.console, "page": self.page, "flash": flash, **values}
        return Response(TEMPLATES.get_template(template).render(context), status, media_type="text/html")

    def table(self, template: str, table: Table, **values: Any) -> Response:
        """Return a page with a `table`, or only the table as JSON or CSV if the address ends with `format=…`.

        `template` and `values` are those of `render`.
        """
        kind = self.filter("format")
        if kind == "json":
            return Response(table.as_json(), media_type="application/json")
        if kind == "csv":
            name = f"onceward-{table.name}.csv"
            headers = {"content-disposition": f'attachment; filename="{name}"'}
            return Response(table.as_csv(), media_type="text/csv", headers=headers)
        return self.render(template, table=table, **values)
