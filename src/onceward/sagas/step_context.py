"""What a step of a saga sees: its input, the results before it, and the keys under which it may be repeated."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Generic, cast

from onceward.engine.attempt import Attempt
from onceward.errors import ResultError, ResultNotStored
from onceward.keys.key import derived_key
from onceward.results.codec import Codec

from .journal import Journal, JournalEntry, Progress

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    R_co = TypeVar("R_co", covariant=True, default=Any)
else:
    from typing import TypeVar

    R_co = TypeVar("R_co", covariant=True)

UNKNOWN = object()
"""The result of a step that has none, or none yet."""


class StepResults(Mapping[str, Any]):
    """The results of the steps that are done, by name: each a fresh copy of what the journal holds."""

    def __init__(self, journal: Journal, codecs: Mapping[str, Codec], key_id: bytes, key: str) -> None:
        self._lines = {line.name: line for line in journal.lines if line.progress in _HAVE_RESULTS}
        self._codecs = codecs
        self._key_id = key_id
        self._key = key

    def __getitem__(self, name: str) -> Any:
        line = self._lines[name]
        if line.result is None:
            raise ResultNotStored(
                f"the result of step {name} was not kept",
                key=self._key,
                hint="return what can be stored: less, or where it is",
            )
        return self._codecs[name].decode(line.result, part_of(self._key_id, name))

    def __iter__(self) -> Iterator[str]:
        return iter(self._lines)

    def __len__(self) -> int:
        return len(self._lines)

    def kept(self) -> tuple[dict[str, Any], dict[str, str]]:
        """Those that were stored; and of those that cannot be read any more, why."""
        found: dict[str, Any] = {}
        unreadable: dict[str, str] = {}
        for name, line in self._lines.items():
            if line.result is not None:
                try:
                    found[name] = self[name]
                except ResultError as error:
                    unreadable[name] = str(error)
        return found, unreadable


_HAVE_RESULTS = (Progress.DONE, Progress.UNDOING, Progress.UNDONE)


class StepContext(Generic[R_co]):
    """One attempt of a step: of its `do`, its `undo`, or verify's `find`. `StepRun[int]`: its `do` returns an int."""

    __slots__ = ("__weakref__", "_attempt", "_journal", "_line", "input", "name", "results")

    def __init__(
        self, attempt: Attempt, journal: Journal, line: JournalEntry, given: Any, results: StepResults
    ) -> None:
        self._attempt = attempt
        self._journal = journal
        self._line = line
        self.name = line.name
        self.input = given
        self.results = results

    @property
    def key(self) -> str:
        """The step's derived key: the same in every attempt to do it, on every machine. Its undo has it, too."""
        return derived_key(self._attempt.key.id, self._journal.cycle, self.name)

    @property
    def undo_key(self) -> str:
        """The derived key of its undo."""
        return derived_key(self._attempt.key.id, self._journal.cycle, f"{self.name}/undo")

    def derived_key(self, step: str) -> str:
        """One for each of several requests of this do, or of this undo: a step has others than every other step."""
        act = "undo" if self._line.progress is Progress.UNDOING else "do"
        of = f"{self.name}/{act}/{step}" if step else ""  # none is refused
        return derived_key(self._attempt.key.id, self._journal.cycle, of)

    @property
    def saga_key(self) -> str:
        """The readable key of the saga."""
        return self._attempt.key.text

    @property
    def result(self) -> R_co:
        """What `do` returned, for `undo`."""
        if self.name not in self.results:
            raise ResultNotStored(f"step {self.name} has no result yet", key=self.saga_key)
        return cast("R_co", self.results[self.name])

    @property
    def token(self) -> int:
        """Fencing number of the saga's claim: a resource that remembers the highest one refuses every late writer."""
        return self._attempt.record.token

    @property
    def attempt(self) -> int:
        """1 for the first attempt of this do, or of this undo; crashed ones count."""
        undo = self._line.progress is Progress.UNDOING
        return self._line.undo_attempts if undo else self._line.attempts

    def check(self) -> None:
        """Raise LeaseLost (or LeaseOverdue) if the work should stop: somebody else has taken the saga over."""
        self._attempt.check()

    def __repr__(self) -> str:
        return f"<StepRun {self.saga_key}: {self.name}, {self._line.progress}, attempt {self.attempt}>"


def part_of(key_id: bytes, name: str) -> bytes:
    """What a step's result is bound to, if it is encrypted: it opens as nothing else, of this record or another."""
    return key_id + b"/step/" + name.encode()
