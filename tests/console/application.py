"""A shop with every feature that the console has a page for, served to operators with different access.

`python -m tests.console.application FOLDER` fills the databases in the folder and serves the console. The header
`x-user` names the operator, as a proxy that authenticates would.
"""

from __future__ import annotations

import sys
from pathlib import Path

from starlette.requests import Request

from onceward import Once
from onceward.console import Access, Console
from onceward.console.serve import listen, serve
from onceward.latest import Ordering
from onceward.people import People
from onceward.sagas import Step, StepContext
from tests.console.shop import attempt, filled_shop
from tests.people_backends import record

OPERATORS = {
    "ann": Access("admin", user="ann"),
    "ben": Access("admin", user="ben"),
    "eve": Access("act", tenants=["acme"], user="eve"),
    "joe": Access("read", user="joe"),
}


def store_url(folder: Path) -> str:
    return f"sqlite:///{folder / 'shop.db'}?synchronous=NORMAL"


def authorize(request: Request) -> Access | None:
    return OPERATORS.get(request.headers.get("x-user", ""))


def filled(folder: Path) -> Once:
    """Return a client with records in every state, and with a saga, a schedule, a latest state and a parked message."""
    once = filled_shop(store_url(folder))

    @once.schedule("0 3 * * *", tz="Europe/Berlin", name="nightly")
    def nightly() -> None: ...

    def reserve(step: StepContext) -> int:
        return 1

    def charge(step: StepContext) -> None:
        raise TimeoutError("no answer from the bank")

    steps = Step("reserve", reserve, undo=reserve), Step("charge", charge, kind="pivot", after_crash="park")
    booking = once.saga("booking", *steps, key="booking:{n}")
    attempt(lambda n: booking(n=n), 1)
    once.state("trucks").apply("truck 7", Ordering("2026-03-01T12:00:00Z", message_id="m1"), {"at": "Potsdam"})
    note = {"message": "m-17", "queue": "mails", "body": "not JSON"}
    attempt(lambda key: park(once, key, "mail.message", note), "m-17")

    @once(key="import:{n}", name="import")
    def load(n: int) -> None:
        raise RuntimeError(f"no column {n}")

    for n in range(4):
        attempt(load, n)
    for name in ("paid", "unpaid", "given up"):
        attempt(lambda key: park(once, key, "wire", {}), f"wire:{name}")
    return once


def park(once: Once, key: str, name: str, note: dict[str, str]) -> None:
    with once.claim(key, name=name, after_crash="park", note=note):
        raise ValueError("the body is not JSON")


def fill_people(people: People) -> None:
    for number, city in enumerate(("Berlin", "Hamburg")):
        people.add(record("csv", f"{number}", name="Anna Schmidt", city=city, country="DE"))
        people.add(record("crm", f"{number}", name="Ana Schmidt", city=city, country="DE"))


def main(folder: Path) -> None:
    with (
        filled(folder) as once,
        once.claim("running:1", name="running"),
        once.claim("running:2", name="running"),
        People(f"sqlite:///{folder / 'people.db'}") as people,
    ):
        fill_people(people)
        console = Console(once, authorize=authorize, write=True, people=people, title="shop")
        serve(console, listen("127.0.0.1", 0), lambda address: print(address, flush=True))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
