"""Tells a person how far the sweep is. Draws only when told, so that it takes no CPU while the engine is timed.

On a terminal a bar; elsewhere (a log, CI) a line now and then.
"""

from __future__ import annotations

import time
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, Task, TextColumn, TimeElapsedColumn
from rich.text import Text

# How much the plan's estimate weighs against what was seen, as a share of the whole.
PRIOR = 0.1
# Seconds between lines where there is no terminal.
LINE_EVERY_S = 15.0


def left_s(done_s: float, total_s: float, elapsed_s: float) -> float:
    """Seconds left: what remains by the plan, scaled by how wrong the plan was so far.

    Formula: ``(total - done) (elapsed + prior) / (done + prior)``, prior = a tenth of the total, so that the first
    minute does not swing the estimate.

    Args:
        done_s: Work done, in seconds as the plan estimated them.
        total_s: All work, in the same seconds.
        elapsed_s: Seconds that the work done really took.

    >>> left_s(0.0, 100.0, 0.0)
    100.0
    >>> left_s(40.0, 100.0, 90.0)
    120.0
    """
    prior = PRIOR * total_s
    return (total_s - done_s) * (elapsed_s + prior) / (done_s + prior)


def left_text(seconds: float) -> str:
    """Such as "~4 min left".

    >>> left_text(240.0), left_text(40.0)
    ('~4 min left', '~40 s left')
    """
    return f"~{seconds / 60:.0f} min left" if seconds >= 90 else f"~{seconds:.0f} s left"


class _Left(ProgressColumn):
    """Time left."""

    def render(self, task: Task) -> Text:
        """Time left as text."""
        if task.finished or not task.total:
            return Text("")
        return Text(left_text(left_s(task.completed, task.total, task.elapsed or 0.0)))


class Meter:
    """A bar over estimated seconds of work."""

    def __init__(self, total_s: float, console: Console) -> None:
        """Start at nothing done of ``total_s`` estimated seconds."""
        self._progress = Progress(
            TextColumn("{task.percentage:>3.0f}%"),
            BarColumn(bar_width=24),
            TimeElapsedColumn(),
            _Left(),
            TextColumn("{task.description}"),
            console=console,
            auto_refresh=False,
            disable=not console.is_terminal,
        )
        self._total = max(total_s, 1e-6)
        self._task = self._progress.add_task("starting", total=self._total)
        self._console = console
        self._done = 0.0
        self._start = self._last_line = time.monotonic()

    def __enter__(self) -> Self:
        """Start drawing."""
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop drawing."""
        self._progress.refresh()
        self._progress.stop()

    def start(self) -> None:
        """Preparing is over: from here on time counts against the estimate."""
        self._progress.reset(self._task, total=self._total)
        self._progress.update(self._task, completed=self._done)
        self._start = time.monotonic()

    def now(self, what: str) -> None:
        """Say what is being done."""
        self._progress.update(self._task, description=what)
        self._progress.refresh()
        now = time.monotonic()
        if not self._console.is_terminal and now - self._last_line >= LINE_EVERY_S:
            self._last_line = now
            left = left_text(left_s(self._done, self._total, now - self._start))
            self.say(f"{100 * self._done / self._total:3.0f}%  {left}  {what}")

    def more(self, seconds: float) -> None:
        """Expect further work, in estimated seconds."""
        self._total += seconds
        self._progress.update(self._task, total=self._total)

    def advance(self, seconds: float) -> None:
        """Count work as done, in estimated seconds."""
        self._done = min(self._total, self._done + max(0.0, seconds))
        self._progress.update(self._task, completed=self._done)
        self._progress.refresh()

    def done(self) -> None:
        """All is done."""
        self._progress.update(self._task, completed=self._total, description="done")
        self._progress.refresh()

    def say(self, line: str) -> None:
        """A line above the bar."""
        self._console.print(line, highlight=False, markup=False, soft_wrap=True)
