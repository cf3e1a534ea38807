"""The progress of an import, as passed to `on_progress`, and as a progress bar on a terminal."""

from __future__ import annotations

from typing import Final

from msgspec import Struct

BAR_WIDTH: Final = 24  # columns of the bar
UNKNOWN: Final = "-:--"


class Progress(Struct, frozen=True):
    """The progress of the import `name` after a batch. `seconds` and `fresh` (rows) count only this run.

    `rows` is how many rows have been read, and `position` how many bytes of the file's `size`.
    """

    name: str
    rows: int
    position: int
    size: int
    seconds: float
    fresh: int
    begun_at: int = 0
    """The position where this run began, after the rows of earlier runs."""

    @property
    def share(self) -> float:
        """The share of the file that has been read, from 0 to 1."""
        return min(self.position / self.size, 1.0) if self.size else 1.0

    @property
    def rate(self) -> float:
        """Rows per second."""
        return self.fresh / self.seconds if self.seconds > 0 else 0.0

    @property
    def seconds_left(self) -> float | None:
        """The estimated seconds until the end; None if it is not known yet."""
        done = self.position - self.begun_at
        if done <= 0 or self.seconds <= 0:
            return None
        return max(self.size - self.position, 0) * self.seconds / done


def bar(progress: Progress, width: int = BAR_WIDTH) -> str:
    """`users.csv  ████░░░░   43 %   430,000 rows   21,300 rows/s   0:27 left`."""
    full = round(progress.share * width)
    left = progress.seconds_left
    return (
        f"{progress.name}  {'█' * full}{'░' * (width - full)}  {progress.share:>4.0%}"
        f"   {progress.rows:,} rows   {progress.rate:,.0f} rows/s   {UNKNOWN if left is None else clock(left)} left"
    )


def clock(seconds: float) -> str:
    """`0:27`, `12:05`, `3:00:00`."""
    minutes, second = divmod(round(seconds), 60)
    hours, minute = divmod(minutes, 60)
    return f"{hours}:{minute:02}:{second:02}" if hours else f"{minute}:{second:02}"
