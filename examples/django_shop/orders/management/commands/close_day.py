"""`manage.py close_day 2026-01-31`: let cron run it on two machines; it takes effect once."""

from argparse import ArgumentParser
from datetime import date
from typing import Any

from django.core.management.base import BaseCommand

from examples.django_shop.orders.services import close_day


class Command(BaseCommand):
    """Close a day."""

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Declare the day."""
        parser.add_argument("day", type=date.fromisoformat)

    def handle(self, *_: Any, day: date, **__: Any) -> None:
        """Close the day, or print what the other machine has stored."""
        self.stdout.write(f"{day}: {close_day(day)} cents")
