"""Payments with Django, in one file: `uvicorn examples.http.django_app:asgi`, or any WSGI server for `wsgi`.

Both serve the same views, on the same records: `once.aio` is the async client of the same store.
"""

from __future__ import annotations

import json
from secrets import token_hex

from django.conf import settings
from django.core.asgi import get_asgi_application
from django.core.wsgi import get_wsgi_application
from django.http import HttpRequest, JsonResponse
from django.urls import path

from examples.http.principals import asgi_principal, wsgi_principal
from onceward import Once
from onceward.http.asgi import IdempotencyMiddleware as AsgiMiddleware
from onceward.http.wsgi import IdempotencyMiddleware as WsgiMiddleware

if not settings.configured:
    settings.configure(ROOT_URLCONF=__name__, ALLOWED_HOSTS=["*"], SECRET_KEY=token_hex())

once = Once("memory://")
payments: list[int] = []


def pay(request: HttpRequest) -> JsonResponse:
    payments.append(json.loads(request.body)["cents"])
    return JsonResponse({"payment": len(payments)}, status=201)


urlpatterns = [path("payments", pay)]

asgi = AsgiMiddleware(get_asgi_application(), once, principal=asgi_principal, required=["/payments"])
wsgi = WsgiMiddleware(get_wsgi_application(), once, principal=wsgi_principal, required=["/payments"])
