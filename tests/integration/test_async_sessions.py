"""Joining async sessions of SQLAlchemy on SQLite, whose connection lives in a thread of aiosqlite."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncSession, async_sessionmaker, create_async_engine
from sqlalchemy.pool import NullPool

from onceward import AsyncOnce, ConfigurationError
from onceward.errors import ClaimError

INSERT = text("INSERT INTO effects VALUES (:word)")


class Stop(Exception):
    pass


@asynccontextmanager
async def opened(
    folder: Path, file: str = "once.db"
) -> AsyncIterator[tuple[AsyncOnce, async_sessionmaker[AsyncSession]]]:
    engine = create_async_engine(f"sqlite+aiosqlite:///{folder}/{file}", poolclass=NullPool)
    async with AsyncOnce(f"sqlite:///{folder}/once.db", lease="10s") as once:
        await once.migrate()
        async with engine.begin() as connection:
            await connection.execute(text("CREATE TABLE effects (word TEXT)"))
        yield once, async_sessionmaker(engine)
    await engine.dispose()


async def words(sessions: async_sessionmaker[AsyncSession]) -> list[str]:
    async with sessions() as session:
        return [*await session.scalars(text("SELECT word FROM effects ORDER BY rowid"))]


@pytest.mark.finding("N4")
async def test_rows_and_records_commit_together_and_a_failed_handler_undoes_its_own_rows(tmp_path: Path) -> None:
    async with opened(tmp_path) as (once, sessions):

        async def write(word: str) -> str:
            await session.execute(INSERT, {"word": word})
            if word == "bad":
                raise Stop
            return word

        for _ in range(2):
            async with sessions.begin() as session, once.within(session) as tx:
                outcomes = [str(await tx.outcome(word, write, word)) for word in ("one", "bad", "two")]
        assert outcomes == ["replayed", "failed", "replayed"]
        assert await words(sessions) == ["one", "two"]


async def test_a_rollback_undoes_rows_and_records(tmp_path: Path) -> None:
    async with opened(tmp_path) as (once, sessions):

        async def write() -> None:
            await session.execute(INSERT, {"word": "one"})

        async with sessions() as session:
            async with once.within(session) as tx:
                assert str(await tx.outcome("k", write)) == "executed"
            await session.rollback()
        async with sessions.begin() as session, once.within(session) as tx:
            assert str(await tx.outcome("k", write)) == "executed"
        assert await words(sessions) == ["one"]


async def test_a_leased_claim_is_completed_in_an_async_session(tmp_path: Path) -> None:
    async with opened(tmp_path) as (once, sessions):
        async with once.claim("k") as claim, sessions.begin() as session:
            await session.execute(INSERT, {"word": "one"})
            await claim.complete_in(session, "done")
        entry = await once.read("k")
        assert entry is not None
        assert await words(sessions) == ["one"]
        with pytest.raises(ClaimError, match="rolled back"):
            async with once.claim("k2") as claim, sessions() as session:
                await claim.complete_in(session, "done")
                await session.rollback()


async def test_a_session_on_another_file_is_refused(tmp_path: Path) -> None:
    async with opened(tmp_path, "other.db") as (once, sessions), sessions() as session:

        async def never() -> None:
            pytest.fail("it is not run")

        with pytest.raises(ConfigurationError, match="the two cannot commit together"):
            async with once.within(session) as tx:
                await tx.run("k", never)
