"""Look up data (such as users) for many rows: one query for the keys that are not cached, in bounded memory."""

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

OnFailure = Literal["raise", "continue"]


class Lookup(Generic[K, V]):
    """A cache in front of `find`, which looks up many keys at once. Keys that are not found are not cached.

    At most `size` values are cached; the least recently used is evicted first, and none is older than `max_age`,
    measured by `clock` (seconds). With `on_failure="continue"`, a failed lookup is logged and returns nothing: use it
    for optional data.
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
            raise ConfigurationError("size= must be at least 1", hint=f"the default is size={SIZE}")
        self._find = find
        self._size = size
        self._max_age = microseconds(max_age, "max_age") / SECOND
        self._on_failure = on_failure
        self._clock = clock
        self._cache: OrderedDict[K, tuple[float, V]] = OrderedDict()
        self._lock = threading.Lock()
        self._forgotten = 0
        """The number of `forget` calls: the result of a lookup that began before one is not cached."""

        self.asked = 0
        """The number of calls of `find`."""

    def __len__(self) -> int:
        return len(self._cache)

    def get(self, key: K) -> V | None:
        """Return the value of a `key`, from the cache or by one lookup; None if there is none."""
        return self.many((key,)).get(key)

    def many(self, keys: Iterable[K]) -> dict[K, V]:
        """Return the values of these `keys`, with at most one lookup. Keys without a value are missing."""
        wanted = list(dict.fromkeys(keys))
        found = self._find_cached(wanted)
        missing = [key for key in wanted if key not in found]
        if missing:
            found |= self._find_missing(missing)
        return found

    def forget(self, *keys: K) -> None:
        """Remove these `keys` from the cache; without keys, all."""
        with self._lock:
            self._forgotten += 1
            if not keys:
                self._cache.clear()
            for key in keys:
                self._cache.pop(key, None)

    def _find_cached(self, keys: Sequence[K]) -> dict[K, V]:
        found: dict[K, V] = {}
        with self._lock:
            oldest = self._clock() - self._max_age
            for key in keys:
                cached = self._cache.get(key)
                if cached is not None and cached[0] >= oldest:
                    self._cache.move_to_end(key)
                    found[key] = cached[1]
        return found

    def _find_missing(self, keys: Sequence[K]) -> dict[K, V]:
        now = self._clock()
        before = self._forgotten
        self.asked += 1
        try:
            answers = self._find(keys)
        except Exception as error:
            if self._on_failure == "raise":
                raise
            logger.warning("a lookup of %d keys failed; continuing without its values: %r", len(keys), error)
            return {}
        with self._lock:
            if before == self._forgotten:
                for key, value in answers.items():
                    self._cache[key] = (now, value)
                    self._cache.move_to_end(key)
            while len(self._cache) > self._size:
                self._cache.popitem(last=False)
        return dict(answers)
