"""What the shop stores."""

from django.db import models


class Order(models.Model):
    """An order."""

    reference = models.CharField(max_length=50, unique=True)
    cents = models.PositiveIntegerField()
    mailed = models.BooleanField(default=False)

    def __str__(self) -> str:
        return str(self.reference)


class DayReport(models.Model):
    """The turnover of a day."""

    day = models.DateField()
    cents = models.PositiveIntegerField()

    def __str__(self) -> str:
        return str(self.day)
