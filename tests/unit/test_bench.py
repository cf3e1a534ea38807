"""The measuring itself: pairs, medians, the noise floor, the bars. Nothing here depends on how fast this machine is."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from bench import __main__ as command
from bench import (
    bare,
    bars,
    cases_keys,
    cases_many,
    footprint,
    http_apps,
    paired,
    peers,
    peers_postgres,
    peers_redis,
    report,
)
from bench.case import Effort, Missing, Plan
from bench.paired import Comparison, Pace, Ratio, Reading
from onceward import open_store
from onceward.stores import MemoryStore

ROOT = Path(__file__).resolve().parents[2]

ONE_ROUND = Pace(1, 0)
TINY = Effort(
    calls=ONE_ROUND,
    disk=ONE_ROUND,
    log=Pace(1, 0, 8),
    concurrent=Pace(1, 0, 8),
    contended=Pace(1, 0, 8),
    stream=Pace(1, 0, 8),
    callers=4,
    few=10,
    many=30,
)


@pytest.fixture(autouse=True)
def _few_known_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    """Use eight known keys instead of two hundred: each replay case writes them first, mostly to a disk or a server."""
    for place in ("bench.case.KNOWN", "bench.http.KNOWN"):
        monkeypatch.setattr(place, 8)


class SlowingMachine:
    """A clock that only work advances, on a machine that gets slower and slower."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 0.0
        self.order: list[str] = []
        self._slowness = 1.0
        monkeypatch.setattr(
            paired, "time", SimpleNamespace(perf_counter=lambda: self.now, process_time=lambda: self.now)
        )
        monkeypatch.setattr(paired, "gc", SimpleNamespace(collect=lambda: 0))  # slow after thousands of other tests

    def work(self, name: str, seconds: float, preparation: float = 0) -> paired.Block:
        def block(times: int) -> paired.Run:
            self.now += preparation

            def run() -> None:
                self.order.append(name)
                self.now += times * seconds * self._slowness
                self._slowness *= 1.001

            return run

        return block


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> SlowingMachine:
    return SlowingMachine(monkeypatch)


def test_a_machine_that_gets_slower_and_slower_does_not_change_the_ratio(machine: SlowingMachine) -> None:
    found = paired.compare(machine.work("a", 0.003), machine.work("b", 0.001), Pace(20, 0.02))
    assert found.wall.median == pytest.approx(3, rel=0.002)
    assert found.wall.low <= found.wall.median <= found.wall.high
    assert found.noise.median == pytest.approx(1, rel=0.002)
    assert found.pairs == 40
    assert found.blocks == (8, 32), "each block takes at least the time that was asked for"


def test_what_is_prepared_before_a_block_is_not_timed(machine: SlowingMachine) -> None:
    found = paired.compare(machine.work("a", 0.003, preparation=5), machine.work("b", 0.001), Pace(20, 0.02))
    assert found.wall.median == pytest.approx(3, rel=0.002)


def test_blocks_alternate_so_that_neither_side_is_always_first(machine: SlowingMachine) -> None:
    paired.compare(machine.work("a", 1), machine.work("b", 1), Pace(2, 0.5))
    calibration = 2
    assert "".join(machine.order[calibration:]) == "abbaabba" + "bbbb" * 2


def test_a_block_is_never_smaller_than_asked_for(machine: SlowingMachine) -> None:
    assert paired.block_size(machine.work("a", 1), 0.5, smallest=64) == 64
    assert paired.block_size(machine.work("a", 0.001), 0.1, smallest=64) == 128


@pytest.mark.parametrize("late_a", range(4))
@pytest.mark.parametrize("late_b", range(2))
def test_each_file_of_one_side_meets_each_of_the_other_wherever_the_turns_begin(late_a: int, late_b: int) -> None:
    used: list[str] = []

    def on(file: str) -> paired.Block:
        return lambda _: lambda: used.append(file)

    a = paired.alternate(paired.ORDER_OF_A, on("a0"), on("a1"))
    b = paired.alternate(paired.ORDER_OF_B, on("b0"), on("b1"))
    for side, late in ((a, late_a), (b, late_b)):
        for _ in range(late):
            side(1)
    for side in (a, b, b, a) * 2:
        side(1)()
    pairs = [(used[start], used[start + 1]) for start in range(0, 8, 2)]
    assert sorted(tuple(sorted(pair)) for pair in pairs) == [("a0", "b0"), ("a0", "b1"), ("a1", "b0"), ("a1", "b1")]
    used.clear()
    for _ in range(4):
        b(1)()
    assert used[0] != used[1], "the noise is that between two files, too"
    assert used[2] != used[3]


def test_the_interval_is_wide_when_the_ratios_are_and_the_same_for_the_same_seed() -> None:
    calm = paired.ratio([1.0, 1.01, 0.99, 1.0, 1.0], seed=1)
    wild = paired.ratio([0.2, 5.0, 1.0, 0.3, 4.0], seed=1)
    assert calm.high - calm.low < 0.05
    assert wild.high - wild.low > 1
    assert wild == paired.ratio([0.2, 5.0, 1.0, 0.3, 4.0], seed=1)


# ── the bars ────────────────────────────────────────────────────────────────────────────────────────────────────────


def found(median: float, low: float, high: float) -> Comparison:
    """Return a comparison in which Onceward takes so many times as long as the other side."""
    even = Ratio(1, 1, 1)
    return Comparison((1, 1), 2, Reading(median, median), Reading(1, 1), Ratio(median, low, high), even, even)


@pytest.mark.parametrize(
    ("bar", "comparison", "text", "met", "far"),
    [
        (bars.at_most(1.5), found(1.4, 1.3, 1.45), "met", True, False),
        (bars.at_most(1.5), found(1.5, 1.4, 1.5), "met", True, False),
        (bars.at_most(1.5), found(1.4, 1.3, 1.6), "met, but the interval includes the bar", True, False),
        (bars.at_most(1.5), found(1.8, 1.7, 1.9), "missed by 1.20 ×", False, False),
        (bars.at_most(1.5), found(1.8, 1.4, 1.9), "missed by 1.20 ×, but the interval includes the bar", False, False),
        (bars.at_most(1.5), found(3.0, 2.9, 3.1), "missed by 2.00 ×", False, True),
        (bars.at_least(2), found(0.25, 0.2, 0.4), "met", True, False),
        (bars.at_least(2), found(0.5, 0.4, 0.5), "met", True, False),
        (bars.at_least(2), found(0.4, 0.3, 0.6), "met, but the interval includes the bar", True, False),
        (bars.at_least(2), found(0.625, 0.6, 0.7), "missed by 1.25 ×", False, False),
        (bars.at_least(2), found(2.0, 1.9, 2.1), "missed by 4.00 ×", False, True),
    ],
)
def test_a_bar_is_met_or_missed_by_the_median_and_doubted_by_the_interval(
    bar: bars.Bar, comparison: Comparison, text: str, met: bool, far: bool
) -> None:
    verdict = bars.judge(bar, comparison)
    assert (str(verdict), verdict.met, verdict.far) == (text, met, far)


def test_a_bar_of_speed_shows_how_many_times_as_fast_and_a_bar_of_cost_how_many_times_as_long() -> None:
    assert bars.judge(bars.at_least(2), found(0.25, 0.2, 0.5)).ratio == Ratio(4, 2, 5)
    assert bars.judge(bars.at_most(2), found(0.25, 0.2, 0.5)).ratio == Ratio(0.25, 0.2, 0.5)
    assert (str(bars.at_least(3.5)), str(bars.at_most(1.2))) == ("≥ 3.5 ×", "≤ 1.2 ×")


def test_a_line_shows_both_sides_the_ratio_the_noise_the_bar_and_the_verdict() -> None:
    name = "sqlite FULL, fresh, against bare statements"
    comparison = found(1.5, 1.4, 1.6)._replace(noise=Ratio(1.01, 0.98, 1.03), a=Reading(0.0015, 0.0002))
    words = report.row(name, comparison).removeprefix(name).split(maxsplit=6)
    assert " ".join(words) == "1,500.0 1,000,000.0 1.50 [1.40–1.60] 1.01 [0.98–1.03] ≤ 1.2 × missed by 1.25 ×"
    entry = report.entry(name, comparison)
    assert entry["noise_wall"] == {"median": 1.01, "low": 0.98, "high": 1.03}
    assert entry["onceward_us"] == {"wall": 1500, "cpu": 200}
    assert entry["bar"] == {
        "sense": "at most",
        "limit": 1.2,
        "of": "wall",
        "ratio": {"median": 1.5, "low": 1.4, "high": 1.6},
        "met": False,
        "certain": True,
        "miss": 1.25,
        "far": False,
    }


def test_the_page_about_speed_names_every_bar() -> None:
    page = (ROOT / "docs/explain/speed.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (.+?) \| ([≥≤] [\d.]+ ×) \|", page, re.MULTILINE)
    assert rows == [(name, str(bar)) for name, bar in bars.BARS.items()]


# ── the cases ───────────────────────────────────────────────────────────────────────────────────────────────────────

NAMES = {*bars.BARS, *bars.WITHOUT_BAR}
PEERS = (*peers.PEERS, *peers_redis.PEERS, *peers_postgres.PEERS, *http_apps.PEERS, "psycopg_pool")
OF_PEERS = {name for name in NAMES if any(peer in name for peer in PEERS)}


@pytest.mark.timeout(600)  # there are many
def test_every_case_really_runs_and_every_bar_has_its_case(tmp_path: Path) -> None:
    names = []
    for case in command.cases(Plan(TINY, tmp_path)):
        names.append(case.name)
        if isinstance(case, Missing):
            at_home = os.environ.get("CI") != "true"  # where a server may be missing, too
            assert case.name in OF_PEERS or (at_home and case.name.startswith("postgres"))
        else:
            for side in (case.ours, case.theirs):
                side(case.pace.smallest)()
                side(3)()
    assert len(names) == len(NAMES)
    assert set(names) == NAMES


@pytest.mark.parametrize("words", ["@once", "bare statements", "sqlite 64"])
def test_what_is_called_fresh_is_fresh_on_both_sides_and_what_is_called_replay_runs_nothing(
    words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[str] = []

    def noted(key: str) -> str:
        calls.append(key)
        return key

    for module in ("cases_memory", "cases_sqlite", "cases_concurrent", "peers"):
        monkeypatch.setattr(sys.modules[f"bench.{module}"], "work", noted)
    for case in command.cases(Plan(TINY, tmp_path, tuple(words.split()))):
        if isinstance(case, Missing):
            continue
        for side in (case.ours, case.theirs):
            side(5)()
            calls.clear()
            side(5)()
            assert len(calls) == len(set(calls)) == (0 if "replay" in case.name else 5), case.name


def test_a_peer_that_is_not_installed_is_said_to_be_so_in_table_and_json(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("dogpile.cache", "exactly_once"):
        monkeypatch.setitem(sys.modules, module, None)
    monkeypatch.setattr(command, "QUICK", TINY)
    assert command.main(["--quick", "--only", "memory @once"]) == 0
    table = capsys.readouterr().out
    assert table.count("dogpile.cache is not installed: make bench installs it") == 4
    assert table.count("exactly-once is not installed: make bench installs it") == 2
    assert command.main(["--quick", "--only", "memory @once", "-o", "json"]) == 0
    entries = json.loads(capsys.readouterr().out)["cases"]
    assert set(entries) == {name for name in OF_PEERS if name.startswith("memory")}
    assert all(set(entry) == {"missing"} for entry in entries.values())


def test_a_key_of_ours_is_type_exact_and_the_usual_one_is_not(tmp_path: Path) -> None:
    assert len(list(command.cases(Plan(TINY, tmp_path, ("payload",))))) == 1, "it checks itself before it measures"
    assert not cases_keys.is_type_exact(cases_keys.json_key)
    sizes = [len(json.dumps(cases_keys.form(number), separators=(",", ":"))) for number in range(cases_keys.FORMS)]
    assert all(1000 <= size <= 1050 for size in sizes)


@pytest.mark.parametrize("url", ["memory://", "sqlite:///{folder}/keys.db"])
def test_a_filled_store_holds_all_its_keys_as_done(url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cases_many, "BATCH", 7)
    with cases_many.filled(open_store(url.format(folder=tmp_path)), 30) as call:
        outcomes = [str(call.outcome(cases_many.text(number))) for number in range(31)]
        assert outcomes == ["replayed"] * 30 + ["executed"]
        assert call(cases_many.text(29)) == "done"


def test_filling_is_reported_tenth_by_tenth(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cases_many, "BATCH", 7)
    with cases_many.filled(MemoryStore(), 100, label="memory"):
        output = capsys.readouterr()
    assert output.out == ""
    assert len(output.err.splitlines()) == 10
    assert output.err.splitlines()[-1] == "filling memory: 100 of 100 keys"


# ── the bare versions are minimal, but correct ─────────────────────────────────────────────────────


def test_the_bare_dict_runs_once_replays_and_refuses_other_owners(monkeypatch: pytest.MonkeyPatch) -> None:
    memory = bare.Memory()
    assert memory.run("a", lambda: 1) == 1
    assert memory.run("a", lambda: 2) == 1
    owner = memory.claim("b")
    with pytest.raises(bare.Busy):
        memory.claim("b")
    with pytest.raises(bare.Busy):
        memory.complete("b", owner.token + 1000, "stranger")
    monkeypatch.setattr(bare, "time", SimpleNamespace(time=lambda: owner.lease_until + 1))
    assert memory.run("b", lambda: "taken over") == "taken over"
    with pytest.raises(bare.Busy):
        memory.complete("b", owner.token, "late")


@pytest.mark.parametrize("opened", [bare.shared_connection, bare.connection_per_thread])
def test_the_bare_connections_let_one_of_many_threads_win(
    opened: Callable[[Path, bare.Work], AbstractContextManager[bare.Work]], tmp_path: Path
) -> None:
    done: list[str] = []
    busy: list[str] = []

    def work(key: str) -> str:
        done.append(key)
        return key

    with opened(tmp_path / "bare.db", work) as call:

        def contend() -> None:
            for number in range(5):
                try:
                    call(f"key {number}")
                except bare.Busy:
                    busy.append(f"key {number}")

        threads = [threading.Thread(target=contend) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert sorted(done) == [f"key {number}" for number in range(5)]
    assert len(busy) == 15


# ── the command ─────────────────────────────────────────────────────────────────────────────────────────────────────


def test_the_table_and_the_json_are_complete(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command, "QUICK", TINY)
    names = {
        name for name in NAMES if "sqlite" in name and "fresh" in name
    }  # that all others run, too, is the test above
    assert command.main(["--quick", "--only", "sqlite fresh"]) == 0
    lines = {line.partition("  ")[0]: line for line in capsys.readouterr().out.splitlines()}
    assert set(lines) >= names
    for name in names & bars.BARS.keys():
        assert re.search(rf"{bars.BARS[name]} +(met|missed by [\d.]+ ×)", lines[name])
    assert command.main(["--quick", "--only", "sqlite fresh", "-o", "json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["quick"] is True
    assert document["keys"] == {"few": 10, "many": 30}
    assert set(document["cases"]) == names
    for name, entry in document["cases"].items():
        assert entry["ratio_wall"]["median"] > 0
        assert entry["noise_wall"]["low"] <= entry["noise_wall"]["high"]
        assert (entry["bar"] is None) == (name in bars.WITHOUT_BAR)
    assert {entry["bar"]["limit"] for entry in document["cases"].values() if entry.get("bar")} >= {1.2, 1.5}


def bench(*options: str) -> Any:
    arguments = [sys.executable, "-m", "bench", "--quick", "-o", "json", *options]
    done = subprocess.run(arguments, cwd=ROOT, capture_output=True, text=True, timeout=200, check=True)
    return json.loads(done.stdout)


def test_the_command_works_from_a_shell_and_takes_words() -> None:
    cases = bench("--rounds", "1", "--only", "memory ready")["cases"]
    assert set(cases) == {name for name in NAMES if name.startswith("memory ready")}
    assert all(one["pairs"] == 2 for one in cases.values())


def test_words_that_name_no_case_are_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["--only", "sqlite dogpile"]) == 1
    assert "no case matches 'sqlite dogpile'" in capsys.readouterr().err


def test_the_cost_of_the_import_is_reported_beside_that_of_its_dependencies() -> None:
    alone, ours, awaited = bench("--only", "import")["imports"]
    assert ours["statement"] == "import onceward"
    assert alone["modules"] < ours["modules"] < awaited["modules"]
    assert 0 < ours["least"] <= ours["median"]


def test_the_gaps_of_the_loop_are_reported_beside_those_of_an_idle_one() -> None:
    gaps = bench("--only", "loop")["gaps"]
    assert [one["case"] for one in gaps][:2] == ["nothing", "200 claims by ten workers"]
    assert all(0 <= one["least"] <= one["median"] for one in gaps)
    assert all(one["computing"] > 0 for one in gaps), "the ticking itself takes some time"


def test_a_key_takes_no_more_than_its_goal_in_every_store_that_is_measured() -> None:
    found = {one["store"]: one for one in bench("--only", "footprint")["stores"]}
    assert set(found) == set(footprint.GOALS)
    measured = [one for one in found.values() if not one["missing"]]
    assert "sqlite" in [one["store"] for one in measured]
    for one in measured:
        assert 0 < one["bytes_per_key"] <= footprint.GOALS[one["store"]], one
    assert found["sqlite"]["wal_replay"] == 0 < found["sqlite"]["wal_fresh"]


def test_the_cost_of_a_purge_is_reported_beside_that_of_calls_without_it() -> None:
    sqlite, *_ = bench("--only", "purge")["stores"]
    assert sqlite["store"] == "sqlite"
    assert sqlite["purged_per_second"] > 0
    assert 0 < sqlite["beside_median"] <= sqlite["beside_longest"]
