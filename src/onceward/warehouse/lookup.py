"""Looking up users (or anything) for many rows: one question for those that are not known yet, bounded in memory."""

from __future__ import annotations

import logging
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import Final, Generic, Literal, TypeVar

from onceward.errors import ConfigurationError
from onceward.protocol.duration import Duration, microseconds
from onceward.protocol.policy import SECOND

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")

SIZE: Final = 10_000
MAX_AGE: Final = "60s"
logger = logging.getLogger("onceward")

OnFailure = Literal["raise", "go_on"]


class Lookup(Generic[K, V]):
    """`find` answers for many keys at once; what it does not find is asked again the next time.

    At most `size` answers are kept, the least used one goes first, and none is older than `max_age`. With
    `on_failure="go_on"` a failed question is logged and answers nothing: for data that is good to have, not more.
    """

    def __init__(
        self,
        find: Callable[[Sequence[K]], Mapping[K, V]],
        *,
        size: int = SIZE,
        max_age: Duration = MAX_AGE,
        on_failure: OnFailure = "raise",
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        if size < 1:
            raise ConfigurationError("a look-up cache needs room for one answer", hint=f"size={SIZE} is the default")
        self._find = find
        self._size = size
        self._max_age = microseconds(max_age, "max_age") / SECOND
        self._on_failure = on_failure
        self._clock = clock
        self._kept: OrderedDict[K, tuple[float, V]] = OrderedDict()
        self._turn = threading.Lock()
        self._forgotten = 0
        """How often something was forgotten: an answer to an older question is not kept."""

        self.asked = 0
        """How often `find` was called."""

    def __len__(self) -> int:
        return len(self._kept)

    def get(self, key: K) -> V | None:
        return self.many((key,)).get(key)

    def many(self, keys: Iterable[K]) -> dict[K, V]:
        """What is known about them; a key without an answer is missing here."""
        wanted = list(dict.fromkeys(keys))
        found = self._recalled(wanted)
        missing = [key for key in wanted if key not in found]
        if missing:
            found |= self._asked(missing)
        return found

    def forget(self, *keys: K) -> None:
        """These have changed: ask again. Without keys: all."""
        with self._turn:
            self._forgotten += 1
            if not keys:
                self._kept.clear()
            for key in keys:
                self._kept.pop(key, None)

    def _recalled(self, keys: Sequence[K]) -> dict[K, V]:
        found: dict[K, V] = {}
        with self._turn:
            oldest = self._clock() - self._max_age
            for key in keys:
                kept = self._kept.get(key)
                if kept is not None and kept[0] >= oldest:
                    self._kept.move_to_end(key)
                    found[key] = kept[1]
        return found

    def _asked(self, keys: Sequence[K]) -> dict[K, V]:
        now = self._clock()
        before = self._forgotten
        self.asked += 1
        try:
            answers = self._find(keys)
        except Exception as error:
            if self._on_failure == "raise":
                raise
            logger.warning("a look-up of %d keys failed, and the work goes on without: %r", len(keys), error)
            return {}
        with self._turn:
            if before == self._forgotten:
                for key, value in answers.items():
                    self._kept[key] = (now, value)
                    self._kept.move_to_end(key)
            while len(self._kept) > self._size:
                self._kept.popitem(last=False)
        return dict(answers)
