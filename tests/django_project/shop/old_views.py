"""A view as it was before the project adopted Onceward."""

import json
import sys

from django.http import HttpRequest, JsonResponse
from django.views.decorators.csrf import csrf_exempt

from .models import Order


@csrf_exempt
def adopted(request: HttpRequest) -> JsonResponse:
    order = Order.objects.create(**json.loads(request.body))
    return JsonResponse({"order": order.pk, "onceward": "onceward" in sys.modules}, status=201)
