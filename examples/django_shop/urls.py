"""The URLs."""

from django.contrib import admin
from django.urls import path

from .orders.api import Orders
from .orders.views import place_order

urlpatterns = [
    path("admin/", admin.site.urls),
    path("orders", place_order),
    path("api/orders", Orders.as_view()),
]
