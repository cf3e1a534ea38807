"""Deliver one order in this process: `… deliver view|task|command|import|others REFERENCE [THREADS]`.

It repeats what a client, a broker or cron repeats, until the order is placed, and prints the number of each order.
`… deliver all REFERENCE THREADS` delivers an order as a view, a task and a command, one after another.
"""

import asyncio
import json
import os
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import django

django.setup()

from django.contrib.auth.models import User  # noqa: E402 (Django must be set up)
from django.core.management import call_command  # noqa: E402
from django.db import connections, transaction  # noqa: E402
from django.test import AsyncClient, Client  # noqa: E402

from tests.django_project.shop.jobs import import_order  # noqa: E402
from tests.django_project.shop.services import aplace_order, place_order  # noqa: E402

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


def others() -> None:
    """Deliver orders after a rollback, in an event loop, and after a fork."""
    after_rollback("rolled-back")
    assert asyncio.run(twice_async("async")) == CREATED
    assert place_order("forked") == in_forked_child(place_order, "forked")


async def twice_async(reference: str) -> int:
    """Send a request to an async view twice, and call a decorated async function twice."""
    client = AsyncClient()
    user, _ = await User.objects.aget_or_create(username="ann")
    await client.aforce_login(user)
    body = json.dumps({"reference": reference})
    sent = [
        await client.post("/async", body, content_type="application/json", headers={"Idempotency-Key": reference})
        for _ in range(2)
    ]
    assert sent[0].content == sent[1].content
    assert await aplace_order("awaited") == await aplace_order("awaited")
    return sent[1].status_code


def in_forked_child(work: Callable[[str], int], reference: str) -> int:
    """Return the result of the work in a forked child."""
    connections.close_all()  # as servers that fork do
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(writing, str(work(reference)).encode())
        os._exit(0)
    os.waitpid(child, 0)
    return int(os.read(reading, 100))


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
            if kind == "import":
                return import_order(reference)
            if kind == "others":
                return others()
            return call_command("place_order", reference)
        finally:
            connections.close_all()

    with ThreadPoolExecutor(threads) as pool:
        print(sorted(set(map(str, pool.map(deliver, range(threads))))))


if sys.argv[1] == "all":
    for one in ("view", "task", "command"):
        main(one, f"{one}-{sys.argv[2]}", int(sys.argv[3]))
else:
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]) if len(sys.argv) > 3 else 1)
