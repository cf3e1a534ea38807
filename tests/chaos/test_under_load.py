"""Tests pass on a busy machine, too. `make soak` does the same with the whole suite, in random order, twice."""

from __future__ import annotations

import pytest

from tests.soak_load import WITH_LEASES, run_beside_busy_processes


@pytest.mark.finding("N33")
@pytest.mark.timeout(600)
def test_tests_with_short_leases_pass_beside_busy_processes() -> None:
    done = run_beside_busy_processes("-m", "pytest", "-q", "-p", "no:cacheprovider", *WITH_LEASES)
    assert done.returncode == 0, done.stdout[-5000:]
    assert " passed" in done.stdout


@pytest.mark.timeout(600)
def test_a_test_that_fails_beside_busy_processes_is_noticed(tmp_path_factory: pytest.TempPathFactory) -> None:
    file = tmp_path_factory.mktemp("slow") / "test_depends_on_speed.py"
    file.write_text("def test_depends_on_speed():\n    assert False\n")
    assert run_beside_busy_processes("-m", "pytest", "-q", "-p", "no:cacheprovider", str(file)).returncode == 1
