"""The URLs of the test project."""

from django.contrib import admin
from django.urls import path

from tests.django_project.shop import views

urlpatterns = [
    path("admin/", admin.site.urls),
    path("orders", views.place),
    path("fails", views.fails),
    path("separate", views.place_separately),
    path("adopted", views.adopted),
    path("blocks", views.block_everything),
    path("completes", views.complete_by_hand),
    path("async", views.place_async),
    path("unusual/<str:way>", views.place_unusually),
    path("async-class", views.AsyncOrders.as_view()),
    path("drf/orders", views.Orders.as_view()),
    path("ninja/", views.api.urls),
]
