"""`python -m examples.outreach`: a morning of the outreach system, with everything delivered twice."""

from __future__ import annotations

import tempfile
from pathlib import Path

from .app import Outreach


def main() -> None:
    charged: dict[str, str] = {}

    def pay(customer: str, cents: int, key: str) -> str:
        """A provider that takes an idempotency key: the same key is the same charge."""
        return charged.setdefault(key, f"{customer} paid {cents} cents")

    def look_up(prospect_id: int, kind: str) -> str:
        if kind == "email":
            raise ConnectionError("the directory is down")
        return f"https://{prospect_id}.example.com"

    with tempfile.TemporaryDirectory() as folder:
        outreach = Outreach(Path(folder), send=lambda *_: None, look_up=look_up, pay=pay)
        for _ in range(2):
            print("email   ", outreach.send_email(1, "Hello"))
            print("website ", outreach.enrich(1, "website"))
            print("contact ", outreach.enrich(1, "email"))
            print("reply   ", outreach.receive("<a@b>", 1, "Thank you"))
            print("charge  ", outreach.charge("acme", 7, 1900))
            print("sync    ", outreach.with_lock("sync", lambda: "synced"))
        outreach.close()
    print("charges ", len(charged))


if __name__ == "__main__":
    main()
