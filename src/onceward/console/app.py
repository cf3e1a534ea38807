"""`Console`: the ASGI application. Every request passes `_answer`, which checks access before a page sees it."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.routing import Mount, Route, Router
from starlette.staticfiles import StaticFiles
from starlette.types import Receive, Scope, Send

from onceward.administration import Admin, Redaction
from onceward.client.aio import AsyncOnce
from onceward.client.sync import Once
from onceward.errors import ConfigurationError, OncewardError, StoreUnavailable
from onceward.protocol.secrets import text_without_secrets

from . import csrf
from .access import Access, Authorize, Level, granted_access
from .auth import SESSION_COOKIE, BasicAuth, LoopbackOnly, TokenAuth
from .flash import COOKIE as FLASH_COOKIE
from .flash import Flashes
from .page import Action, Page, built_in_pages, in_menu_order
from .security_headers import add_security_headers
from .sign_in import remember, sign_in, sign_out
from .sign_in_limit import SignInLimit, too_many
from .visit import Form, Visit

if TYPE_CHECKING:  # an optional dependency
    from onceward.people.aio import AsyncPeople
    from onceward.people.people import People

MAX_FORM = 2_000_000  # bytes: a bulk action lists its records
MAX_FIELDS = 2000

log = logging.getLogger("onceward.console")


class Console:
    """Show and change records in a browser. An ASGI application: run it, or mount it in another one.

    - `once`: the client whose store is shown.
    - `authorize(request)` returns what the sender may do: "none", "read", "act", "admin", or an `Access` that also
      limits scopes and tenants. Without it, only requests from this machine are answered.
    - `write`: whether the console may change anything. Without it, everybody has at most the level "read".
    - `pages`: pages of your own, in addition to the built-in ones.
    - `title`: the name in the page's header, such as the environment.
    - `people`: the `People` or `AsyncPeople` whose open questions and imports are shown.
    - `redaction`: which fields of results and inputs are hidden: `Redaction("password", "iban")`.
    """

    def __init__(
        self,
        once: Once | AsyncOnce,
        *,
        authorize: Authorize | None = None,
        write: bool = False,
        pages: Sequence[Page] = (),
        title: str = "Onceward",
        people: People | AsyncPeople | None = None,
        redaction: Redaction | None = None,
    ) -> None:
        if not isinstance(once, Once | AsyncOnce):
            raise ConfigurationError(
                f"Console needs a Once or AsyncOnce, not {type(once).__name__}", hint="Console(Once(store))"
            )
        self.once = once
        self.write = write
        self.title = title
        self.authorize: Authorize = LoopbackOnly() if authorize is None else authorize
        self.pages = in_menu_order([*built_in_pages(), *pages])
        self.flashes = Flashes()
        self.sign_in_limit = SignInLimit()
        self.admin = Admin.of(once, people=people, redaction=redaction)
        self._router = Router([*self._routes()], redirect_slashes=True)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request as an ASGI application, with `scope`, `receive` and `send` as ASGI defines them."""
        if scope["type"] == "lifespan":
            await self._router.lifespan(scope, receive, send)
            return
        if scope["type"] != "http":
            await send({"type": "websocket.close"})  # there are no websockets here
            return
        try:
            await self._router(scope, receive, add_security_headers(send))
        except HTTPException as error:
            response = PlainTextResponse(error.detail, error.status_code)
            await response(scope, receive, add_security_headers(send))

    def _routes(self) -> list[Route | Mount]:
        routes: list[Route | Mount] = [
            Mount("/static", StaticFiles(packages=[("onceward.console", "static")])),
            Route("/", self._home),
            Route("/sign-in", self._sign_in, methods=["GET", "POST"]),
            Route("/sign-out", self._sign_out, methods=["POST"]),
        ]
        for page in self.pages:
            routes += [
                Route(action.path, self._endpoint(page, action), methods=[action.method]) for action in page.actions
            ]
        return [*routes, Route("/{rest:path}", self._endpoint(None, NOT_FOUND))]

    def _endpoint(self, page: Page | None, action: Action) -> Any:
        async def endpoint(request: Request) -> Response:
            return await self._answer(request, page, action)

        return endpoint

    async def _home(self, request: Request) -> Response:
        return RedirectResponse(f"{request.scope.get('root_path', '').rstrip('/')}/overview")

    async def access_of(self, request: Request) -> Access:
        """Return what the sender of this request may do here."""
        access = await granted_access(self.authorize, request)
        return access if self.write else access.at_most(Level.READ)

    async def _answer(self, request: Request, page: Page | None, action: Action) -> Response:
        sends_secret = isinstance(self.authorize, BasicAuth | TokenAuth) and (
            "authorization" in request.headers or SESSION_COOKIE in request.cookies
        )
        if sends_secret and (seconds := self.sign_in_limit.seconds_to_wait(request)):
            return too_many(seconds)
        access = await self.access_of(request)
        if sends_secret and not access.allows(Level.READ):
            self.sign_in_limit.count_failure(request)
        form = await read_form(request) if request.method == "POST" else Form()
        visit = Visit(self, request, access, page, form)
        if not access.allows(Level.READ):
            response = self._challenge(visit)
            if SESSION_COOKIE in request.cookies:  # of an earlier token: each request with it would count as an attempt
                response.delete_cookie(SESSION_COOKIE, path=cookie_path(request))
            return response
        refusal = self._refusal(visit, page, action)
        if refusal:
            return self._finished(visit, visit.render("refused.html", 403, reason=refusal))
        try:
            response = await action.handler(visit)
        except OncewardError as error:
            response = error_page(visit, error)
        if isinstance(self.authorize, BasicAuth) or SESSION_COOKIE in request.cookies:
            remember(visit, response, access.user)
        return self._finished(visit, response)

    def _refusal(self, visit: Visit, page: Page | None, action: Action) -> str:
        """Return why this request must not be answered; empty if it may be."""
        if page is not None and page.needs_all and visit.access.is_limited:
            return "This page shows data of all scopes and tenants, but your access is limited to some of them."
        if action.method == "POST":
            if not self.write:
                return "This console is read-only. Start it with --write, or pass write=True, to allow changes."
            if not csrf.is_same_origin(visit.request):
                return "The request comes from another site, so nothing was changed."
            if not csrf.has_token(visit.request, visit.form):
                return (
                    "The form has expired, or cookies are blocked. Nothing was changed; reload the page and try again."
                )
        if not visit.access.allows(action.needs):
            return f"This needs the access level {action.needs.name.lower()!r}. Nothing was changed."
        return ""

    def _challenge(self, visit: Visit) -> Response:
        """Ask for credentials in the way that the configured authentication understands."""
        if isinstance(self.authorize, BasicAuth):
            headers = {"www-authenticate": 'Basic realm="Onceward console", charset="UTF-8"'}
            return PlainTextResponse("sign in with user and password", 401, headers)
        if isinstance(self.authorize, TokenAuth):
            if visit.request.method == "GET" and "text/html" in visit.request.headers.get("accept", ""):
                return RedirectResponse(visit.url("sign-in", next=visit.here), 303)
            return PlainTextResponse("sign in with a token", 401, {"www-authenticate": "Bearer"})
        if isinstance(self.authorize, LoopbackOnly):
            return PlainTextResponse(
                "This console accepts only requests from its own machine until authentication is configured.", 403
            )
        return PlainTextResponse("you have no access to this console", 403)

    def _finished(self, visit: Visit, response: Response) -> Response:
        """Set the cookies of an answer."""
        if visit.request.cookies.get(csrf.COOKIE) != visit.csrf_token:
            self.set_cookie(response, visit.request, csrf.COOKIE, visit.csrf_token)
        if FLASH_COOKIE in visit.request.cookies and visit.request.method == "GET":
            response.delete_cookie(FLASH_COOKIE, path=cookie_path(visit.request))
        return response

    def set_cookie(
        self, response: Response, request: Request, name: str, value: str, max_age: int | None = None
    ) -> None:
        """Set a cookie that no script can read and no other site can send."""
        response.set_cookie(
            name,
            value,
            max_age=max_age,
            path=cookie_path(request),
            secure=request.scope["scheme"] == "https",
            httponly=True,
            samesite="strict",
        )

    async def _sign_in(self, request: Request) -> Response:
        form = await read_form(request) if request.method == "POST" else Form()
        visit = Visit(self, request, Access(), None, form)
        return self._finished(visit, sign_in(visit))

    async def _sign_out(self, request: Request) -> Response:
        visit = Visit(self, request, Access(), None, await read_form(request))
        return self._finished(visit, sign_out(visit))


def cookie_path(request: Request) -> str:
    return request.scope.get("root_path", "").rstrip("/") or "/"


async def read_form(request: Request) -> Form:
    """Return the fields of a form. Files are not accepted."""
    body = b""
    async for chunk in request.stream():
        body += chunk
        if len(body) > MAX_FORM:
            raise HTTPException(413, "the form is too large")
    try:
        return Form(parse_qsl(body.decode("utf-8"), keep_blank_values=True, max_num_fields=MAX_FIELDS))
    except ValueError:
        raise HTTPException(400, "the form is not valid") from None


def error_page(visit: Visit, error: OncewardError) -> Response:
    """Return a page with the error's message and hint. Passwords in it are hidden."""
    status = 503 if isinstance(error, StoreUnavailable) else 409 if visit.request.method == "POST" else 400
    log.warning("%s %r: %s", visit.request.method, visit.request.scope["path"], type(error).__name__)
    return visit.render("error.html", status, message=text_without_secrets(str(error)), kind=type(error).__name__)


async def not_found(visit: Visit) -> Response:
    return visit.render("not_found.html", 404)


NOT_FOUND = Action("GET", "", not_found, Level.READ)
