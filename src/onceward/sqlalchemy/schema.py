"""The store's tables as SQLAlchemy metadata, their SQL for a migration, and the filter for Alembic's autogenerate."""

from __future__ import annotations

from typing import Any

from sqlalchemy import BigInteger, Boolean, Column, LargeBinary, MetaData, SmallInteger, Table, Text

from onceward.stores.creation import creation_schema

PREFIX = "onceward_"


def metadata(schema: str | None = None) -> MetaData:
    """Return the tables, to query them with SQLAlchemy. `schema` is that of the store's URL (`?schema=`).

    Do not create the tables from it: indexes, views and the version are missing. Use `migration_statements`.
    """
    tables = MetaData(schema=schema)
    for name, columns in _tables().items():
        Table(f"{PREFIX}{name}", tables, *columns)
    return tables


def migration_statements(dialect: str, schema: str = "") -> tuple[str, ...]:
    """Return the statements that create the tables, for an Alembic migration. No database is needed.

    `dialect` is "postgresql" or "sqlite". `schema` is the PostgreSQL schema, as in the store's URL.
    """
    return creation_schema(dialect, schema).statements


def include_object(
    object: Any,  # noqa: A002 (Alembic's name)
    name: str | None,
    type_: str,
    reflected: bool,  # noqa: ARG001, FBT001 (Alembic passes it by position)
    compare_to: Any,  # noqa: ARG001 (as above)
) -> bool:
    """Return False for Onceward's tables, views and indexes, so that Alembic's autogenerate does not drop them.

    Pass it to `context.configure(include_object=include_object)` in Alembic's `env.py`. Alembic calls it with `object`,
    `name`, `type_`, `reflected` and `compare_to`.
    """
    table = name if type_ == "table" else getattr(getattr(object, "table", None), "name", None)
    return not any(one is not None and one.startswith(PREFIX) for one in (name, table))


def _tables() -> dict[str, list[Column[Any]]]:
    return {
        "meta": [Column("name", Text, primary_key=True), _number("value", nullable=False)],
        "records": [
            _bytes("id", primary_key=True),
            *(_number(name, nullable=False) for name in ("token", "updated_at")),
            *(_text(name, nullable=False) for name in ("scope", "key")),
            *map(_number, ("valid_until", "lease_until", "cycle", "created_at", "claimed_at", "renewed_at")),
            *map(_number, ("retry_at", "slide", "attempt", "max_attempts")),
            *(Column(name, SmallInteger) for name in ("after_crash", "min_reader")),
            *(Column(name, Boolean) for name in ("ask_first", "released", "stored", "final")),
            *map(_text, ("state", "owner", "error_type", "error", "arguments", "note")),
            *map(_bytes, ("nonce", "fingerprint", "digest", "result")),
        ],
        "audit": [
            _number("number", primary_key=True),
            *(_number(name, nullable=False) for name in ("at", "token_before", "token_after", "count")),
            *(_text(name, nullable=False) for name in ("verb", "who", "why", "detail", "scope", "key")),
            *(_text(name, nullable=False) for name in ("state_before", "state_after")),
            _bytes("id", nullable=False),
        ],
        "latest": [
            _bytes("id", primary_key=True),
            _number("updated_at", nullable=False),
            _number("expires_at"),
            Column("min_reader", SmallInteger, nullable=False),
            _bytes("ordering", nullable=False),
            *(_text(name, nullable=False) for name in ("scope", "entity")),
            _bytes("value"),
        ],
        "marks": [
            _bytes("id", primary_key=True),
            *(_number(name, nullable=False) for name in ("created_at", "expires_at")),
            _bytes("content", nullable=False),
            _text("message", nullable=False),
        ],
        "counters": [
            _number("hour", primary_key=True),
            _bytes("process", primary_key=True),
            _number("number", nullable=False),
            _text("counts", nullable=False),
        ],
        "history": [
            _bytes("id", primary_key=True),
            _number("token", primary_key=True),
            _text("name", primary_key=True),
            *(_number(name, nullable=False) for name in ("at", "last_at", "count", "attempt", "retry_at")),
            *(_text(name, nullable=False) for name in ("owner", "error_type", "error", "detail")),
        ],
    }


def _number(name: str, **options: Any) -> Column[Any]:
    return Column(name, BigInteger, **options)


def _text(name: str, **options: Any) -> Column[Any]:
    return Column(name, Text, **options)


def _bytes(name: str, **options: Any) -> Column[Any]:
    return Column(name, LargeBinary, **options)
