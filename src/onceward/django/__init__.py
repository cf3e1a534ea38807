"""Onceward in Django: `INSTALLED_APPS += ["onceward.django"]`, then `from onceward.django import once`.

- `client.py`: `once` and `aonce`, which follow the settings `ONCEWARD` and `DATABASES`
- `atomic.py`: `once.atomic()` and `once.within(connection)`
- `store.py`: the store that follows the database; `test_stores.py`: what it uses in tests
- `migrations/`, `models.py`: the tables
- `management/`: `manage.py onceward`

Nothing here is imported before it is used: Django imports this package before its own apps are ready.
"""

from typing import TYPE_CHECKING

from onceward.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from .client import AsyncDjangoOnce, DjangoOnce, aonce, once

__all__ = ["AsyncDjangoOnce", "DjangoOnce", "aonce", "once"]

__getattr__ = lazy_exports(
    __name__,
    {
        "AsyncDjangoOnce": ".client",
        "DjangoOnce": ".client",
        "aonce": ".client",
        "once": ".client",
    },
)
