"""A view: the row, the record and the stored response are committed together."""

import json

from django.db import transaction
from django.http import HttpRequest, JsonResponse

from onceward.django import idempotent

from .models import Order
from .tasks import mail_receipt_later


@idempotent(transactional=True, bare_keys=True)
def place_order(request: HttpRequest) -> JsonResponse:
    """Place an order, and send its receipt once the order is committed."""
    order = Order.objects.create(**json.loads(request.body))
    transaction.on_commit(lambda: mail_receipt_later.delay(order.pk))
    return JsonResponse({"order": order.pk}, status=201)
