"""Waits, for a bounded time, until a machine that was disturbed or hot has calmed down. Measures no trial."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection

from harness.meters.contention import codes, contention
from harness.meters.sampler import Sampler, Snapshot

# A look at what others do takes this long, and a pause to cool down.
LOOK_S, PAUSE_S = 0.25, 2.0
# Longest wait at a time for others to end, and for the processor to cool.
QUIET_S, COOL_S = 8.0, 60.0
# A package this much hotter than before the first trial is still hot.
WARMER_C = 10.0


class Calm:
    """Waiting for one run.

    Args:
        sampler: Of this process, which does nothing meanwhile, so that all load is others'.
        sleep: Waits.
    """

    def __init__(self, sampler: Sampler | None = None, sleep: Callable[[float], None] = time.sleep) -> None:
        """Note the temperature as it is now."""
        self._sampler = sampler or Sampler()
        self._sleep = sleep
        self._start = self._sampler.read()

    def wait(self, found: Collection[str], most_s: float) -> tuple[float, bool]:
        """Wait as the reason codes of the last trial ask for, at most ``most_s``.

        Returns:
            Seconds waited, and whether the machine is calm; it counts as calm where there was no time to look.
        """
        waited, calm = 0.0, True
        if "throttled" in found:
            waited, calm = self._until(self._cool, PAUSE_S, min(COOL_S, most_s))
        if "contended" in found:
            further, quiet = self._until(self._quiet, LOOK_S, min(QUIET_S, most_s - waited))
            waited, calm = waited + further, calm and quiet
        return waited, calm

    def _until(self, calm: Callable[[Snapshot, Snapshot], bool], step_s: float, most_s: float) -> tuple[float, bool]:
        waited = 0.0
        while waited + step_s <= most_s:
            before = self._sampler.read()
            self._sleep(step_s)
            waited += step_s
            if calm(before, self._sampler.read()):
                return waited, True
        return waited, waited == 0.0

    def _quiet(self, before: Snapshot, after: Snapshot) -> bool:
        return "contended" not in codes(contention(before, after, self._sampler.n_cpus, threads=1))

    def _cool(self, before: Snapshot, after: Snapshot) -> bool:
        """No throttle event and near the temperature of the start; where neither can be read, one pause must do."""
        throttled = (after.throttled or 0) > (before.throttled or 0)
        if after.temperature_c is None or self._start.temperature_c is None:
            return not throttled
        return not throttled and after.temperature_c <= self._start.temperature_c + WARMER_C
