"""The orders in the admin. The records of Onceward have their own pages there."""

from django.contrib import admin

from .models import Order

admin.site.register(Order)
