"""The table of payments, and sessions for PostgreSQL and SQLite."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession, async_sessionmaker, create_async_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

DRIVERS = {"postgresql": "postgresql+psycopg", "sqlite": "sqlite+aiosqlite"}


class Base(DeclarativeBase):
    """The base of all tables."""


class Payment(Base):
    """One payment of a user."""

    __tablename__ = "payments"

    id: Mapped[int] = mapped_column(primary_key=True)
    user: Mapped[str]
    cents: Mapped[int]
    charge: Mapped[str] = mapped_column(unique=True)
    status: Mapped[str] = mapped_column(default="charged")


class Database:
    """The engine and its sessions. `url` is also the URL of the records: both must be in the same database."""

    def __init__(self, url: str) -> None:
        scheme, _, rest = url.partition(":")
        self._engine: AsyncEngine = create_async_engine(f"{DRIVERS[scheme]}:{rest}")
        self.sessions: async_sessionmaker[AsyncSession] = async_sessionmaker(self._engine)

    async def create_tables(self) -> None:
        async with self._engine.begin() as connection:
            await connection.run_sync(Base.metadata.create_all)

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[None]:
        """Create the tables, and close all connections at the end."""
        await self.create_tables()
        try:
            yield
        finally:
            await self._engine.dispose()
