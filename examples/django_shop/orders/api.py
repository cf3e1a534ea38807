"""The same as an endpoint of Django REST framework."""

from django.utils.decorators import method_decorator
from rest_framework.permissions import IsAuthenticated
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.serializers import ModelSerializer
from rest_framework.views import APIView

from onceward.django import idempotent

from .models import Order


class OrderSerializer(ModelSerializer):
    """The fields of an order."""

    class Meta:
        """Which fields."""

        model = Order
        fields = ("id", "reference", "cents")


@method_decorator(idempotent(transactional=True, bare_keys=True), name="dispatch")
class Orders(APIView):
    """Place orders."""

    permission_classes = (IsAuthenticated,)

    def post(self, request: Request) -> Response:
        """Place an order."""
        serializer = OrderSerializer(data=request.data)
        serializer.is_valid(raise_exception=True)
        serializer.save()
        return Response(serializer.data, status=201)
