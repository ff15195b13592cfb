"""The bandwidth probe, on a small array and a made-up clock."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from harness.meters.bandwidth import MIB, Reader, Sentinel, bandwidth, probe_bytes

GIB = 1024 * MIB


def clock_of(*stamps_ns: int) -> Iterator[int]:
    return iter(stamps_ns)


@pytest.mark.parametrize(
    ("cache", "free", "size"),
    [
        (300 * MIB, 24 * GIB, 1200 * MIB),  # 4 x cache, however large
        (2 * GIB, 64 * GIB, 4 * GIB),  # capped
        (32 * MIB, 24 * GIB, 128 * MIB),  # 4 x cache
        (1 * MIB, 24 * GIB, 64 * MIB),  # at least
        (None, None, 128 * MIB),
        (300 * MIB, 1 * GIB, 256 * MIB),  # a quarter of what is free
    ],
)
def test_probe_bytes(cache: int | None, free: int | None, size: int) -> None:
    assert probe_bytes(cache, free) == size


def test_rate_counts_bytes_read_once() -> None:
    stamps = clock_of(0, 500_000_000)
    reader = Reader(1_000_000, threads=3, clock=lambda: next(stamps))
    assert reader.array_bytes == 1_000_000
    assert reader.once() == 2_000_000.0  # a megabyte in half a second
    reader.close()


def test_passes_stop_at_the_limit_but_not_before_the_least() -> None:
    ticks = iter(range(0, 10**12, 10**9))  # every look at the clock is one second later
    reader = Reader(4000, threads=1, clock=lambda: next(ticks))
    assert len(reader.passes(9, limit_s=0.5, least=3)) == 3
    assert len(reader.passes(2, limit_s=1e9)) == 2
    reader.close()


def test_pages_are_written_before_they_are_read() -> None:
    reader = Reader(40_000, threads=2)
    assert int(reader._array.min()) == int(reader._array.max()) == 1
    reader.close()


def test_bandwidth_says_what_it_used() -> None:
    seen = bandwidth(threads=2, cache_bytes=2 * MIB, size=4 * MIB)
    assert seen.best >= seen.median > 0 and 7 <= seen.n <= 9
    assert (seen.array_bytes, seen.threads, seen.enough) == (4 * MIB, 2, False)
    assert bandwidth(threads=1, cache_bytes=MIB, size=4 * MIB).enough is True
    assert bandwidth(threads=1, size=MIB).enough is None
    json.dumps(seen.as_dict(), allow_nan=False)


class Slow:
    """A reader of 1 GiB whose passes run at 1 GiB/s, so that seven take 7 s."""

    array_bytes = GIB
    closed = False

    def __init__(self, size: int, threads: int) -> None:
        self.sizes = [size]

    def once(self) -> float:
        return float(GIB)

    def passes(self, n: int, limit_s: float, least: int = 1) -> list[float]:
        assert least == 7 and n >= least
        return [1.0, 3.0, 2.0] * 3

    def shrink(self, size: int) -> None:
        self.array_bytes = size

    def close(self) -> None:
        Slow.closed = True


def test_where_memory_is_slow_the_array_is_made_smaller_and_passes_stay_seven() -> None:
    seen = bandwidth(threads=1, cache_bytes=200 * MIB, make=Slow)  # type: ignore[arg-type]
    assert seen.array_bytes == int(GIB * 1.5 / 7)  # what seven passes read in 1.5 s
    assert (seen.enough, seen.best, seen.median, seen.n) == (False, 3.0, 2.0, 9)
    assert Slow.closed


def test_a_shrunken_reader_reads_less_with_as_many_threads() -> None:
    reader = Reader(1_000_000, threads=3)
    reader.shrink(400_000)
    assert reader.array_bytes == 400_000 and [part.nbytes for part in reader._slices] == [133_336, 133_332, 133_332]
    assert reader.once() > 0
    reader.close()


def test_sentinel_repeats() -> None:
    sentinel = Sentinel(threads=1, size=MIB)
    assert sentinel.probe() > 0 and sentinel.probe() > 0
    sentinel.close()
