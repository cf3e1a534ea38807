"""`onceward sagas`, and what `retry`, `resolve`, `show` and `explain` say about them."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from onceward import Once, applied
from onceward.results.encryption import AesGcm
from onceward.sagas import Saga, Step, StepContext
from tests.cli.calls import as_json, call, line


class Shop:
    """A saga on a file, whose steps raise what the test plans."""

    def __init__(self, path: Path, **settings: Any) -> None:
        self.url = f"sqlite:///{path}"
        self.once = Once(self.url, app="shop", **settings)
        self.log: list[str] = []
        self.trouble: dict[str, list[Exception]] = {}
        self.order: Saga = self.once.saga(
            "order",
            Step("reserve", self.act, undo=self.undo, retry_delay=0, undo_attempts=1, final=ValueError),
            Step("wire", self.act, undo=self.undo, after_crash="park"),
            Step("ship", self.act, kind="pivot", final=ValueError),
            key="order:{number}",
        )

    def act(self, step: StepContext) -> str:
        return self._log(step.name)

    def undo(self, step: StepContext) -> None:
        self._log(f"undo {step.name}")

    def _log(self, name: str) -> str:
        self.log.append(name)
        waiting = self.trouble.get(name)
        if waiting:
            raise waiting.pop()
        return f"{name} done"

    def call(self, *words: object) -> Any:
        return call(*words, "--store", self.url)

    def json(self, *words: object) -> Any:
        return as_json(*words, "--store", self.url, "-o", "json")


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Shop]:
    one = Shop(tmp_path / "shop.db")
    yield one
    one.once.close(timeout=0)


def steps(saga: dict[str, Any]) -> dict[str, str]:
    return {step["name"]: step["progress"] for step in saga["saga"]["steps"]}


def test_sagas_are_listed_with_how_far_they_have_come(shop: Shop) -> None:
    shop.trouble["wire"] = [TimeoutError("no answer")]
    shop.order.outcome(number=1)
    shop.trouble["ship"] = [ValueError("no such address")]
    shop.order.outcome(number=2)
    shop.order(number=3)
    shop.once.run("no saga", len, [1])
    parked, undone = shop.json("sagas")
    assert (parked["key"], parked["state"], parked["saga"]["direction"]) == ("order:1", "PARKED", "forward")
    assert steps(parked) == {"reserve": "done", "wire": "begun"}
    assert (undone["state"], undone["saga"]["undone"]) == ("FAILED", True)
    assert steps(undone) == {"reserve": "undone", "wire": "undone", "ship": "not done"}
    assert parked["note"] == {}, "its journal is shown as such"
    assert [one["key"] for one in shop.json("sagas", "--parked")] == ["order:1"]
    assert len(shop.json("sagas", "--all")) == 3
    assert shop.json("sagas", "--scope", "shop/none") == []
    table = shop.call("sagas", "-o", "table").stdout
    assert "+reserve ?wire" in table
    assert "xreserve xwire -ship" in table
    limited = shop.call("sagas", "--limit", "1", "-o", "table")
    assert "more than these 1" in limited.stderr


def test_no_sagas_is_not_an_error(shop: Shop) -> None:
    shop.once.run("no saga", len, [1])
    assert "No sagas." in shop.call("sagas", "-o", "table").stderr


def test_explain_and_show_list_the_steps(shop: Shop) -> None:
    shop.trouble["wire"] = [TimeoutError("no answer")]
    shop.order.outcome(number=1)
    explanation = " ".join(shop.json("explain", "order:1")["explanation"])
    assert "It is a saga that runs forward: reserve done, wire begun." in explanation
    assert "Record how the step that blocks it ended: `onceward resolve order:1 --applied`" in explanation
    assert "onceward:" not in explanation
    assert "onceward:" not in json.dumps(shop.json("show", "order:1"))


def test_resolve_is_about_the_step_and_the_saga_continues(shop: Shop) -> None:
    shop.trouble["wire"] = [TimeoutError("no answer")]
    shop.order.outcome(number=1)
    done = shop.call("resolve", "order:1", "--applied", "--result", '"by phone"', "--yes", "--why", "asked the bank")
    assert done.exit_code == 0, done.output
    entry = shop.order.read(number=1)
    assert entry is not None
    assert entry.state == "PENDING", "claimable immediately, and not marked as completed"
    explanation = " ".join(shop.json("explain", "order:1")["explanation"])
    assert "made it runnable again" in explanation
    assert "it has not been delivered since" in explanation
    assert shop.order(number=1)["wire"] == "by phone"
    assert shop.log == ["reserve", "wire", "ship"]
    [trail] = shop.json("audit")
    assert (trail["verb"], trail["detail"], trail["why"]) == ("resolve", "applied", "asked the bank")


def test_resolve_as_not_applied_tries_it_again_and_abandon_undoes_it(shop: Shop) -> None:
    shop.trouble["wire"] = [TimeoutError(), TimeoutError()]
    shop.order.outcome(number=1)
    assert shop.call("resolve", "order:1", "--not-applied", "--yes").exit_code == 0
    assert shop.order.outcome(number=1).kind == "parked"
    assert shop.call("resolve", "order:1", "--abandon", "--yes").exit_code == 0
    assert shop.order.outcome(number=1).kind == "parked", (
        "its outcome must be known first, and this step has no check for it"
    )
    assert shop.json("sagas")[0]["saga"]["direction"] == "compensating"
    assert shop.call("resolve", "order:1", "--applied", "--yes").exit_code == 0
    assert shop.order.outcome(number=1).kind == "failed"
    assert shop.log == ["reserve", "wire", "wire", "undo wire", "undo reserve"]


def test_retry_lets_a_saga_continue_or_start_over(shop: Shop) -> None:
    shop.trouble["ship"] = [ValueError("no such address")]
    shop.trouble["undo reserve"] = [ConnectionError()]
    assert shop.order.outcome(number=1).kind == "parked"
    assert shop.call("retry", "order:1", "--yes").exit_code == 0
    assert shop.order.outcome(number=1).kind == "failed"
    assert shop.log[-2:] == ["undo reserve", "undo reserve"]
    shop.log.clear()
    assert shop.call("retry", "order:1", "--yes").exit_code == 0
    assert shop.order.outcome(number=1).kind == "executed"
    assert shop.log == ["reserve", "wire", "ship"]
    refused = shop.call("retry", "order:1", "--yes")
    assert refused.exit_code == 71
    assert "nothing to retry" in line(refused)


def test_retry_is_refused_for_a_step_with_an_unknown_outcome(shop: Shop) -> None:
    shop.trouble["wire"] = [TimeoutError()]
    shop.order.outcome(number=1)
    refused = shop.call("retry", "order:1", "--yes")
    assert refused.exit_code == 71
    assert "`onceward resolve order:1 --applied`" in line(refused)


@pytest.mark.parametrize("step", ["reserve", "wire"])
def test_a_plain_result_is_not_written_into_an_encrypted_journal(tmp_path: Path, step: str) -> None:
    """No worker could read it, and the saga would never end. In the first step, only the input is encrypted."""
    shop = Shop(tmp_path / "sealed.db", cipher=AesGcm({"k": b"0" * 32}, current="k"))
    shop.trouble[step] = [TimeoutError() for _ in range(3)]
    shop.order.outcome(number=1)
    refused = shop.call("resolve", "order:1", "--applied", "--yes")
    assert refused.exit_code == 2
    assert "encrypted" in refused.stderr
    shop.trouble.clear()
    shop.order.resolve(applied("by phone"), number=1)
    assert shop.order(number=1)[step] == "by phone"
    shop.once.close(timeout=0)


# ── give up and forget ──


def parked_pivot(tmp_path: Path) -> Shop:
    shop = Shop(tmp_path / "pivot.db")
    shop.trouble["ship"] = [TimeoutError("no answer") for _ in range(3)]
    assert shop.order.outcome(number=1).kind == "parked"
    return shop


def test_a_parked_pivot_that_was_not_done_is_given_up_and_the_rest_undone(tmp_path: Path) -> None:
    shop = parked_pivot(tmp_path)
    refused = shop.call("resolve", "order:1", "--abandon", "--yes")
    assert refused.exit_code == 71
    assert "--not-applied --undo" in refused.stderr
    done = shop.call("resolve", "order:1", "--not-applied", "--undo", "--yes", "--why", "the carrier says no")
    assert done.exit_code == 0, done.output
    assert shop.order.outcome(number=1).kind == "failed"
    assert shop.log[-2:] == ["undo wire", "undo reserve"]
    [trail] = shop.json("audit")
    assert (trail["verb"], trail["detail"]) == ("resolve", "not_applied, undo")
    shop.once.close(timeout=0)


@pytest.mark.parametrize("words", [("--abandon",), ("--not-applied", "--undo")])
def test_a_parked_pivot_can_be_given_up_after_resolve_not_applied_too(tmp_path: Path, words: tuple[str, ...]) -> None:
    shop = parked_pivot(tmp_path)
    assert shop.call("resolve", "order:1", "--not-applied", "--yes").exit_code == 0
    assert shop.call("resolve", "order:1", "--applied", "--yes").exit_code == 71, "the step is no longer in doubt"
    assert shop.call("resolve", "order:1", *words, "--yes").exit_code == 0
    assert shop.order.outcome(number=1).kind == "failed"
    assert shop.log[-2:] == ["undo wire", "undo reserve"]
    shop.once.close(timeout=0)


def test_options_that_cannot_be_combined_with_undo(shop: Shop) -> None:
    shop.once.run("no saga", len, [1])
    for words in (("--applied", "--undo"), ("--abandon", "--undo")):
        assert "--undo requires --not-applied" in shop.call("resolve", "no saga", *words, "--yes").stderr


def test_forget_refuses_a_half_done_saga_and_says_what_would_stay(shop: Shop) -> None:
    shop.trouble["wire"] = [TimeoutError("no answer")]
    shop.order.outcome(number=1)
    refused = shop.call("forget", "order:1", "--yes")
    assert refused.exit_code == 71
    assert "has done, or may have done: reserve, wire; forgetting it would not undo these steps" in line(refused)
    assert shop.json("sagas")[0]["state"] == "PARKED"
    assert shop.call("forget", "order:1", "--yes", "--force").exit_code == 0
    assert shop.json("sagas") == []


def test_a_released_saga_waits_like_any_other_that_may_continue(shop: Shop) -> None:
    shop.trouble["wire"] = [TimeoutError("no answer")]
    shop.order.outcome(number=1)
    shop.call("resolve", "order:1", "--not-applied", "--yes")
    assert shop.json("sagas")[0]["standing"] == "PENDING lapsed"
    assert shop.call("release", "order:1", "--yes").exit_code == 0
    assert shop.json("sagas")[0]["standing"] == "PENDING lapsed", "a failure would be given up after 30 days"
    assert shop.order.outcome(number=1).kind == "executed"


def test_an_unreadable_journal_is_reported_and_the_rest_is_explained(shop: Shop, tmp_path: Path) -> None:
    shop.trouble["wire"] = [TimeoutError("no answer")]
    shop.order.outcome(number=1)
    with closing(sqlite3.connect(tmp_path / "shop.db")) as connection, connection:
        [(note,)] = connection.execute("SELECT note FROM onceward_records").fetchall()
        damaged = json.dumps(json.loads(note) | {"onceward:saga": "{"})
        connection.execute("UPDATE onceward_records SET note = ?", (damaged,))
    explanation = shop.json("explain", "order:1")["explanation"]
    assert explanation[0].startswith("Parked ")
    assert "It is a saga whose steps cannot be read: the journal of this saga cannot be read" in explanation[-1]
