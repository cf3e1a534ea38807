"""SQLAlchemy 2: find the session that is open around a call, and keep Alembic away from our tables.

Read `detection.py` first: it finds open sessions and connections, sync and async (SQLModel uses the same classes).
`schema.py` has the tables as SQLAlchemy metadata, their SQL for a migration, and the filter for Alembic's autogenerate.
To write rows and record in one transaction, pass the session to `once.within(session)`: that needs nothing from here.
"""

from .detection import detect_transactions
from .schema import include_object, metadata, migration_statements

__all__ = ["detect_transactions", "include_object", "metadata", "migration_statements"]
