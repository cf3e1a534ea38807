"""A small shop with records in every state, of several tenants, for the tests of the administration."""

from __future__ import annotations

from typing import Any

from tests.clients import SyncClient


def fill(client: SyncClient) -> None:
    """Write completed, failed and parked records, with notes, of two tenants and without one."""
    own = client.once
    try:
        for tenant in (None, "acme", "globex"):
            client.once = own if tenant is None else own.using(tenant=tenant)
            for number in range(3):
                client.clock.advance("1s")
                client.run(f"order:{number}", str)
                client.clock.advance("1s")
                fail(client, f"failed:{number}", ValueError("no card") if number else KeyError("card"))
            client.clock.advance("1s")
            park(client, "wire:1", source="bank")
    finally:
        client.once = own


def fail(client: SyncClient, key: str, error: Exception) -> None:
    def work() -> None:
        raise error

    client.outcome(key, work)


def park(client: SyncClient, key: str, **note: str) -> None:
    try:
        with client.claim(key, after_crash="park", note=note):
            raise TimeoutError("no answer")
    except TimeoutError:
        pass


def admin_of(client: SyncClient, **options: Any) -> Any:
    """Return the `Admin` of the client, called as blocking code."""
    from onceward.administration import Admin

    return Blocking(client, Admin.of(client.once, **options))


class Blocking:
    """An `Admin`, sync or async, whose methods are called as blocking code."""

    def __init__(self, client: SyncClient, admin: Any) -> None:
        self._client = client
        self.admin = admin

    def limited(self, *args: Any, **kwargs: Any) -> Blocking:
        return Blocking(self._client, self.admin.limited(*args, **kwargs))

    def __getattr__(self, name: str) -> Any:
        method = getattr(self.admin, name)
        return lambda *args, **kwargs: self._client.drive(method(*args, **kwargs))
