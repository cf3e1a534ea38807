"""What the shop stores."""

from django.db import models


class Order(models.Model):
    """An order, once per reference."""

    reference = models.TextField()
    cents = models.IntegerField(default=0)
