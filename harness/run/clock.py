"""The one clock of all measurements. Knows nothing of what is timed."""

from __future__ import annotations

import time


def now_ns() -> int:
    """Monotonic time in integer nanoseconds; only differences mean anything.

    ``time.perf_counter_ns`` is the finest clock Python has that never steps back. Unlike the wall clock it is not set
    by NTP or by hand, and integers keep every nanosecond where a float of the same size would round. On Linux it reads
    CLOCK_MONOTONIC and on macOS mach_absolute_time, both counted from boot, so that stamps taken in a worker and in
    its parent on the same machine can be compared. It stands still while the machine sleeps.

    >>> now_ns() <= now_ns()
    True
    """
    return time.perf_counter_ns()
