"""A meter that replays scripted readings, for tests and dry runs. Knows no machine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from harness.meters.base import Clock, RawReading


class FakeMeter:
    """Each ``read`` returns the next scripted value of every domain; the last one is repeated at the end.

    Args:
        script: Counter values by domain; None stands for a reading that failed.
        clock: Monotonic nanoseconds. None gives a clock that adds one second a reading.
        unit: Of the values.
        range: Where the counters wrap, or None.
        method: What the readings say they come from.
        resolution_s, least_s: As in EnergyMeter.
    """

    name = "fake"

    def __init__(
        self,
        script: Mapping[str, Sequence[float | None]],
        clock: Clock | None = None,
        unit: str = "j",
        range: float | None = None,
        method: str = "fake",
        resolution_s: float = 0.001,
        least_s: float = 0.0,
    ) -> None:
        """Start at the first value."""
        self.method = method
        self.domains = dict.fromkeys(script, "scripted")
        self.resolution_s = resolution_s
        self.least_s = least_s
        self.poll_s: float | None = None
        self.why = "scripted"
        self._script = script
        self._clock = clock
        self._unit = unit
        self._range = range
        self._reads = 0
        self._last: dict[str, float] = {}
        self._wraps = dict.fromkeys(script, 0)

    def read(self) -> list[RawReading]:
        """The next scripted values."""
        t_ns = self._clock() if self._clock else self._reads * 1_000_000_000
        readings = [self._reading(domain, t_ns) for domain in self.domains]
        self._reads += 1
        return readings

    def poll(self) -> None:
        """Takes the next scripted values, as a real meter would look at its counters."""
        self.read()

    def settled(self, readings: Sequence[RawReading]) -> list[RawReading]:
        """As they were."""
        return list(readings)

    def close(self) -> None:
        """Nothing was started."""

    def _reading(self, domain: str, t_ns: int) -> RawReading:
        values = self._script[domain]
        value = values[min(self._reads, len(values) - 1)]
        if value is None:
            return RawReading(
                domain, self.method, self._unit, t_ns, None, reason="counter_invalid", why="scripted failure"
            )
        self._wraps[domain] += value < self._last.get(domain, value)
        self._last[domain] = value
        return RawReading(
            domain,
            self.method,
            self._unit,
            t_ns,
            value,
            range=self._range,
            wraps=self._wraps[domain],
            resolution_s=self.resolution_s,
            scope=self.domains[domain],
        )
