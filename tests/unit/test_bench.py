"""The measuring itself: pairs, medians and the noise floor."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from bench import paired
from bench.cases import cases

ROOT = Path(__file__).resolve().parents[2]


class SlowingMachine:
    """Time that only passes by work, and ever more slowly worked: as if something else took the machine over."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 0.0
        self.order: list[str] = []
        self._slowness = 1.0
        monkeypatch.setattr(
            paired, "time", SimpleNamespace(perf_counter=lambda: self.now, process_time=lambda: self.now)
        )

    def work(self, name: str, seconds: float) -> paired.Block:
        def block(times: int) -> None:
            self.order.append(name)
            self.now += times * seconds * self._slowness
            self._slowness *= 1.001

        return block


def test_a_machine_that_gets_slower_and_slower_does_not_change_the_ratio(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = SlowingMachine(monkeypatch)
    found = paired.compare(machine.work("a", 0.003), machine.work("b", 0.001), rounds=20, seconds=0.02)
    assert found.wall.median == pytest.approx(3, rel=0.002)
    assert found.wall.low <= found.wall.median <= found.wall.high
    assert found.noise.median == pytest.approx(1, rel=0.002)
    assert found.pairs == 40
    assert found.blocks == (8, 32), "each block takes at least the time that was asked for"


def test_blocks_alternate_so_that_neither_side_is_always_first(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = SlowingMachine(monkeypatch)
    paired.compare(machine.work("a", 1), machine.work("b", 1), rounds=2, seconds=0.5)
    calibration = 2
    assert "".join(machine.order[calibration:]) == "abbaabba" + "bbbb" * 2


def test_the_interval_is_wide_when_the_ratios_are_and_the_same_for_the_same_seed() -> None:
    calm = paired.ratio([1.0, 1.01, 0.99, 1.0, 1.0], seed=1)
    wild = paired.ratio([0.2, 5.0, 1.0, 0.3, 4.0], seed=1)
    assert calm.high - calm.low < 0.05
    assert wild.high - wild.low > 1
    assert wild == paired.ratio([0.2, 5.0, 1.0, 0.3, 4.0], seed=1)


def test_every_case_really_runs_fresh_and_replayed(tmp_path: Path) -> None:
    names = []
    for case in cases(tmp_path):
        case.ours(3)
        case.bare(3)
        names.append(case.name)
    assert names == [
        f"{where}, {what}" for where in ("memory", "sqlite FULL", "sqlite NORMAL") for what in ("fresh", "replay")
    ]


def bench(*options: str) -> Any:
    command = [sys.executable, "-m", "bench", "--quick", "-o", "json", *options]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=True)
    return json.loads(done.stdout)


def test_the_command_prints_json() -> None:
    document = bench("--rounds", "1", "--only", "memory")
    assert set(document["cases"]) == {"memory, fresh", "memory, replay"}
    assert document["quick"] is True
    assert all(one["ratio_wall"]["median"] > 0 for one in document["cases"].values())


def test_the_cost_of_the_import_is_told_beside_that_of_what_it_needs() -> None:
    alone, ours, awaited = bench("--only", "import")["imports"]
    assert ours["statement"] == "import onceward"
    assert alone["modules"] < ours["modules"] < awaited["modules"]
    assert 0 < ours["least"] <= ours["median"]


def test_the_gaps_of_the_loop_are_told_beside_those_of_an_idle_one() -> None:
    gaps = bench("--only", "loop")["gaps"]
    assert [one["case"] for one in gaps][:2] == ["nothing", "200 claims by ten workers"]
    assert all(0 <= one["least"] <= one["median"] for one in gaps)
    assert all(one["computing"] > 0 for one in gaps), "the ticking itself takes some"
