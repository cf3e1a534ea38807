"""The commands that error messages suggest can be typed as they are, whatever the key looks like."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from onceward import Once, OutcomeParked, PreviouslyFailed, RecordState
from onceward.cli.exit_codes import Exit
from onceward.cli.settings import VARIABLES
from onceward.errors import AlreadyRunning
from onceward.protocol.outcome import Running
from onceward.sagas import Step, StepContext
from tests.cli.calls import as_json, call, line, process, silent_claims

STORE = "sqlite:///onceward.db"
KEYS = pytest.mark.parametrize(
    "key", ["charge:42", "-x", "--force", "two words", "it's $HOME", "zeile\nzwei", "k" * 300]
)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for variable in VARIABLES.values():
        monkeypatch.delenv(variable, raising=False)
    return tmp_path


def type_in(said: str | None, *more: str) -> int:
    """Run the command between backticks, split as a shell splits it, and return its exit code."""
    assert said is not None
    found = re.search(r"`(onceward .*)`", said)
    assert found, said
    words = shlex.split(found[1])
    assert words.pop(0) == "onceward"
    return call(words[0], *more, *words[1:]).exit_code


def state_of(once: Once, key: str) -> RecordState | None:
    entry = once.read(key)
    return None if entry is None else entry.state


@KEYS
def test_a_final_failure_says_how_to_let_it_run_again(key: str) -> None:
    with Once(STORE, final=ValueError) as once:
        with pytest.raises(ValueError, match="invalid literal"):
            once.run(key, int, "no number")
        with pytest.raises(PreviouslyFailed) as refused:
            once.run(key, int, "no number")
        assert type_in(refused.value.hint, "--yes") == Exit.OK
        with pytest.raises(ValueError, match="invalid literal"):
            once.run(key, int, "no number")


@KEYS
def test_a_parked_outcome_says_how_to_say_how_it_ended(key: str) -> None:
    def breaks_off() -> None:
        raise TimeoutError

    with Once(STORE, after_crash="park", not_applied=()) as once:
        with pytest.raises(TimeoutError):
            once.run(key, breaks_off)
        with pytest.raises(OutcomeParked) as refused:
            once.run(key, breaks_off)
        assert state_of(once, key) is RecordState.PARKED
        assert type_in(refused.value.hint, "--yes") == Exit.OK
        assert state_of(once, key) is RecordState.COMPLETED


@KEYS
def test_explain_suggests_the_command_too(key: str) -> None:
    with Once(STORE, after_crash="park", not_applied=()) as once:
        with pytest.raises(OSError, match="cut off"):
            once.run(key, _cut_off)
        assert call("retry", "--", key).exit_code == Exit.REFUSED
        explanation = " ".join(as_json("explain", "--", key)["explanation"])
        assert type_in(explanation, "--yes") == Exit.OK
        assert state_of(once, key) is RecordState.COMPLETED


def _cut_off() -> None:
    raise OSError("cut off")


@KEYS
def test_a_claim_without_a_lease_says_how_to_free_it(key: str) -> None:
    with Once(STORE) as once:
        silent_claims(once, {key: "300s"}, lapse=0)
        entry = once.read(key)
        assert entry is not None
        with pytest.raises(AlreadyRunning) as refused:
            Running[int](key=entry.key, retry_after=None).unwrap()
        assert type_in(refused.value.hint, "--yes") == Exit.OK
        assert state_of(once, key) in (None, RecordState.FREE)


@pytest.mark.parametrize("key", ["invoice:42", "-x", "two words"])
def test_run_says_what_can_be_typed_about_its_key(folder: Path, key: str) -> None:
    words = ("run", f"--key={key}", "--any-command", "--no-wait", "--", "true")
    with Once(STORE) as once:
        with pytest.raises(OSError, match="cut off"), once.claim(key, name="command", after_crash="park"):
            _cut_off()
        code, _, parked = process(folder, *words)
        assert code == Exit.PARKED
        assert type_in(parked.decode(), "--yes", "--window=1s") == Exit.OK
        assert call("forget", "--yes", "--", key).exit_code == Exit.OK
        with pytest.raises(OSError, match="cut off"), once.claim(key, name="command", final=OSError):
            _cut_off()
        code, _, failed = process(folder, *words)
        assert code == Exit.REFUSED
        assert type_in(failed.decode(), "--yes") == Exit.OK
        with once.claim(key, name="command"):
            code, _, running = process(folder, *words)
            assert code == Exit.RUNNING
            assert type_in(running.decode()) == Exit.OK


def test_run_says_so_of_a_command_that_was_killed(folder: Path) -> None:
    words = ("run", "--key=-x", "--after-crash=park", "--", "sh", "-c", "kill -9 $$")
    code, _, said = process(folder, *words)
    assert code == Exit.PARKED
    assert type_in(said.decode(), "--yes") == Exit.OK


@pytest.mark.parametrize("key", ["order:1", "-x"])
def test_a_saga_says_what_can_be_typed(key: str) -> None:
    def reserve(_: StepContext) -> int:
        return 1

    def undo(_: StepContext) -> None: ...

    def wire(_: StepContext) -> None:
        raise TimeoutError

    with Once(STORE, app="shop") as once:
        steps = Step("reserve", reserve, undo=undo), Step("wire", wire, undo=undo, after_crash="park")
        saga = once.saga("order", *steps, Step("ship", reserve, kind="pivot"), key=key)
        assert saga.outcome().kind == "parked"
        refused = call("forget", "--yes", "--", key)
        assert refused.exit_code == Exit.REFUSED
        assert type_in(line(refused), "--yes") == Exit.OK
