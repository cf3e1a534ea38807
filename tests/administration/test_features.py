"""What operators read about features: latest states, dead letters, people reviews and imports."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from onceward import AsyncOnce, ConfigurationError, Once
from onceward.administration import Admin, Preview, Visible, run
from onceward.administration.actions import ACTIONS
from onceward.imports import import_file
from onceward.latest import Ordering
from onceward.people import People
from onceward.people.aio import AsyncPeople
from tests.imports.files import users, write
from tests.people_backends import record


@pytest.fixture(params=["memory", "sqlite"])
def once(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Once]:
    with Once("memory://" if request.param == "memory" else f"sqlite:///{tmp_path / 'once.db'}", app="shop") as once:
        yield once


def test_entities_are_listed_in_pages_and_values_only_on_request(once: Once) -> None:
    trucks = once.state("trucks")
    for number in range(5):
        order = Ordering("2026-03-01T12:00:00Z", message_id=f"m{number}")
        trucks.apply(f"truck {number}", order, {"at": "Potsdam", "password": "p"})
    admin = Admin.of(once)
    first = run(admin.entities("shop/trucks", limit=3))
    rest = run(admin.entities("shop/trucks", limit=3, cursor=first.cursor))
    assert (len(first.rows), len(rest.rows), rest.cursor) == (3, 2, None)
    assert {row.entity for row in (*first.rows, *rest.rows)} == {f"truck {number}" for number in range(5)}
    assert all(row.value.value is None and row.value.size for row in first.rows)
    values = [row.value.value for row in run(admin.entities("shop/trucks", values=True)).rows]
    assert values == [{"at": "Potsdam", "password": "***"}] * 5
    assert run(admin.limited(Visible(tenants=("acme",))).entities("shop/trucks")).rows == []
    assert run(admin.entities("shop/none")).rows == []
    with pytest.raises(ConfigurationError, match="cursor"):
        run(admin.entities("shop/trucks", cursor="!"))


def park(once: Once, key: str, name: str, **note: str) -> None:
    with pytest.raises(TimeoutError), once.claim(key, name=name, after_crash="park", note=note):
        raise TimeoutError("no answer")


def test_parked_messages_are_dead_letters_and_other_parked_records_are_not(once: Once) -> None:
    for tenant in ("acme", "globex"):
        own = once.using(tenant=tenant)
        park(own, f"m-{tenant}", "mail.message", message="m-1", queue="mails", body="{")
        park(own, f"wire:{tenant}", "wire")
    admin = Admin.of(once)
    found = run(admin.dead_letters())
    assert {row.key for row in found.parked} == {"m-acme", "m-globex"}
    assert (found.cursor, found.moved) == (None, {})
    limited = run(admin.limited(Visible(tenants=("acme",))).dead_letters())
    assert [row.key for row in limited.parked] == ["m-acme"]
    keys: list[str] = []
    page = run(admin.dead_letters(limit=1))
    while page.cursor is not None:
        keys += [row.key for row in page.parked]
        page = run(admin.dead_letters(limit=1, cursor=page.cursor))
    assert sorted([*keys, *(row.key for row in page.parked)]) == ["m-acme", "m-globex"]


def test_a_parked_message_can_only_be_forgotten_also_by_a_preview_made_by_hand(once: Once) -> None:
    park(once, "m-1", "mail.message", message="m-1", queue="mails", body="{")
    admin = Admin.of(once)
    [row] = run(admin.dead_letters()).parked
    for name in ("resolve-applied", "resolve-not-applied", "resolve-abandon"):
        preview = run(admin.preview(ACTIONS[name], ids=[row.id]))
        assert preview.targets == []
        applied = run(admin.apply(Preview(ACTIONS[name], [preview.refused[0].target], []), why="mine"))
        assert (applied.done, applied.reasons) == ([], preview.reasons)
    preview = run(admin.preview(ACTIONS["forget"], ids=[row.id]))
    assert len(run(admin.apply(preview, why="answered by phone")).done) == 1


def test_messages_that_were_moved_are_counted_by_scope(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'once.db'}"
    with Once(url, app="shop", counters=True) as worker:
        for scope in ("shop/mails", "shop/mails", "shop/faxes@acme"):
            worker.engine.bus.count("dead_lettered", scope)
    with Once(url, app="shop") as once:
        admin = Admin.of(once)
        assert run(admin.dead_letters()).moved == {"shop/mails": 2, "shop/faxes@acme": 1}
        limited = admin.limited(Visible(tenants=("acme",)))
        assert run(limited.dead_letters()).moved == {"shop/faxes@acme": 1}


def similar(people: People) -> None:
    people.add(record("csv", "1", name="Anna Schmidt", city="Berlin", country="DE"))
    people.add(record("crm", "2", name="Ana Schmidt", city="Berlin", country="DE"))


def test_reviews_are_listed_and_answered_in_the_name_of_the_operator(tmp_path: Path) -> None:
    with Once("memory://") as once, People(f"sqlite:///{tmp_path / 'people.db'}") as people:
        similar(people)
        admin = Admin.of(once, people=people, who="ann")
        [review] = run(admin.reviews())
        assert {review.one.fields["name"], review.other.fields["name"]} == {"Anna Schmidt", "Ana Schmidt"}
        run(admin.answer_review(review.one.id, review.other.id, same=False))
        assert run(admin.reviews()) == []
        assert len(people) == 2


def test_people_of_async_clients_are_read_without_blocking(tmp_path: Path) -> None:
    import asyncio

    url = f"sqlite:///{tmp_path / 'people.db'}"
    with People(url) as people:
        similar(people)

    async def answered() -> tuple[int, int]:
        async with AsyncOnce("memory://") as once, AsyncPeople(url) as people:
            admin = Admin.of(once, people=people)
            [review] = await admin.reviews()
            await admin.answer_review(review.one.id, review.other.id, same=True)
            return len(await admin.reviews()), len(await admin.imports())

    assert asyncio.run(answered()) == (0, 0)
    with People(url) as people:
        assert len(people) == 1


def test_imports_report_their_progress(tmp_path: Path) -> None:
    with Once("memory://") as once, People(f"sqlite:///{tmp_path / 'people.db'}") as people:
        admin = Admin.of(once, people=people)
        assert run(admin.imports()) == []
        import_file(write(tmp_path / "users.csv", [*users(5), ("", "", "")]), people)
        [row] = run(admin.imports())
        assert (row.created, row.updated, row.done) == (5, 0, row.created + row.skipped + row.rejected)
        assert row.state
        assert "users.csv" in row.name


def test_without_people_there_are_no_reviews_and_no_answers(once: Once) -> None:
    admin = Admin.of(once)
    assert run(admin.reviews()) == []
    assert run(admin.imports()) == []
    with pytest.raises(ConfigurationError, match="no database of people"):
        run(admin.answer_review("1", "2", same=True))
