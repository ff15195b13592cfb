"""Power over time and the energy under it. Knows no device and no clock."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import deque
from dataclasses import dataclass, field
from statistics import median

# Older samples are forgotten: at 20 a second, those of the last hour and a half are kept.
MOST = 100_000
# An interval this many times the usual one, and no shorter than that many seconds, is a gap in which power is unknown.
GAP, GAP_S = 5.0, 1.0
# Intervals and changes that are looked at, and how many changes must be there to call one typical.
RECENT, ENOUGH = 100, 5


@dataclass(slots=True)
class Trace:
    """Samples of one power, with straight lines between them.

    Attributes:
        t_s, watts: The samples, ascending in time.
        joules: Energy from the first sample to each: ``sum (w_i + w_(i-1)) / 2 x (t_i - t_(i-1))``.
        gaps: Gaps up to each sample.
    """

    t_s: list[float] = field(default_factory=list)
    watts: list[float] = field(default_factory=list)
    joules: list[float] = field(default_factory=list)
    gaps: list[int] = field(default_factory=list)
    _steps: deque[float] = field(default_factory=lambda: deque(maxlen=RECENT))
    _holds: deque[float] = field(default_factory=lambda: deque(maxlen=RECENT))
    _changed_s: float | None = None

    def add(self, t_s: float, watts: float) -> bool:
        """Append a sample; one that is not later than the last, or no power, is refused (False)."""
        if not (math.isfinite(watts) and watts >= 0):
            return False
        if not self.t_s:
            self._append(t_s, watts, 0.0, 0)
            return True
        step = t_s - self.t_s[-1]
        if step <= 0:
            return False
        usual = self.interval_s
        missed = usual is not None and step > max(GAP * usual, GAP_S)
        if watts != self.watts[-1]:
            if self._changed_s is not None:
                self._holds.append(t_s - self._changed_s)
            self._changed_s = t_s
        self._steps.append(step)
        energy = (watts + self.watts[-1]) / 2 * step
        self._append(t_s, watts, self.joules[-1] + energy, self.gaps[-1] + missed)
        return True

    @property
    def interval_s(self) -> float | None:
        """Usual time between samples; None before there are two."""
        return median(self._steps) if self._steps else None

    @property
    def update_s(self) -> float | None:
        """Usual time for which a value stays the same: how often the source is updated, if it is read more often."""
        return median(self._holds) if len(self._holds) >= ENOUGH else None

    def at(self, t_s: float) -> tuple[float, float] | None:
        """Joules since the first sample and gaps seen, at a time between the first and the last; None outside.

        >>> trace = Trace()
        >>> all(trace.add(t, w) for t, w in ((0, 10), (1, 30), (2, 30)))
        True
        >>> trace.at(0.5), trace.at(1.5), trace.at(2.5)
        ((7.5, 0.0), (35.0, 0.0), None)
        """
        if not self.t_s or not self.t_s[0] <= t_s <= self.t_s[-1]:
            return None
        after = bisect_left(self.t_s, t_s)
        if self.t_s[after] == t_s:
            return self.joules[after], self.gaps[after]
        start, share = after - 1, (t_s - self.t_s[after - 1]) / (self.t_s[after] - self.t_s[after - 1])
        watts = self.watts[start] + share * (self.watts[after] - self.watts[start])
        energy = (self.watts[start] + watts) / 2 * (t_s - self.t_s[start])
        # Growing along a gap, so that a window with either end in one is known by it.
        return self.joules[start] + energy, self.gaps[start] + share * (self.gaps[after] - self.gaps[start])

    def _append(self, t_s: float, watts: float, joules: float, gaps: int) -> None:
        for values, value in ((self.t_s, t_s), (self.watts, watts), (self.joules, joules)):
            values.append(value)
        self.gaps.append(gaps)
        if len(self.t_s) > 2 * MOST:
            for old in (self.t_s, self.watts, self.joules, self.gaps):
                del old[:MOST]
