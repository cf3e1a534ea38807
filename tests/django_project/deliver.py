"""Deliver one order in this process: `python -m tests.django_project.deliver view|task|command REFERENCE [THREADS]`.

It repeats what a client, a broker or cron repeats, until the order is placed, and prints the number of each order.
"""

import json
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import django

django.setup()

from django.contrib.auth.models import User  # noqa: E402 (Django must be set up)
from django.core.management import call_command  # noqa: E402
from django.db import connections, transaction  # noqa: E402
from django.test import Client  # noqa: E402

from tests.django_project.shop.services import place_order  # noqa: E402

CONFLICT, CREATED, UNAVAILABLE = 409, 201, 503


def logged_in() -> Client:
    client = Client()
    client.force_login(User.objects.get_or_create(username="ann")[0])
    return client


def by_view(reference: str, cookies: object) -> int:
    client = Client()
    client.cookies = cookies
    body = json.dumps({"reference": reference})
    while True:
        response = client.post("/orders", body, content_type="application/json", headers={"Idempotency-Key": reference})
        if response.status_code == CREATED:
            return response.json()["order"]
        assert response.status_code in (CONFLICT, UNAVAILABLE), response.content
        time.sleep(0.05)


def by_task(reference: str) -> int:
    from tests.django_project.shop.tasks import place_order_later

    return place_order_later.apply((reference,), throw=True).result


def after_rollback(reference: str) -> int:
    """Call the decorated function in a transaction that is rolled back, and once more."""
    try:
        with transaction.atomic():
            place_order(reference)
            raise KeyError(reference)
    except KeyError:
        assert place_order.read(reference) is None
    return place_order(reference)


def main(kind: str, reference: str, threads: int) -> None:
    cookies = logged_in().cookies if kind == "view" else None

    def deliver(_: int) -> int | None:
        try:
            if kind == "view":
                return by_view(reference, cookies)
            if kind == "task":
                return by_task(reference)
            if kind == "rollback":
                return after_rollback(reference)
            return call_command("place_order", reference)
        finally:
            connections.close_all()

    with ThreadPoolExecutor(threads) as pool:
        print(sorted(set(map(str, pool.map(deliver, range(threads))))))


main(sys.argv[1], sys.argv[2], int(sys.argv[3]) if len(sys.argv) > 3 else 1)
