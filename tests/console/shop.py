"""Records in every state, for the tests of the console."""

from __future__ import annotations

from typing import Any

from onceward import Once
from onceward.errors import OncewardError
from onceward.protocol.history import HistoryEvent
from onceward.runtime.threads import run

HOSTILE = (
    '<script>alert("xss")</script>',
    '"><img src=x onerror=alert(1)>',
    "' autofocus onfocus=alert(1) x='",
    "{{ 7 * 7 }}{% include 'base.html' %}",
    "javascript:alert(1)",
    "</textarea></pre></code></title><svg onload=alert(1)>",
    "\u202egnp.exe\u2066 \x00\x1b[31m",
    "=cmd|' /C calc'!A1",
    "W" * 150,  # nowhere to break the line
)


def filled_shop(url: str, *, hostile: bool = False) -> Once:
    """Return a client with completed, failed, parked and running work of two tenants."""
    once = Once(url, app="shop", counters=True)

    @once(key="charge:{n}", name="charge")
    def charge(n: int) -> dict[str, Any]:
        if n == 3:
            raise ValueError(f"card of order {n} was declined")
        return {"order": n, "balance": 2**63 - 1, "password": "hunter2"}

    for n in (1, 2, 3, 1):
        attempt(charge, n)
    for tenant in ("acme", "globex"):
        own = once.using(tenant=tenant)

        @own(key="pay:{who}", name="pay", after_crash="park")
        def pay(who: str) -> Any:
            raise TimeoutError(f"the bank did not answer {who}")

        attempt(pay, "ann")
        attempt(pay, "bob")
    for text in HOSTILE if hostile else ():

        @once(key="hostile:{text}", name=f"attack {text}")
        def attack(text: str) -> dict[str, str]:
            return {text: text}

        @once(key="failing:{text}", name="failing", after_crash="park")
        def fail(text: str) -> None:
            raise RuntimeError(text)

        attempt(attack, text)
        attempt(fail, text)
        with once.claim(f"noted:{text}", name="noted", note={text or "note": text}) as claim:
            claim.complete(text)
        attempt(attack, text)
        plant_history(once, once.key(f"noted:{text}", name="noted").id, text)
    assert once.counters is not None
    return once


def plant_history(once: Once, id: bytes, text: str) -> None:
    """Write events whose every text is hostile, even the name: another program may have written them."""
    [answer] = run(once.store.read([id], timeout=30))
    assert answer.record is not None
    assert once.store.history is not None
    names = ("failed", "taken_over", "mismatch", "parked", text.replace("\0", ""))
    events = [
        HistoryEvent(
            id, answer.record.token, name, answer.now, answer.now, 7, 2, text, text, text, answer.now + 10**12, text
        )
        for name in names
    ]  # fmt: skip
    run(once.store.history.append_history(events, timeout=30))


def attempt(work: Any, argument: Any) -> None:
    """Call it; a failure is part of the data."""
    try:
        work(argument)
    except (ValueError, TimeoutError, RuntimeError, OncewardError):
        return
