"""Onceward in Django: `INSTALLED_APPS += ["onceward.django"]`, then `from onceward.django import once`.

Read `client.py` first, then `store.py`:

- `client.py`: `once` and `aonce`, which follow the settings `ONCEWARD` and `DATABASES`
- `declared.py`: how functions, schedules, sagas and states follow an overridden setting
- `atomic.py`: `once.atomic()` and `once.within(connection)`
- `open_transactions.py`: which transactions are open around a call
- `store.py`: the store that follows the database; `sqlite_store.py`, `postgres_store.py`: what it uses in tests
- `middleware.py`, `view_options.py`: views that run once per `Idempotency-Key`
- `migrations/`, `models.py`: the tables
- `management/`: `manage.py onceward`

Nothing here is imported before it is used: Django imports this package before its own apps are ready.
"""

from typing import TYPE_CHECKING

from onceward.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from .client import AsyncDjangoOnce, DjangoOnce, aonce, once
    from .middleware import IdempotencyMiddleware
    from .view_options import idempotent

__all__ = ["AsyncDjangoOnce", "DjangoOnce", "IdempotencyMiddleware", "aonce", "idempotent", "once"]

__getattr__ = lazy_exports(
    __name__,
    {
        "AsyncDjangoOnce": ".client",
        "DjangoOnce": ".client",
        "IdempotencyMiddleware": ".middleware",
        "aonce": ".client",
        "idempotent": ".view_options",
        "once": ".client",
    },
)
