"""`manage.py place_order REFERENCE`, as cron would run it on two machines."""

from django.core.management.base import BaseCommand

from tests.django_project.shop.services import place_in_transaction


class Command(BaseCommand):
    def add_arguments(self, parser) -> None:
        parser.add_argument("reference")

    def handle(self, *args, reference: str, **options) -> None:
        self.stdout.write(str(place_in_transaction(reference)))
