"""A neighbour that takes CPU time, in bursts or all the time: a process of its own, ended in any case.

Knows nothing of what is measured beside it. Run as a file it is the process; ``Burner`` starts and ends it.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

# Seconds on and off, drawn evenly between these: a third of the time on, on average.
ON_S, OFF_S = (0.5, 2.5), (1.0, 5.0)


class Burner:
    """Burns CPU between ``start`` and ``stop``; also a context manager.

    Args:
        bursts: In bursts; else all the time.
        seed: Of the bursts.
    """

    def __init__(self, bursts: bool, seed: int = 0) -> None:
        self._mode = f"bursts:{seed}" if bursts else "always"
        self._process: subprocess.Popen[bytes] | None = None
        self._from_ns = 0
        self.spans: list[tuple[int, int]] = []

    def start(self) -> None:
        """Begin."""
        self._from_ns = time.perf_counter_ns()
        command = [sys.executable, str(Path(__file__)), self._mode, str(os.getpid())]
        self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL)

    def stop(self) -> None:
        """End; ``spans`` then has the time it lived, as ``(from, to)`` in nanoseconds of the harness's clock."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None
            self.spans.append((self._from_ns, time.perf_counter_ns()))

    def __enter__(self) -> Self:
        """Begin."""
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End."""
        self.stop()


def share_within(window: tuple[int, int], spans: Sequence[tuple[int, int]]) -> float:
    """Share of a window that lies in any of several spans, which do not overlap.

    >>> share_within((0, 10), [(5, 20)]), share_within((0, 10), []), share_within((0, 8), [(1, 2), (4, 5)])
    (0.5, 0.0, 0.25)
    """
    first, last = window
    inside = sum(max(0, min(last, end) - max(first, start)) for start, end in spans)
    return inside / (last - first) if last > first else 0.0


def burn(mode: str, parent: int) -> None:
    """Keep one CPU busy, in bursts or always, for as long as the parent lives."""
    kind, _, seed = mode.partition(":")
    rng = random.Random(int(seed or 0))
    while os.getppid() == parent:
        until = time.monotonic() + rng.uniform(*ON_S)
        while time.monotonic() < until:
            pass
        if kind == "bursts":
            time.sleep(rng.uniform(*OFF_S))


if __name__ == "__main__":
    burn(sys.argv[1], int(sys.argv[2]))
