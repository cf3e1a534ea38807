"""Who owns the key, as the framework knows it: dependencies, sessions, and middlewares in any order."""

from __future__ import annotations

import hashlib
import hmac
import logging
from collections.abc import Iterator
from typing import Annotated, Any

import pytest
from fastapi import APIRouter, Body, Depends, FastAPI, Header, HTTPException, Request, Security
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer
from starlette.applications import Starlette
from starlette.authentication import AuthCredentials, AuthenticationBackend, SimpleUser
from starlette.middleware.authentication import AuthenticationMiddleware
from starlette.requests import HTTPConnection
from starlette.responses import JSONResponse
from starlette.routing import Route

from onceward import AsyncOnce, ConfigurationError, Once
from onceward.http.asgi import IdempotencyMiddleware
from onceward.http.fastapi import Idempotency
from onceward.http.starlette import Idempotency as StarletteIdempotency
from tests.http.web_calls import WebClient

USERS = {"a-token": "alice", "b-token": "bob"}
bearer = HTTPBearer()
opened: list[str] = []


def get_users() -> Iterator[dict[str, str]]:
    """Open and close something, as a session of a database."""
    opened.append("open")
    yield USERS
    opened.append("closed")


async def current_user(
    credentials: HTTPAuthorizationCredentials = Security(bearer),  # noqa: B008 (as FastAPI wants it)
    users: dict[str, str] = Depends(get_users),  # noqa: B008
) -> str:
    user = users.get(credentials.credentials)
    if user is None:
        raise HTTPException(401, "unknown token", {"WWW-Authenticate": "Bearer"})
    return user


def shop_with(principal: Any, **settings: Any) -> tuple[FastAPI, Idempotency, list[Any]]:
    runs: list[Any] = []
    app = FastAPI()
    idem = Idempotency(AsyncOnce("memory://"), principal=principal, **settings)

    @app.post("/payments", dependencies=[idem.required])
    async def pay(order: Annotated[dict[str, Any], Body()]) -> int:
        runs.append(order)
        return len(runs)

    @app.post("/notes", dependencies=[idem.optional])
    async def note() -> str:
        runs.append("note")
        return "noted"

    @app.post("/tenants/{tenant}/payments", dependencies=[idem.required])
    async def pay_for(tenant: str) -> str:
        runs.append(tenant)
        return tenant

    idem.protect(app)
    return app, idem, runs


@pytest.mark.finding("N5")
def test_a_dependency_of_fastapi_is_the_principal() -> None:
    app, _, runs = shop_with(Depends(current_user))
    alice, bob, nobody = (WebClient(app, Authorization=f"Bearer {name}-token") for name in "abc")
    opened.clear()
    assert [alice.post("/payments", {"n": 1}).text for _ in range(2)] == ["1", "1"]
    assert opened == ["open", "closed"] * 2, "also for the replay, and its session is closed"
    assert bob.post("/payments", {"n": 1}).text == "2", "keys of another user"
    refused = nobody.post("/payments", {"n": 1})
    assert (refused.status_code, refused.json()) == (401, {"detail": "unknown token"})
    assert refused.headers["www-authenticate"] == "Bearer"
    assert len(runs) == 2
    for client in (alice, bob, nobody):
        client.close()


@pytest.mark.finding("N34")
def test_the_dependency_also_decides_on_optional_routes_without_a_key() -> None:
    app, _, runs = shop_with(Depends(current_user))
    nobody, alice = WebClient(app), WebClient(app, Authorization="Bearer a-token")
    assert nobody.post("/notes", key=None).status_code in (401, 403)
    assert runs == []
    assert alice.post("/notes", key=None).status_code == 200
    nobody.close()
    alice.close()


def test_overrides_of_tests_apply_to_the_principal() -> None:
    app, _, _ = shop_with(Depends(current_user))
    client = WebClient(app)
    app.dependency_overrides[current_user] = lambda: "carol"
    assert client.post("/payments", {"n": 1}).status_code == 200
    app.dependency_overrides = {}
    assert client.post("/payments", {"n": 1}).status_code in (401, 403)
    client.close()


def test_the_dependency_sees_path_parameters_and_the_state_of_the_application() -> None:
    def member(request: Request, tenant: str = "") -> str | None:
        return f"{tenant}/alice" if tenant in request.app.state.tenants else None

    app, _, runs = shop_with(Depends(member))
    app.state.tenants = {"acme"}
    client = WebClient(app)
    assert client.post("/tenants/acme/payments").status_code == 200
    assert client.post("/tenants/other/payments").status_code == 401
    assert runs == ["acme"]
    client.close()


@pytest.mark.finding("N5")
def test_a_dependency_may_read_the_body_which_the_endpoint_gets_too() -> None:
    async def signed(request: Request, signature: str = Header()) -> str | None:
        expected = hmac.new(b"secret", await request.body(), hashlib.sha256).hexdigest()
        return "alice" if hmac.compare_digest(expected, signature) else None

    app, _, runs = shop_with(Depends(signed), max_body=1_000)
    client = WebClient(app)
    body = b'{"n": 7}'
    good = {"signature": hmac.new(b"secret", body, hashlib.sha256).hexdigest()}
    assert client.post("/payments", body, headers=good).status_code == 200
    assert client.post("/payments", body + b" ", headers=good).status_code == 401
    assert client.post("/payments", b"x" * 1_001, headers=good).status_code == 413
    assert runs == [{"n": 7}]
    client.close()


def test_a_dependency_that_returns_no_text_says_how_to_write_it(caplog: pytest.LogCaptureFixture) -> None:
    app, _, runs = shop_with(Depends(lambda: {"id": 7}))
    client = WebClient(app)
    with caplog.at_level(logging.ERROR):
        assert client.post("/payments", {"n": 1}).status_code == 500
    assert runs == []
    client.close()


class TokenBackend(AuthenticationBackend):
    """Starlette's own way to authenticate."""

    async def authenticate(self, conn: HTTPConnection) -> tuple[AuthCredentials, SimpleUser] | None:
        user = USERS.get(conn.headers.get("authorization", ""))
        return None if user is None else (AuthCredentials(), SimpleUser(user))


def user_of(scope: Any) -> str | None:
    user = scope["user"]
    return user.display_name if user.is_authenticated else None


async def paid(_request: Request) -> JSONResponse:
    return JSONResponse("paid")


@pytest.mark.finding("N5")
@pytest.mark.parametrize("protected_first", [True, False])
def test_protect_puts_the_middleware_behind_authentication_in_any_order(protected_first: bool) -> None:
    app = Starlette(routes=[Route("/pay", paid, methods=["POST"])])
    idem = StarletteIdempotency(AsyncOnce("memory://"), principal=user_of, required=["/pay"])
    if protected_first:
        idem.protect(app)
    app.add_middleware(AuthenticationMiddleware, backend=TokenBackend())
    if not protected_first:
        idem.protect(app)
    client = WebClient(app)
    assert client.post("/pay", headers={"authorization": "a-token"}).status_code == 200
    assert client.post("/pay", headers={"authorization": "c-token"}).status_code == 401
    with pytest.raises(ConfigurationError, match="has already started"):
        idem.protect(app)
    client.close()


async def unused(_scope: Any, _receive: Any, _send: Any) -> None:
    """Stand for an application that is never called."""


@pytest.mark.finding("N5")
@pytest.mark.parametrize("principal", [user_of, lambda scope: Request(scope).user.display_name])
async def test_a_wrong_order_of_middlewares_is_explained(principal: Any) -> None:
    app = AuthenticationMiddleware(
        IdempotencyMiddleware(unused, AsyncOnce("memory://"), principal=principal, required=["/pay"]), TokenBackend()
    )
    wrong = IdempotencyMiddleware(app, AsyncOnce("memory://"), principal=principal, required=["/pay"])
    scope = {"type": "http", "method": "POST", "path": "/pay", "headers": [(b"idempotency-key", b'"k"')]}
    with pytest.raises(ConfigurationError, match=r"scope\['user'\], which no middleware has set") as caught:
        await wrong(scope, None, None)  # type: ignore[arg-type]  # neither is used
    assert "protect(app)" in str(caught.value)


async def test_other_errors_of_principal_stay_what_they_are() -> None:
    wrong = IdempotencyMiddleware(unused, AsyncOnce("memory://"), principal=lambda s: s["tenant"], required=["/pay"])
    scope = {"type": "http", "method": "POST", "path": "/pay", "headers": []}
    with pytest.raises(KeyError, match="tenant"):
        await wrong(scope, None, None)  # type: ignore[arg-type]  # neither is used


@pytest.mark.finding("N5")
def test_the_principal_of_flask_may_use_its_session() -> None:
    import flask

    from onceward.http.flask import Idempotency as FlaskIdempotency

    app = flask.Flask(__name__)
    app.secret_key = "secret"
    runs: list[Any] = []

    @app.post("/login")
    def login() -> str:
        flask.session["user"] = "alice"
        return "welcome"

    @app.post("/pay")
    def pay() -> str:
        runs.append(flask.request.get_json())
        return str(len(runs))

    once = Once("memory://")
    FlaskIdempotency(once, principal=lambda: flask.session.get("user"), required=["/pay"]).protect(app)
    client = WebClient(app, is_asgi=False)
    assert client.post("/pay", {"n": 1}).status_code == 401
    cookie = client.post("/login", key=None).headers["set-cookie"].partition(";")[0]
    assert [client.post("/pay", {"n": 1}, headers={"cookie": cookie}).text for _ in range(2)] == ["1", "1"]
    assert runs == [{"n": 1}], "the body is still there"
    client.close()
    once.close()


@pytest.mark.finding("N5")
def test_the_principal_of_flask_may_abort_and_may_not_read_the_body() -> None:
    import flask

    from onceward.http.flask import Idempotency as FlaskIdempotency

    app = flask.Flask(__name__)
    app.register_error_handler(401, lambda _: ("who are you?", 401))

    @app.post("/pay")
    def pay() -> str:
        return "paid"

    def principal() -> str:
        if "authorization" not in flask.request.headers:
            flask.abort(401)
        return str(flask.request.form["user"])

    once = Once("memory://")
    FlaskIdempotency(once, principal=principal, required=["/pay"]).protect(app)
    client = WebClient(app, is_asgi=False)
    refused = client.post("/pay", {})
    assert (refused.status_code, refused.text) == (401, "who are you?")
    client.close()
    form = {"headers": {"Idempotency-Key": '"k"', "Authorization": "alice"}, "data": {"user": "alice"}}
    with pytest.raises(ConfigurationError, match="cannot read the body"):
        app.test_client().post("/pay", **form)
    once.close()


@pytest.mark.finding("N5")
def test_routes_may_have_settings_of_their_own() -> None:
    app, router = FastAPI(), APIRouter()
    idem = Idempotency(AsyncOnce("memory://"), principal=lambda _: "alice", window="1d")
    runs: list[str] = []

    @app.post("/payments", dependencies=[idem.required])
    async def pay() -> None:
        runs.append("pay")

    @router.post("/refunds", dependencies=[idem.route(window="30d", retry_statuses=[404, 500])])
    async def refund() -> None:
        runs.append("refund")
        raise HTTPException(404)

    @router.post("/hints", dependencies=[idem.route(required=False, bare_keys=True)])
    async def hint() -> None:
        runs.append("hint")

    app.include_router(router)
    idem.protect(app)
    client = WebClient(app)
    assert client.post("/payments").headers["idempotency-window"] == "86400"
    for _ in range(2):
        refunded = client.post("/refunds", key="r1")
        assert (refunded.status_code, refunded.headers["idempotency-window"]) == (404, "2592000")
    assert client.post("/hints", headers={"Idempotency-Key": "bare"}, key=None).status_code == 200
    assert client.post("/payments", headers={"Idempotency-Key": "bare"}, key=None).status_code == 400
    assert runs == ["pay", "refund", "refund", "hint"]
    paths = client.send("GET", "/openapi.json").json()["paths"]
    assert "lasting 4w2d" in paths["/refunds"]["post"]["parameters"][0]["description"]
    assert {"400", "401", "409", "410", "413", "422", "503"} <= set(paths["/payments"]["post"]["responses"])
    client.close()


@pytest.mark.finding("N36")
def test_reauthorize_of_flask_is_called_like_its_principal() -> None:
    import flask

    from onceward.http.flask import Idempotency as FlaskIdempotency

    app = flask.Flask(__name__)
    allowed = {"alice"}

    @app.post("/pay")
    def pay() -> tuple[str, int]:
        return "paid", 201

    def user() -> str | None:
        return flask.request.headers.get("x-user")

    def reauthorize() -> bool:
        if flask.request.headers.get("x-gone"):
            flask.abort(404)
        return user() in allowed

    once = Once("memory://")
    FlaskIdempotency(once, principal=user, required=["/pay"], reauthorize=reauthorize).protect(app)

    def status(**more: str) -> int:
        headers = {"x-user": "alice", "idempotency-key": '"k1"', **more}
        return app.test_client().post("/pay", json={}, headers=headers).status_code

    assert [status(), status(), status(**{"x-gone": "1"})] == [201, 201, 404]
    allowed.clear()
    assert status() == 403
    once.close()

    async def later() -> bool:
        return False

    with pytest.raises(ConfigurationError, match="async"):
        FlaskIdempotency(once, principal=user, required=["/pay"], reauthorize=later).protect(app)
