"""What a step of a saga receives: the input, the results of earlier steps, and its derived keys."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Generic, cast

from onceward.engine.attempt import Attempt
from onceward.errors import ResultError, ResultNotStored
from onceward.keys.key import derived_key
from onceward.results.codec import Codec

from .journal import Journal, JournalEntry, StepProgress

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    R_co = TypeVar("R_co", covariant=True, default=Any)
else:
    from typing import TypeVar

    R_co = TypeVar("R_co", covariant=True)


class StepResults(Mapping[str, Any]):
    """The results of the steps that are done, by name. Each access decodes a fresh copy from the journal."""

    def __init__(self, journal: Journal, codecs: Mapping[str, Codec], key_id: bytes, key: str) -> None:
        self._entries = {entry.name: entry for entry in journal.entries if entry.progress in _HAVE_RESULTS}
        self._codecs = codecs
        self._key_id = key_id
        self._cycle = journal.cycle
        self._key = key

    def __getitem__(self, name: str) -> Any:
        entry = self._entries[name]
        if entry.result is None:
            raise ResultNotStored(
                f"the result of step {name} was not stored",
                key=self._key,
                hint="return a value that can be stored: a smaller one, or a reference to it",
            )
        return self._codecs[name].decode(entry.result, associated_data(self._key_id, self._cycle, name))

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    def readable(self) -> tuple[dict[str, Any], dict[str, str]]:
        """Return the stored results, and for each result that can no longer be read, why."""
        readable: dict[str, Any] = {}
        unreadable: dict[str, str] = {}
        for name, entry in self._entries.items():
            if entry.result is not None:
                try:
                    readable[name] = self[name]
                except ResultError as error:
                    unreadable[name] = str(error)
        return readable, unreadable


_HAVE_RESULTS = (StepProgress.DONE, StepProgress.UNDOING, StepProgress.UNDONE)


class StepContext(Generic[R_co]):
    """One call of a step's `do`, `undo` or `find`. `StepContext[int]` is for a step whose `do` returns an int."""

    __slots__ = ("__weakref__", "_attempt", "_entry", "_journal", "input", "name", "results")

    def __init__(
        self, attempt: Attempt, journal: Journal, entry: JournalEntry, saga_input: Any, results: StepResults
    ) -> None:
        self._attempt = attempt
        self._journal = journal
        self._entry = entry
        self.name = entry.name
        self.input = saga_input
        self.results = results

    @property
    def key(self) -> str:
        """The derived key of the step's `do`: the same in every attempt, on every machine, and in `undo`."""
        return derived_key(self._attempt.key.id, self._journal.cycle, self.name)

    @property
    def undo_key(self) -> str:
        """The derived key of the step's `undo`."""
        return derived_key(self._attempt.key.id, self._journal.cycle, f"{self.name}/undo")

    def derived_key(self, step: str) -> str:
        """Return a key for one of several requests of this `do` or `undo`. It is unique to this step of the saga."""
        call = "undo" if self._entry.progress is StepProgress.UNDOING else "do"
        label = f"{self.name}/{call}/{step}" if step else ""  # `derived_key` rejects an empty label
        return derived_key(self._attempt.key.id, self._journal.cycle, label)

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
        """The fencing token of the saga's claim. A resource that stores the highest token can reject late writers."""
        return self._attempt.record.token

    @property
    def attempt(self) -> int:
        """The number of this attempt of `do` or `undo`, from 1. Crashed attempts count."""
        undo = self._entry.progress is StepProgress.UNDOING
        return self._entry.undo_attempts if undo else self._entry.attempts

    def check(self) -> None:
        """Raise LeaseLost (or LeaseOverdue) if the step should stop because another worker has taken over the saga."""
        self._attempt.check()

    def __repr__(self) -> str:
        return f"<StepContext {self.saga_key}: {self.name}, {self._entry.progress}, attempt {self.attempt}>"


def associated_data(key_id: bytes, cycle: int, name: str) -> bytes:
    """Return what an encrypted step result is bound to.

    It cannot be decrypted as the result of another record, of another step, or of an earlier cycle of the same saga.
    """
    return b"%b/cycle/%d/step/%b" % (key_id, cycle, name.encode())
