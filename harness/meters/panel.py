"""The energy meters of one run, read together. Knows no variant and no figure."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Any

from harness.meters.base import EnergyMeter, RawReading, window

# A window must be at least this many of the coarsest counter's steps long.
STEPS = 3
# However coarse a meter gets: a window too short for it says so, one without end says nothing.
MOST_S = 300.0


class Panel:
    """Meters that are read at the same moments.

    Args:
        meters: The meters.
        why: Why others are missing.
        least_s: Shortest window asked for, seconds; None leaves it to the meters.
    """

    def __init__(self, meters: Sequence[EnergyMeter] = (), why: str = "", least_s: float | None = None) -> None:
        """Take the meters over; ``close`` closes them."""
        self._meters = tuple(meters)
        self._why = why
        self._least_s = least_s
        self._lock = threading.Lock()

    @property
    def counted(self) -> bool:
        """Whether something is measured; an estimate is not."""
        return any(meter.domains and not meter.method.startswith("estimate") for meter in self._meters)

    @property
    def seconds(self) -> float:
        """How long a window must be: as asked for or as the meters want, and three of their steps, up to 300 s."""
        steps = min(MOST_S, STEPS * max((meter.resolution_s for meter in self._meters), default=0.0))
        least_s = max((meter.least_s for meter in self._meters), default=0.0)
        return max(least_s if self._least_s is None else self._least_s, steps)

    @contextmanager
    def around(self) -> Iterator[dict[str, Any]]:
        """Read before and after what is done inside; the dict then holds ``energy``, one pair a domain.

        Meters that want to be polled meanwhile are, from a thread of their own.
        """
        seen: dict[str, Any] = {}
        stop = threading.Event()
        polls = [threading.Thread(target=self._poll, args=(meter, stop), daemon=True) for meter in self._meters]
        before = self._read()
        for thread in polls:
            thread.start()
        try:
            try:
                yield seen
            finally:
                after = self._read()
        finally:
            stop.set()
            for thread in polls:
                thread.join()
        seen["energy"] = []
        for meter, start, end in zip(self._meters, before, after, strict=True):
            settled = meter.settled([*start, *end])
            seen["energy"] += window(settled[: len(start)], settled[len(start) :])

    def describe(self) -> dict[str, Any]:
        """What is measured, for the conditions of a run; method "none" where nothing is."""
        domains = [
            {"domain": name, "method": meter.method, "resolution_s": meter.resolution_s, "scope": words}
            for meter in self._meters
            for name, words in meter.domains.items()
        ]
        return {
            "method": "+".join(meter.method for meter in self._meters) or "none",
            "scope": [entry["domain"] for entry in domains],
            "domains": domains,
            "window_s": self.seconds if self.counted else None,
            "why": "; ".join(filter(None, [*(meter.why for meter in self._meters), self._why])),
        }

    def close(self) -> None:
        """Close every meter."""
        for meter in self._meters:
            meter.close()

    def _read(self) -> list[list[RawReading]]:
        with self._lock:
            return [meter.read() for meter in self._meters]

    def _poll(self, meter: EnergyMeter, stop: threading.Event) -> None:
        while meter.poll_s is not None and not stop.wait(meter.poll_s):
            with self._lock:
                meter.poll()


def zeus_installed() -> bool:
    """Whether the optional extra is there; importing it takes seconds."""
    return find_spec("zeus") is not None
