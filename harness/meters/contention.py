"""Whether anything but us used the CPU during a trial: pure judgement of two snapshots.

A neighbour on one of two cores can slow decoding twentyfold, since engine threads wait for each other at every layer.
It doesn't see contention for memory bandwidth, nor what runs on a virtual machine's host without showing as steal time.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from harness.meters.cpus import effective_cpus
from harness.meters.sampler import Sampler, Snapshot

__all__ = ["Sampler", "Snapshot", "codes", "contention", "effective_cpus", "thread_warning"]

# Shares of capacity above which a trial counts as disturbed.
LIMIT = 0.05
# /proc/stat counts in ticks of 10 ms and a running task may be booked one tick too many or too few on each CPU, so
# fewer than this many ticks of others' load prove nothing.
MIN_TICKS = 3
# Falls of frequency and rises of temperature over one trial that count as drift.
FREQUENCY_FALL = 0.10
TEMPERATURE_RISE_C = 15.0


def contention(before: Snapshot, after: Snapshot, n_cpus: int, threads: int) -> dict[str, Any]:
    """What disturbed the window between two snapshots, as plain JSON.

    Shares of capacity are divided by ``n_cpus x wall_s``, shares of time by ``wall_s``:
    ``steal_share`` stolen time and ``other_share`` busy time that is not ours (capacity); ``own_share`` our CPU time
    (capacity); ``psi_some_share`` some task waited for a CPU (time); ``wait_share`` the sum of our threads' waits for
    a CPU (time); ``switched`` our involuntary context switches; ``throttled`` throttle events; ``frequency_ratio``
    after / before; ``temperature_rise_c``. None where this machine does not tell; ``unread`` names those.

    Args:
        before: Snapshot at the start.
        after: Snapshot of the same Sampler at the end.
        n_cpus: CPUs whose time is the capacity: ``Sampler.n_cpus``.
        threads: Threads the engine was told to use.
    """
    wall_s = (after.t_ns - before.t_ns) / 1e9
    capacity_s = n_cpus * wall_s
    busy_s, own_s = _delta(before.busy_s, after.busy_s), _delta(before.own_s, after.own_s)
    other_s = None if busy_s is None or own_s is None else max(0.0, busy_s - own_s)
    psi_us = _delta(before.psi_some_us, after.psi_some_us)
    shares: dict[str, float | None] = {
        "steal_share": _over(_delta(before.steal_s, after.steal_s), capacity_s),
        "other_share": _over(other_s, capacity_s),
        "psi_some_share": _over(None if psi_us is None else psi_us / 1e6, wall_s),
        "own_share": _over(own_s, capacity_s),
        "wait_share": _over(_waited(before, after), wall_s),
        "switched": _delta(before.switched, after.switched),
        "throttled": _delta(before.throttled, after.throttled),
        "frequency_ratio": _over(after.frequency_khz, before.frequency_khz or 0.0),
        "temperature_rise_c": _delta(before.temperature_c, after.temperature_c),
    }
    unread = [name for name, value in shares.items() if value is None]
    return {"wall_s": wall_s, "n_cpus": n_cpus, "threads": threads, **shares, "unread": unread}


def codes(seen: Mapping[str, Any], tick_s: float = 0.01) -> tuple[str, ...]:
    """Reason codes of a window: ``contended``, ``throttled``, both or none.

    Contended: steal or others' time above 5% of capacity and at least 3 ticks; or, where our threads do not outnumber
    the CPUs (else they wait for each other), more than 5% of the time with a task or one of our threads waiting.
    Throttled: a throttle event, a frequency more than 10% lower or a package more than 15 degrees hotter afterwards.

    >>> codes({"wall_s": 10.0, "n_cpus": 2, "threads": 2, "other_share": 0.06})
    ('contended',)
    >>> codes({"wall_s": 0.1, "n_cpus": 2, "threads": 2, "other_share": 0.10})  # two ticks
    ()
    """
    capacity_s = seen["wall_s"] * seen["n_cpus"]
    by_ticks = any(
        share > LIMIT and share * capacity_s >= MIN_TICKS * tick_s - 1e-9
        for share in (_known(seen, "steal_share"), _known(seen, "other_share"))
    )
    by_waits = seen["threads"] <= seen["n_cpus"] and any(
        _known(seen, key) > LIMIT for key in ("psi_some_share", "wait_share")
    )
    hot = (
        _known(seen, "throttled") > 0
        or _known(seen, "frequency_ratio", 1.0) < 1 - FREQUENCY_FALL
        or _known(seen, "temperature_rise_c") > TEMPERATURE_RISE_C
    )
    return ("contended",) * (by_ticks or by_waits) + ("throttled",) * hot


def thread_warning(threads: int, cpus: int | None = None) -> str | None:
    """A line for a person where more threads are asked for than CPUs may be used, else None.

    >>> thread_warning(64, cpus=4)
    '64 threads on 4 usable CPUs: threads will wait for each other and timings will not mean much; use at most 4'
    """
    usable = effective_cpus() if cpus is None else cpus
    if threads <= usable:
        return None
    return (
        f"{threads} threads on {usable} usable CPUs: threads will wait for each other and timings will not mean much; "
        f"use at most {usable}"
    )


def _known(seen: Mapping[str, Any], key: str, otherwise: float = 0.0) -> float:
    """A share to judge by; one that could not be read can't accuse."""
    value = seen.get(key)
    return otherwise if value is None else float(value)


def _delta(before: float | None, after: float | None) -> float | None:
    return None if before is None or after is None else after - before


def _over(value: float | None, whole: float) -> float | None:
    return None if value is None or whole <= 0 else value / whole


def _waited(before: Snapshot, after: Snapshot) -> float | None:
    """Seconds that threads alive at the end waited; one that ended within the window is not seen."""
    if before.wait_s is None or after.wait_s is None:
        return None
    return sum(wait - before.wait_s.get(thread, 0.0) for thread, wait in after.wait_s.items())
