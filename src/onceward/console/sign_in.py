"""The sign-in page of `TokenAuth`: it exchanges the token for a session cookie."""

from __future__ import annotations

from typing import TYPE_CHECKING

from starlette.responses import RedirectResponse, Response

from . import csrf
from .auth import SESSION_COOKIE, TokenAuth
from .sign_in_limit import KNOWN_COOKIE, wait_text

if TYPE_CHECKING:
    from .visit import Visit


def sign_in(visit: Visit) -> Response:
    """Show the form, or check the token that it sends."""
    authorize = visit.console.authorize
    if not isinstance(authorize, TokenAuth):
        return RedirectResponse(visit.url("overview"), 303)
    target = visit.form.get("next", visit.filter("next"))
    if visit.request.method == "GET":
        return visit.render("sign_in.html", next=target, problem="")
    if not csrf.is_same_origin(visit.request) or not csrf.has_token(visit.request, visit.form):
        return visit.render("sign_in.html", 403, next=target, problem="The form has expired. Try again.")
    limit = visit.console.sign_in_limit
    if seconds := limit.seconds_to_wait(visit.request):
        return visit.render("sign_in.html", 429, next=target, problem=wait_text(seconds))
    if not authorize.accepts(visit.form.get("token", "").strip()):
        limit.count_failure(visit.request)
        return visit.render("sign_in.html", 401, next=target, problem="This token is not valid here.")
    response = visit.back("overview", target=target)
    visit.console.set_cookie(response, visit.request, SESSION_COOKIE, authorize.session())
    remember(visit, response, authorize.access.user)
    return response


def remember(visit: Visit, response: Response, user: str) -> None:
    """Remember that this browser has signed in: wrong attempts of others do not lock it out."""
    known = visit.console.sign_in_limit.remember(visit.request, user)
    if known is not None:
        visit.console.set_cookie(response, visit.request, KNOWN_COOKIE, known)


def sign_out(visit: Visit) -> Response:
    """Delete the session cookie."""
    response = RedirectResponse(visit.url("sign-in"), 303)
    if csrf.is_same_origin(visit.request) and csrf.has_token(visit.request, visit.form):
        response.delete_cookie(SESSION_COOKIE, path=visit.url("").rstrip("/") or "/")
    return response
