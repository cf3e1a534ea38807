"""Payments with Flask: `flask --app examples.http.flask_app run`."""

from __future__ import annotations

import flask

from examples.http.principals import wsgi_principal
from onceward import Once
from onceward.http.wsgi import IdempotencyMiddleware

once = Once("memory://")
payments: list[int] = []

app = flask.Flask(__name__)
app.wsgi_app = IdempotencyMiddleware(app.wsgi_app, once, principal=wsgi_principal, required=["/payments"])  # type: ignore[method-assign]  # as Flask documents it


@app.post("/payments")
def pay() -> tuple[dict[str, int], int]:
    payments.append(flask.request.get_json()["cents"])
    return {"payment": len(payments)}, 201
