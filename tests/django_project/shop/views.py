"""The views of the shop: Django, Django REST framework and django-ninja."""

import json
from contextlib import suppress
from typing import Any

from django.db import DatabaseError, transaction
from django.http import HttpRequest, JsonResponse, StreamingHttpResponse
from django.utils.decorators import method_decorator
from django.views import View
from django.views.decorators.csrf import csrf_exempt
from gevent import monkey
from ninja import NinjaAPI
from ninja.decorators import decorate_view
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from onceward import current_claim
from onceward.django import idempotent

from . import old_views
from .models import Order
from .services import place_order
from .stages import reached


@csrf_exempt
@idempotent(transactional=True)
def place(request: HttpRequest) -> JsonResponse:
    reached("started")
    order = Order.objects.create(**json.loads(request.body))
    reached("written")
    transaction.on_commit(lambda: reached("committed"))
    if order.cents < 0:
        return JsonResponse({"error": "try again"}, status=503)
    return JsonResponse({"order": order.pk}, status=201)


@csrf_exempt
def fails(request: HttpRequest) -> JsonResponse:
    """Call a decorated function in the transaction of the request (ATOMIC_REQUESTS)."""
    number = place_order("A1")
    if "fails" in request.GET:
        raise RuntimeError(number)
    return JsonResponse({"order": number})


@csrf_exempt
@idempotent(required=False)
def place_separately(request: HttpRequest) -> JsonResponse:
    return JsonResponse({"order": Order.objects.create(reference="separate").pk}, status=201)


@csrf_exempt
@idempotent()
async def place_async(request: HttpRequest) -> JsonResponse:
    order = await Order.objects.acreate(**json.loads(request.body))
    return JsonResponse({"order": order.pk}, status=201)


adopted = csrf_exempt(idempotent(required=False, transactional=True)(old_views.adopted))


@csrf_exempt
@idempotent()
def block_everything(request: HttpRequest) -> JsonResponse:
    """Block the process for several leases, with all of its greenlets."""
    monkey.get_original("time", "sleep")(float(request.GET["seconds"]))
    return JsonResponse({"order": Order.objects.create(**json.loads(request.body)).pk}, status=201)


@csrf_exempt
@idempotent()
def complete_by_hand(request: HttpRequest) -> JsonResponse:
    """Complete the claim of the request, which the middleware does."""
    current_claim().complete(1)
    return JsonResponse({})


@csrf_exempt
@idempotent(transactional=True)
def place_unusually(request: HttpRequest, way: str) -> Any:
    order = Order.objects.create(reference=way)
    if way == "hidden-error":
        with suppress(DatabaseError):
            Order.objects.create(pk=order.pk)
    if way == "callback":
        transaction.on_commit(call_broker)
    if way == "streaming":
        return StreamingHttpResponse([b"a"])
    return JsonResponse({"order": order.pk, "files": len(request.FILES)}, status=201)


def call_broker() -> None:
    raise ConnectionError("the broker is down")


@method_decorator([csrf_exempt, idempotent(transactional=True)], name="dispatch")
class AsyncOrders(View):
    """A class of async methods, which cannot be transactional."""

    async def post(self, request: HttpRequest) -> JsonResponse:
        await Order.objects.acreate(reference="async")
        return JsonResponse({})


@method_decorator(idempotent(transactional=True), name="dispatch")
class Orders(APIView):
    """An endpoint of Django REST framework."""

    def post(self, request: Request) -> Response:
        return Response({"order": Order.objects.create(**request.data).pk}, status=201)


api = NinjaAPI()


@api.post("/orders")
@decorate_view(idempotent(transactional=True))
def ninja_order(request: HttpRequest) -> Any:
    return {"order": Order.objects.create(**json.loads(request.body)).pk}
