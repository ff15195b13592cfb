"""Speed by depth, worked out by hand."""

from __future__ import annotations

import math
from typing import Any

import pytest

from harness.metrics import depth
from harness.stats.interval import t_quantile


def row(read_ms: tuple[int, ...], token_ms: int, codes: tuple[str, ...] = (), n: int = 3) -> dict[str, Any]:
    """Reading takes ``read_ms`` up to each depth, each later token ``token_ms``; the pass is sent at 5 ms."""
    now, times = 5_000_000, []
    for wait in read_ms:
        now += wait * 1_000_000
        times.append([now + i * token_ms * 1_000_000 for i in range(n)])
        now = times[-1][-1]
    depths = [100 * (i + 1) for i in range(len(read_ms))]
    return {"block": 0, "record": {"sent_ns": 5_000_000, "depths": depths, "t_ns": times, "codes": list(codes)}}


def test_what_was_generated_on_the_way_is_in_no_ttft():
    """200 ms to the first depth, 300 ms more to the second; two tokens of 20 ms after each first one."""
    record = row((200, 300), 20)["record"]
    assert record["t_ns"][1][0] == 5_000_000 + (200 + 2 * 20 + 300) * 1_000_000
    assert depth.ttft_s(record) == pytest.approx([0.2, 0.5])
    assert depth.decode_tps(record) == pytest.approx([50.0, 50.0])


def test_means_are_geometric_with_t_intervals_of_logs():
    """Two passes at 50 and 100 tokens/s: sqrt(5000); sd of logs ln(2)/sqrt(2), over sqrt(2): ln(2)/2."""
    first, second = depth.series([row((200, 300), 20), row((200, 500), 10)])
    assert (first["depth"], second["depth"]) == (100, 200)
    assert first["decode_tps"]["value"] == pytest.approx(math.sqrt(5000))
    half = t_quantile(1) * math.log(2) / 2
    assert first["decode_tps"]["low"] == pytest.approx(math.sqrt(5000) * math.exp(-half))
    assert first["decode_tps"]["high"] == pytest.approx(math.sqrt(5000) * math.exp(half))
    assert first["decode_tps"]["n"] == 2 and first["decode_tps"]["reasons"] == []
    assert first["ttft_s"] == {
        "value": pytest.approx(0.2), "low": pytest.approx(0.2), "high": pytest.approx(0.2), "n": 2, "reasons": [],
    }  # fmt: skip
    assert second["ttft_s"]["value"] == pytest.approx(math.sqrt(0.5 * 0.7))


def test_a_disturbed_pass_is_left_out_and_named_only_where_it_must_count():
    clean, slow = row((200,), 20), row((200,), 200, ("contended",))
    (one,) = depth.series([clean, clean, slow])
    assert one["decode_tps"]["value"] == pytest.approx(50) and one["decode_tps"]["n"] == 2
    (most,) = depth.series([clean, slow, slow])
    assert most["decode_tps"]["n"] == 3 and most["decode_tps"]["reasons"] == ["contended"]
    assert most["ttft_s"]["reasons"] == ["contended"]


def test_one_pass_has_no_interval_and_one_token_no_speed():
    (only,) = depth.series([row((200,), 20)])
    assert only["ttft_s"] == {"value": pytest.approx(0.2), "low": None, "high": None, "n": 1, "reasons": []}
    (single,) = depth.series([row((200,), 20, n=1)])
    assert single["decode_tps"] == {"value": None, "low": None, "high": None, "n": 0, "reasons": ["undefined"]}


def test_a_variant_without_passes_says_why():
    rows = [{"left_out": "no_rollback", "block": 0}]
    assert depth.series(rows) == depth.series([]) == []
    assert (depth.left_out(rows), depth.left_out([row((200,), 20)])) == ("no_rollback", None)
