"""The bandwidth probe, on a small array and a made-up clock."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from harness.meters.bandwidth import MIB, Reader, Sentinel, bandwidth, moved, probe_bytes

GIB = 1024 * MIB


def clock_of(*stamps_ns: int) -> Iterator[int]:
    return iter(stamps_ns)


@pytest.mark.parametrize(
    ("cache", "free", "size"),
    [
        (300 * MIB, 24 * GIB, GIB),  # capped
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
    assert seen.best >= seen.median > 0 and seen.n >= 3
    assert (seen.array_bytes, seen.threads, seen.enough) == (4 * MIB, 2, False)
    assert bandwidth(threads=1, cache_bytes=MIB, size=4 * MIB).enough is True
    assert bandwidth(threads=1, size=MIB).enough is None
    json.dumps(seen.as_dict(), allow_nan=False)


def test_sentinel_repeats() -> None:
    sentinel = Sentinel(threads=1, size=MIB)
    assert sentinel.probe() > 0 and sentinel.probe() > 0
    sentinel.close()


def test_moved_is_symmetric() -> None:
    assert moved(100, 80) == pytest.approx(moved(80, 100)) == pytest.approx(0.22314355)
    assert moved(5, 5) == 0
