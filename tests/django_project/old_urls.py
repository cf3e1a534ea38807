"""The URLs of the project before it adopts Onceward."""

from django.urls import path

from tests.django_project.shop.old_views import adopted

urlpatterns = [path("adopted", adopted)]
