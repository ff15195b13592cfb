"""Tells a person how far the sweep is. Draws only when told, so that it takes no CPU while the engine is timed."""

from __future__ import annotations

from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, Task, TextColumn, TimeElapsedColumn
from rich.text import Text

# Below this share done, the estimate is the plan's alone; above, what was seen corrects it.
TRUST_FROM = 0.03


class _Left(ProgressColumn):
    """Time left: the estimate of what remains, scaled by how wrong it was so far."""

    def render(self, task: Task) -> Text:
        """Such as '~ 4 min left'."""
        if task.finished or not task.total:
            return Text("")
        remaining = task.total - task.completed
        share = task.completed / task.total
        pace = (task.elapsed or 0.0) / task.completed if share > TRUST_FROM else 1.0
        left = remaining * pace
        return Text(f"~{left / 60:.0f} min left" if left >= 90 else f"~{left:.0f} s left")


class Meter:
    """A bar over estimated seconds of work."""

    def __init__(self, total_s: float, console: Console) -> None:
        """``total_s``: estimated seconds of everything still to do."""
        self._progress = Progress(
            TextColumn("{task.percentage:>3.0f}%"),
            BarColumn(bar_width=24),
            TimeElapsedColumn(),
            _Left(),
            TextColumn("{task.description}"),
            console=console,
            auto_refresh=False,
            transient=not console.is_terminal,
        )
        self._task = self._progress.add_task("starting", total=max(total_s, 1e-6))
        self._console = console

    def __enter__(self) -> Self:
        """Start drawing."""
        self._progress.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None) -> None:
        """Stop drawing."""
        self._progress.refresh()
        self._progress.stop()

    def now(self, what: str) -> None:
        """Say what is being done."""
        self._progress.update(self._task, description=what)
        self._progress.refresh()

    def advance(self, seconds: float) -> None:
        """Count work as done, in estimated seconds."""
        self._progress.advance(self._task, max(0.0, seconds))
        self._progress.refresh()

    def done(self) -> None:
        """All is done."""
        task = self._progress.tasks[0]
        self._progress.update(self._task, completed=task.total, description="done")
        self._progress.refresh()

    def say(self, line: str) -> None:
        """A line above the bar."""
        self._console.print(line, highlight=False, markup=False)
