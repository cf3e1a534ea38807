"""Show and change records from the command line."""

from __future__ import annotations

import dataclasses
import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import msgspec
import pydantic
import pytest

from onceward import Once, OutcomeParked
from onceward.administration.explain import sentences
from onceward.cli.exit_codes import Exit
from onceward.cli.settings import VARIABLES
from onceward.protocol.counters import HOUR, CounterRow
from onceward.protocol.note import FRAME, INPUT, WINDOW, user_notes
from onceward.protocol.operation_names import NEXT_SLOT
from onceward.protocol.ports import Filter
from onceward.protocol.record import Record, RecordState
from onceward.protocol.requests import Complete, Renewal, Verdict
from onceward.runtime.threads import ThreadRuntime, run
from onceward.stores.sqlite import SQLiteStore
from tests.cli.calls import as_json, call, line, raising, silent_claims

STORE = "sqlite:///onceward.db"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A store with a record in each state: done, failed, refused, parked, live and lapsed."""
    monkeypatch.chdir(tmp_path)
    for variable in VARIABLES.values():
        monkeypatch.delenv(variable, raising=False)
    with Once(STORE, app="shop") as once:
        once.run("done", lambda: {"paid": 5})
        once.outcome("failed", raising(ValueError("no card")))
        once.using(final=ValueError).outcome("refused", raising(ValueError("no such order")))
        once.using(after_crash="park").outcome("parked", raising(TimeoutError("no answer")))
        once.using(max_attempts=1).outcome("done elsewhere", str)
        silent_claims(once, {"live": "1h", "lapsed": "50ms"})
    return tmp_path


def read(key: str) -> Record:
    store = SQLiteStore("onceward.db")
    run(store.open(ThreadRuntime()))
    with Once(STORE, app="shop") as once:
        record = run(store.read([once.key(key).id], timeout=5))[0].record
    run(store.close())
    assert record is not None
    return record


def test_ls_shows_every_record_and_what_time_has_made_of_it() -> None:
    found = {one["key"]: one["standing"] for one in as_json("ls")}
    assert found == {
        "done": "COMPLETED",
        "done elsewhere": "COMPLETED",
        "failed": "FAILED",
        "refused": "FAILED final",
        "parked": "PARKED",
        "live": "PENDING",
        "lapsed": "PENDING lapsed",
    }


def test_ls_is_narrowed_by_state_scope_age_and_number() -> None:
    assert {one["key"] for one in as_json("ls", "--state", "failed", "--state", "PARKED")} == {
        "failed",
        "refused",
        "parked",
    }
    assert as_json("ls", "--scope", "shop/other") == []
    assert len(as_json("ls", "--scope", "shop/shared")) == 7
    assert "Did you mean shop/shared?" in call("ls", "--scope", "shared").stderr
    assert "there is" not in call("ls", "--scope", "shop/other").stderr
    assert as_json("ls", "--older-than", "1h") == []
    assert len(as_json("ls", "--older-than", "1ms")) == 7
    result = call("ls", "--limit", 2)
    assert len(json.loads(result.stdout)) == 2
    assert "more than these 2" in result.stderr


def test_a_table_is_not_cut_where_there_is_no_terminal_to_fit_into(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    key = "order:" + "7" * 120
    with Once(STORE, app="shop") as once:
        once.run(key, str)
    assert key in call("ls", "-o", "table").stdout
    monkeypatch.setenv("COLUMNS", "80")
    shown = call("ls", "-o", "table").stdout
    assert key not in shown
    assert max(map(len, shown.splitlines())) <= 80


def test_ls_shows_the_latest_whichever_they_are_among_many() -> None:
    with Once(STORE, app="many") as once:
        for number in range(300):
            once.run(f"key {number:03}", str)
        once.forget("key 007")
        once.run("key 007", str)
    latest = [one["key"] for one in as_json("ls", "--scope", "many/shared", "--limit", 3)]
    assert latest == ["key 007", "key 299", "key 298"]
    assert latest == [one["key"] for one in as_json("ls", "--scope", "many/shared", "--limit", 3, "--sort", "created")]
    by_key = [one["key"] for one in as_json("ls", "--scope", "many/shared", "--limit", 300, "--sort", "key")]
    assert by_key == [f"key {number:03}" for number in range(300)]


def test_a_store_that_cannot_sort_is_sorted_here(monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = [as_json("ls", "--limit", 4, "--sort", order) for order in ("updated", "created", "key")]
    monkeypatch.setattr(SQLiteStore, "sorting", None)
    assert wanted == [as_json("ls", "--limit", 4, "--sort", order) for order in ("updated", "created", "key")]


def test_show_prints_every_field_and_the_value_on_demand() -> None:
    shown = as_json("show", "done")
    assert (shown["state"], shown["stored"], "value" in shown) == ("COMPLETED", True, False)
    assert as_json("show", "done", "--value")["value"] == {"paid": 5}
    assert as_json("show", f"id:{shown['id'][:10]}")["key"] == "done"
    assert as_json("show", f"id:{shown['id'].upper()}")["key"] == "done"


def test_show_and_explain_say_why_a_result_was_not_kept() -> None:
    with Once(STORE, app="shop", max_result_bytes=100) as once:
        once.run("large", lambda: "x" * 100)
    reason = "it takes 109 bytes, and the limit is 100"
    assert as_json("show", "large")["unstored"] == reason
    assert any(reason in sentence for sentence in as_json("explain", "large")["explanation"])
    assert as_json("show", "done")["unstored"] == ""


@dataclasses.dataclass(frozen=True)
class Receipt:
    number: int
    total: Decimal


class Invoice(pydantic.BaseModel):
    number: int


def test_show_prints_the_plain_fields_of_what_was_an_instance() -> None:
    with Once(STORE, app="shop") as once:

        @once(key="receipt")
        def receipt() -> tuple[Receipt, frozenset[Receipt], Invoice]:
            return Receipt(1, Decimal("19.90")), frozenset({Receipt(2, Decimal(5))}), Invoice(number=3)

        receipt()
        first, kept, invoice = as_json("show", "receipt", "--value")["value"]
        assert first == {"number": 1, "total": "19.90"}
        assert kept == [{"number": 2, "total": "5"}]
        assert invoice == {"number": 3}
        shown = call("show", "receipt", "--value", "-o", "table").stdout
        assert "{'number': 1, 'total': Decimal('19.90')}" in shown
        entry = once.read(receipt.key())
        assert entry is not None
        assert entry.value == receipt(), "the client knows the function and its type"


def test_a_key_that_several_operations_use_is_listed_and_narrowed_by_scope() -> None:
    with Once(STORE, app="other") as once:
        once.run("done", str)
    result = call("show", "done")
    assert result.exit_code == Exit.SEVERAL
    assert "in shop/shared" in line(result)
    assert "in other/shared" in line(result)
    assert line(call("explain", "done")).endswith("→ use --scope with one of these scopes")
    assert as_json("show", "done", "--scope", "other/shared")["scope"] == "other/shared"


def test_a_key_of_a_hundred_thousand_characters_is_found_by_itself() -> None:
    key = "long\n" * 20_000
    with Once(STORE, app="shop") as once:
        once.run(key, str)
    assert as_json("show", key)["state"] == "COMPLETED"


@pytest.mark.parametrize("key", ["nothing", "id:0000", "id:" + "0" * 64])
def test_a_key_without_a_record_is_said_to_have_none(key: str) -> None:
    result = call("show", key)
    assert result.exit_code == Exit.ABSENT
    assert "no record for" in line(result)


@pytest.mark.parametrize(
    ("key", "sentences"),
    [
        ("done", ["Completed ", "A delivery now is skipped and gets the stored result, until "]),
        ("failed", ["failed ", "ValueError: no card", "A delivery now runs it again, as attempt 2."]),
        ("refused", ["failed permanently", "A delivery now is refused, until ", "`onceward retry refused`."]),
        ("parked", ["it is unknown whether attempt 1", "TimeoutError: no answer", "onceward resolve parked --applied"]),
        ("live", ["holds it: attempt 1", "Its lease was renewed", "waits for it", "page = 3"]),
        ("lapsed", ["stopped responding in attempt 1", "takes it over and runs it again, as attempt 2"]),
    ],
)
def test_explain_says_in_sentences_what_happened_and_what_would_happen(key: str, sentences: list[str]) -> None:
    text = call("explain", key, "-o", "table").stdout
    for sentence in sentences:
        assert sentence in text
    explanation = as_json("explain", key)["explanation"]
    assert all(one.endswith(".") for one in explanation)


def test_the_command_that_explain_suggests_works_for_a_key_that_begins_like_an_option() -> None:
    with Once(STORE, app="shop") as once, pytest.raises(ValueError, match="invalid literal"):
        once.using(final=ValueError).run("-x", int, "no number")
    explanation = " ".join(as_json("explain", "--", "-x")["explanation"])
    assert "`onceward retry -- -x`" in explanation
    assert call("retry", "--yes", "--", "-x").exit_code == Exit.OK


@pytest.mark.finding("N26")
def test_explain_after_retry_says_when_it_failed_and_which_attempt_is_next() -> None:
    with Once(STORE, app="shop", max_attempts=2) as once:
        for _ in range(2):
            with pytest.raises(ValueError, match="invalid literal"):
                once.run("twice", int, "no number")
    assert "Attempt 2 by" in " ".join(as_json("explain", "twice")["explanation"])
    assert call("retry", "--yes", "twice").exit_code == Exit.OK
    explained = as_json("explain", "twice")
    text = " ".join(explained["explanation"])
    assert "Attempt 1" not in text
    claimed = explained["claimed_at"][:19].replace("T", " ")
    assert f"({claimed} UTC). It failed: ValueError" in text
    assert "An operator made it claimable" in text
    assert "as attempt 2." in text


@pytest.mark.finding("N26")
def test_explain_after_retry_tells_the_claim_from_the_retry() -> None:
    with Once(STORE, app="shop", max_attempts=1) as once:
        once.outcome("late", raising(ValueError("no card")))
    assert call("retry", "--yes", "late").exit_code == Exit.OK
    record, hour = read("late"), 3_600_000_000
    claimed, retried, *_ = sentences(msgspec.structs.replace(record, claimed_at=0, updated_at=5 * hour), 7 * hour)
    assert "7h ago (1970-01-01 00:00:00 UTC)" in claimed
    assert "2h ago (1970-01-01 05:00:00 UTC)" in retried


def test_explain_names_the_owner() -> None:
    assert read("live").owner in call("explain", "live", "-o", "table").stdout


def test_stats_count_by_scope_and_state() -> None:
    assert as_json("stats") == {"shop/shared": {"FREE": 0, "PENDING": 2, "COMPLETED": 2, "FAILED": 2, "PARKED": 1}}
    assert "shop/shared  0     2        2          2       1" in call("stats", "-o", "table").stdout


@pytest.mark.finding("N23")
def test_doctor_asks_for_attention_for_what_waits_for_a_person() -> None:
    result = call("doctor")
    checks = {one["name"]: one["status"] for one in json.loads(result.stdout)}
    assert result.exit_code == Exit.ATTENTION
    assert checks == {
        "store": "ok",
        "mode": "ok",
        "clock": "ok",
        "schema": "ok",
        "journal": "ok",
        "synchronous": "ok",
        "records": "ok",
        "lapsed": "attention",
        "parked": "attention",
        "failed final": "attention",
        "stuck schedules": "ok",
        "unknown": "ok",
        "dead letters": "ok",
    }
    for key in ("lapsed", "parked", "refused"):
        call("forget", key, "--yes")
    assert call("doctor").exit_code == Exit.OK


@pytest.mark.finding("N23")
@pytest.mark.parametrize(
    ("counter", "check", "command"),
    [
        ("unknown", "unknown", "onceward explain KEY"),
        ("dead_lettered", "dead letters", "onceward ls --state FAILED"),
    ],
)
def test_doctor_asks_for_attention_for_what_was_counted_in_the_last_day(counter: str, check: str, command: str) -> None:
    with Once(STORE, app="shop") as once:
        once.read("done")  # opens the store
        hour = run(once.store.scan(Filter(), cursor=None, limit=1, timeout=5)).now // HOUR
        counts = [CounterRow(b"now", hour, 1, {"shop/charge": {counter: 2}})]
        counts.append(CounterRow(b"earlier", hour - 25, 1, {"shop/charge": {counter: 5}}))
        assert once.store.counters is not None
        run(once.store.counters.save_counts(counts, timeout=5))
    checks = {one["name"]: one for one in json.loads(call("doctor").stdout)}
    assert checks[check]["status"] == "attention"
    assert checks[check]["detail"].startswith("2 in a day. ")
    assert f"`{command}`" in checks[check]["detail"]


@pytest.mark.finding("N23")
def test_doctor_asks_for_attention_for_a_stuck_schedule() -> None:
    with Once(STORE, app="shop") as once, once.claim("slots", name="schedule:nightly", note={NEXT_SLOT: "1"}):
        pass
    checks = {one["name"]: one for one in json.loads(call("doctor").stdout)}
    assert checks["stuck schedules"]["status"] == "attention"
    assert checks["stuck schedules"]["detail"].startswith("1. Is a runner alive? Start `onceward schedule MODULE:APP`")


def test_doctor_notes_that_normal_does_not_surely_survive_a_power_cut() -> None:
    checks = {one["name"]: one for one in json.loads(call("doctor", "--store", f"{STORE}?synchronous=NORMAL").stdout)}
    assert checks["synchronous"]["status"] == "note"


@pytest.mark.parametrize(
    "words",
    [
        ("release", "lapsed"),
        ("retry", "failed"),
        ("resolve", "parked", "--applied"),
        ("forget", "done", "failed"),
        ("purge",),
    ],
    ids=lambda words: words[0],
)
def test_without_a_terminal_nothing_is_changed_unless_yes_is_said(words: tuple[str, ...]) -> None:
    before = as_json("ls")
    result = call(*words)
    assert result.exit_code == Exit.REFUSED
    assert "use --yes" in result.stderr.splitlines()[-1]
    assert as_json("ls") == before


@pytest.mark.fault("F3")
def test_release_lets_a_lapsed_one_run_again_and_cuts_its_owner_off() -> None:
    before = read("lapsed")
    assert call("release", "lapsed", "--yes", "--why", "host gone").exit_code == 0
    after = read("lapsed")
    assert (after.state, after.cycle, after.attempt) == (RecordState.FAILED, before.cycle, before.attempt)
    assert after.token > before.token
    assert after.note == before.note, "the notes are those of the work"
    assert late_verdicts(before) == [Verdict.LOST, Verdict.LOST]
    with Once(STORE, app="shop") as once:
        assert once.outcome("lapsed", str).attempt == 2


def test_work_that_may_have_had_its_effect_is_resolved_and_not_released() -> None:
    with Once(STORE, app="shop", after_crash="park") as once:
        silent_claims(once, {"paid": "50ms", "unpaid": "50ms"})
    before = read("paid")
    refused = call("release", "paid", "--yes")
    assert refused.exit_code == Exit.REFUSED
    assert "the effect may have happened (after_crash=park)" in line(refused)
    assert "onceward resolve paid --applied" in line(refused)
    assert read("paid") == before
    assert call("resolve", "paid", "--applied", "--result", '"TX-1"', "--yes").exit_code == 0
    assert call("resolve", "unpaid", "--not-applied", "--yes").exit_code == 0
    assert late_verdicts(before) == [Verdict.LOST, Verdict.LOST]
    with Once(STORE, app="shop") as once:
        assert once.outcome("paid", str).value == "TX-1"
        assert once.outcome("unpaid", str).attempt == 2


def late_verdicts(record: Record) -> list[Verdict]:
    """Return the verdicts that an owner gets if it wakes up after a person changed its record."""
    store = SQLiteStore("onceward.db")
    run(store.open(ThreadRuntime()))
    renewal = Renewal(record.id, record.token, record.nonce, 1_000_000)
    completion = Complete(record.id, record.token, record.nonce)
    answers = run(store.renew([renewal], timeout=5)) + run(store.settle([completion], timeout=5))
    run(store.close())
    return [answer.verdict for answer in answers]


def test_release_spares_a_live_owner_and_shows_who_it_is_unless_forced() -> None:
    before = read("live")
    result = call("release", "live", "--yes")
    assert result.exit_code == Exit.REFUSED
    assert f"owner {before.owner}, last renewed" in line(result)
    assert read("live") == before
    forced = call("release", "live", "--force", "--yes")
    assert forced.exit_code == 0
    assert f"owner {before.owner}, last renewed" in forced.stderr
    assert late_verdicts(before) == [Verdict.LOST, Verdict.LOST]


@pytest.mark.parametrize(
    "words",
    [("release", "done"), ("retry", "done"), ("resolve", "done", "--applied"), ("release", "parked", "--force")],
    ids=" ".join,
)
def test_a_record_in_another_state_is_left_alone(words: tuple[str, ...]) -> None:
    before = read(words[1])
    result = call(*words, "--yes")
    assert result.exit_code == Exit.REFUSED
    assert "nothing to" in line(result)
    assert read(words[1]) == before


@pytest.mark.parametrize("key", ["failed", "refused", "used up", "later"])
def test_retry_makes_a_failure_claimable_and_it_stays_the_same_work(key: str) -> None:
    with Once(STORE, app="shop") as once:
        once.using(max_attempts=1).outcome("used up", raising(ValueError("no")))
        once.using(retry_delay="1h").outcome("later", raising(ValueError("not yet")))
    before = read(key)
    assert call("retry", key, "--yes").exit_code == 0
    with Once(STORE, app="shop", fingerprint="none", max_attempts=1 if key == "used up" else None) as once:
        assert once.outcome(key, str).executed
    after = read(key)
    assert (after.cycle, after.token > before.token) == (before.cycle, True), "derived keys stay what they were"


def test_resolve_applied_makes_deliveries_replay_the_result() -> None:
    words = ("resolve", "parked", "--applied", "--result", '{"paid": 7}', "--why", "the bank says so", "--yes")
    assert as_json(*words)["done"] == "resolved as applied"
    with Once(STORE, app="shop") as once:
        outcome: Any = once.using(fingerprint="none").outcome("parked", str)
    assert (outcome.replayed, outcome.value) == (True, {"paid": 7})
    assert user_notes(read("parked").note) == {}, "the notes are those of the work"


def test_resolve_applied_says_that_there_is_no_result_if_none_was_given() -> None:
    assert "later calls return None" in call("resolve", "parked", "--applied", "--yes").stderr


def test_resolve_applied_drops_the_input_that_was_kept() -> None:
    with Once(STORE, app="shop") as once:

        @once(key="wire:{number}", store_input=True, after_crash="park")
        def wire(number: int) -> None:
            raise TimeoutError

        assert wire.outcome(7).kind == "parked"
        assert call("resolve", "wire:7", "--applied", "--yes").exit_code == 0
        entry: Any = wire.read(7)
    assert entry.record.note.keys() == {INPUT, FRAME, WINDOW}
    assert not entry.record.note[INPUT]


def test_resolve_not_applied_lets_it_run_and_abandon_does_not() -> None:
    for flag, state in (("--not-applied", False), ("--abandon", True)):
        assert call("resolve", "parked", flag, "--yes").exit_code == 0
        assert (read("parked").state, read("parked").final) == (RecordState.FAILED, state)
        with Once(STORE, app="shop", after_crash="park", fingerprint="none") as once:
            assert once.outcome("parked", raising(TimeoutError("again"))).kind == ("failed" if state else "parked")


@pytest.mark.parametrize(
    "words",
    [(), ("--result", "1"), ("--not-applied", "--result", "1"), ("--applied", "--result", "{so}")],
    ids=" ".join,
)
def test_resolve_asks_for_one_finding_and_for_json(words: tuple[str, ...]) -> None:
    assert call("resolve", "parked", *words, "--yes").exit_code == Exit.USAGE
    with Once(STORE, app="shop", fingerprint="none") as once, pytest.raises(OutcomeParked):
        once.run("parked", str)


def test_forget_frees_several_keys_but_spares_a_live_owner() -> None:
    result = call("forget", "done", "failed", "--yes")
    assert [one["key"] for one in json.loads(result.stdout)["records"]] == ["done", "failed"]
    assert {read("done").state, read("failed").state} == {RecordState.FREE}
    refused = call("forget", "live", "--yes")
    assert refused.exit_code == Exit.REFUSED
    assert "may be alive" in refused.stderr
    assert call("forget", "live", "--yes", "--force").exit_code == 0


def test_a_record_that_changes_before_the_person_confirms_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    from onceward.cli import change as acting

    def meanwhile(*_: object, **__: object) -> None:
        with Once(STORE, app="shop", fingerprint="none") as once:
            once.run("failed", lambda: "done after all")

    monkeypatch.setattr(acting, "ask", meanwhile)
    result = call("retry", "failed")
    assert result.exit_code == Exit.REFUSED
    assert "changed in the meantime" in line(result)
    assert read("failed").state is RecordState.COMPLETED


def test_a_late_owner_that_completes_before_the_person_confirms_keeps_its_result(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from onceward.cli import change as acting

    record = read("lapsed")

    def meanwhile(*_: object, **__: object) -> None:
        store = SQLiteStore("onceward.db")
        run(store.open(ThreadRuntime()))
        completion = Complete(record.id, record.token, record.nonce)
        assert run(store.settle([completion], timeout=5))[0].verdict is Verdict.OK
        run(store.close())

    monkeypatch.setattr(acting, "ask", meanwhile)
    assert call("release", "lapsed").exit_code == Exit.REFUSED
    assert read("lapsed").state is RecordState.COMPLETED


def test_purge_deletes_only_expired_records(folder: Path) -> None:
    import sqlite3

    raw = sqlite3.connect("onceward.db")
    raw.execute("UPDATE onceward_records SET valid_until = 1, token = 1 WHERE key = 'done'")
    raw.commit()
    raw.close()
    assert "Purge 1 records" in call("purge").stderr
    assert as_json("purge", "--yes") == {"done": "purged", "count": 1}
    assert len(as_json("ls")) == 6
