from __future__ import annotations

import pytest

from harness.metrics.roofline import Drafting, Traffic, bytes_per_token, ceiling_tps, mbu, traffic_of
from harness.record import Figure, missing


def test_70b_fp16_at_3_35_terabytes_per_second() -> None:
    assert ceiling_tps(3.35e12, 140e9) == pytest.approx(23.93, abs=0.005)


def test_keys_and_values_lower_the_ceiling() -> None:
    reads = Traffic(269e6, ((23040.0, None),))
    assert reads.at(1000) == 269e6 + 23.04e6
    assert ceiling_tps(20e9, reads.weight_bytes, reads.kv_bytes(1000)) == pytest.approx(20e9 / 292.04e6)


def test_a_window_bounds_what_is_read() -> None:
    reads = Traffic(100.0, ((2.0, None), (3.0, 10)))
    assert [reads.at(depth) for depth in (0, 4, 10, 1000)] == [100, 120, 150, 100 + 2000 + 30]
    assert traffic_of(reads.as_dict()) == reads


def test_bad_input() -> None:
    with pytest.raises(ValueError, match="both > 0"):
        ceiling_tps(0, 1)


def test_speculation_reads_the_target_once_for_several_tokens_and_the_draft_for_each_drafted_one() -> None:
    assert bytes_per_token(200.0, None) == 200.0
    assert bytes_per_token(200.0, Drafting(2.0, 8.0)) == 100.0  # looked up: drafting reads no weights
    assert bytes_per_token(200.0, Drafting(2.5, 4.0, 25.0)) == (200 + 4 * 25) / 2.5
    # Nothing accepted: every draft is a loss.
    assert bytes_per_token(200.0, Drafting(1.0, 4.0, 25.0)) == 300.0


CEILING = Figure(30.0, n=9)


def test_mbu_is_a_share_with_the_speeds_interval() -> None:
    figure = mbu(Figure(12.0, 9.0, 15.0, 10), CEILING)
    assert (figure.value, figure.low, figure.high, figure.n) == (0.4, 0.3, 0.5, 10)


def test_mbu_carries_what_spoils_its_parts() -> None:
    assert mbu(Figure(12.0, reasons=("contended",)), CEILING).reasons == ("contended",)
    assert mbu(Figure(12.0), missing("not_measured")).reasons == ("not_measured",)
    assert mbu(missing("error"), CEILING).value is None
