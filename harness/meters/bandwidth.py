"""How fast main memory can be read, measured with numpy. Knows nothing of models; a GPU's memory is ``cuda``'s.

What is counted: bytes of one array read once a pass, divided by the pass's time. Decoding reads every weight once a
token and writes next to nothing, so the probe reads too: the maximum of int32 values, which numpy does with vector
instructions and without the interpreter lock, sliced over threads.

It can under-estimate: few threads may not fill all memory channels; other load takes a share; passes are timed around
a thread hand-over of some 50 microseconds. It can over-estimate where the array fits a cache: it should be at
least 4x the last level, which ``enough`` tells (virtual machines report the whole host's cache).

There are never fewer than 7 passes: where memory is slow the array is made smaller instead.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from harness.meters.base import Clock
from harness.meters.cpus import effective_cpus
from harness.meters.memory import available_bytes
from harness.run.clock import now_ns

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

MIB = 1 << 20
MOST_BYTES = 4096 * MIB
UNKNOWN_CACHE_BYTES = 32 * MIB
PASSES, LEAST_PASSES = 9, 7
SENTINEL_BYTES = 256 * MIB
# Wanted for all passes, seconds; an array whose passes would take longer is cut down to what fits, the least excepted.
LIMIT_S = 1.5
LEAST_BYTES = 64 * MIB


@dataclass(frozen=True, slots=True)
class Bandwidth:
    """Result of a probe.

    Attributes:
        best, median: Bytes per second over the passes.
        n: Passes.
        array_bytes: Size of the array read.
        cache_bytes: Last-level cache as reported, or None.
        enough: Whether the array is at least 4x that cache; None where the cache is unknown.
        threads: Threads that read; None for a GPU.
        device: "cpu", or the GPU's name.
        counted: What the bytes are.
        rates: Every pass, bytes per second.
    """

    best: float
    median: float
    n: int
    array_bytes: int
    cache_bytes: int | None
    enough: bool | None
    threads: int | None
    device: str = "cpu"
    counted: str = "bytes read once per pass (maximum of int32)"
    rates: tuple[float, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        """Plain JSON."""
        return asdict(self)


def probe_bytes(cache_bytes: int | None, free_bytes: int | None) -> int:
    """Size of the array: 4x the last-level cache, within [64 MiB, 4 GiB] and a quarter of the free memory.

    >>> probe_bytes(300 * MIB, 24 * 1024 * MIB) // MIB, probe_bytes(32 * MIB, 1024 * MIB) // MIB
    (1200, 128)
    """
    wanted = max(4 * (cache_bytes or UNKNOWN_CACHE_BYTES), LEAST_BYTES)
    most = min(MOST_BYTES, MOST_BYTES if free_bytes is None else max(MIB, free_bytes // 4))
    return min(wanted, most)


class Reader:
    """An array in memory that threads read again and again. It holds ``size`` bytes until ``close``.

    Args:
        size: Bytes, rounded down to a multiple of 4.
        threads: Threads that share the reading.
        clock: Monotonic nanoseconds.
    """

    def __init__(self, size: int, threads: int, clock: Clock = now_ns) -> None:
        """Write the array once: pages never written share one page of zeros and would be read from the cache."""
        import numpy as np

        self._clock = clock
        self._array: npt.NDArray[np.int32] = np.empty(max(threads, size // 4), dtype=np.int32)
        self._slices = np.array_split(self._array, threads)
        self._pool = ThreadPoolExecutor(threads)
        list(self._pool.map(_fill, self._slices))

    @property
    def array_bytes(self) -> int:
        """Bytes read by one pass."""
        return int(self._array.nbytes)

    def shrink(self, size: int) -> None:
        """Read only about the first ``size`` bytes from here on, an equal part by each thread."""
        import numpy as np

        part = self._array[: max(len(self._slices), size // 4)]
        self._slices = np.array_split(part, len(self._slices))
        self._array = part

    def once(self) -> float:
        """Read the array once: bytes per second."""
        start = self._clock()
        list(self._pool.map(_largest, self._slices))
        return self.array_bytes / max(1, self._clock() - start) * 1e9

    def passes(self, n: int, limit_s: float, least: int = 1) -> list[float]:
        """Rates of up to ``n`` passes, fewer (but at least ``least``) once ``limit_s`` has gone by."""
        start = self._clock()
        rates: list[float] = []
        while len(rates) < least or (len(rates) < n and (self._clock() - start) / 1e9 < limit_s):
            rates.append(self.once())
        return rates

    def close(self) -> None:
        """Free the array."""
        self._pool.shutdown()
        self._slices = []
        del self._array


def bandwidth(
    threads: int | None = None,
    cache_bytes: int | None = None,
    size: int | None = None,
    make: Callable[[int, int], Reader] = Reader,
) -> Bandwidth:
    """Read bandwidth of main memory: best and median of 9 passes, 7 at least, about 3 s in all.

    Args:
        threads: Threads that read; None for all usable CPUs. A variant's ceiling is that of its own threads.
        cache_bytes: Last-level cache; None where unknown.
        size: Bytes of the array; None chooses by ``probe_bytes``.
        make: Builds the reader.
    """
    threads = threads or effective_cpus()
    reader = make(size or probe_bytes(cache_bytes, available_bytes()), threads)
    try:
        rate = reader.once()  # the first pass fills address-translation caches
        if size is None and reader.array_bytes * LEAST_PASSES > rate * LIMIT_S:
            reader.shrink(max(LEAST_BYTES, int(rate * LIMIT_S / LEAST_PASSES)))
        read_bytes = reader.array_bytes
        rates = reader.passes(PASSES, LIMIT_S, least=LEAST_PASSES)
    finally:
        reader.close()
    return Bandwidth(
        best=max(rates),
        median=statistics.median(rates),
        n=len(rates),
        array_bytes=read_bytes,
        cache_bytes=cache_bytes,
        enough=None if cache_bytes is None else read_bytes >= 4 * cache_bytes,
        threads=threads,
        rates=tuple(rates),
    )


def both(first: Mapping[str, Any], second: Mapping[str, Any]) -> dict[str, Any]:
    """Two probes of the same array as one, from all their passes: best, median and n.

    A neighbour that was busy during the one must not lower every ceiling.

    >>> merged = both({"best": 5.0, "rates": (5.0, 1.0)}, {"best": 9.0, "rates": (9.0, 2.0)})
    >>> merged["best"], merged["median"], merged["n"]
    (9.0, 3.5, 4)
    """
    rates = [*first.get("rates", ()), *second.get("rates", ())]
    if not rates:
        return dict(first)
    return {**first, "best": max(rates), "median": statistics.median(rates), "n": len(rates), "rates": rates}


class Sentinel:
    """A short probe around each round of trials, for comparing with itself only: never a bandwidth to quote.

    Keep it out of the process whose memory is measured. Of 64 MiB one reading differed from the next by 20-29%
    (standard deviation of the logarithm, on a processor with a larger cache), of 256 MiB by 11%.
    """

    def __init__(self, threads: int | None = None, size: int | None = None) -> None:
        """Allocate 256 MiB, less where an eighth of the free memory is less, and write them (some 100 ms)."""
        free = available_bytes()
        most = SENTINEL_BYTES if free is None else min(SENTINEL_BYTES, max(MIB, free // 8))
        self._reader = Reader(size or most, threads or effective_cpus())

    def probe(self) -> float:
        """Median rate of 5 passes, 3 where they take long, bytes per second; some 50 ms."""
        return statistics.median(self._reader.passes(5, 0.2, least=3))

    def close(self) -> None:
        """Free the array."""
        self._reader.close()


def _fill(part: npt.NDArray[np.int32]) -> None:
    part.fill(1)


def _largest(part: npt.NDArray[np.int32]) -> int:
    return int(part.max())
