"""The same on an event loop."""

from __future__ import annotations

import asyncio
import inspect
from pathlib import Path

import pytest

from onceward.people import People
from onceward.people.aio import AsyncPeople
from tests.people_backends import record


@pytest.mark.mission("D2")
async def test_statements_that_arrive_concurrently_make_one_record(tmp_path: Path) -> None:
    async with AsyncPeople(f"sqlite:///{tmp_path}/people.db") as people:
        decisions = await asyncio.gather(
            *(people.add(record("xapi", str(n), email="a@example.com")) for n in range(20))
        )
        assert sorted(one.action for one in decisions) == ["created", *["updated"] * 19]
        found = await people.find(email="A@example.com")
        assert found is not None
        assert found == await people.get(decisions[0].person or "")
        assert await people.reviews() == []


@pytest.mark.parametrize("name", ["add", "add_many", "get", "find", "reviews", "accept", "reject"])
def test_both_take_the_same_arguments(name: str) -> None:
    ours, theirs = (inspect.signature(getattr(kind, name)) for kind in (AsyncPeople, People))
    assert ours == theirs
