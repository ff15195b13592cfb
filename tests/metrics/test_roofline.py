from __future__ import annotations

import pytest

from harness.metrics.roofline import ceiling_figure, ceiling_tps, kv_bytes_per_token, mbu
from harness.record import Figure, missing


def test_70b_fp16_at_3_35_terabytes_per_second() -> None:
    assert ceiling_tps(3.35e12, 140e9) == pytest.approx(23.93, abs=0.005)


def test_keys_and_values_lower_the_ceiling() -> None:
    per_token = kv_bytes_per_token(layers=30, kv_heads=3, head_dim=64, bytes_per_value=2)
    assert per_token == 23040
    assert ceiling_tps(20e9, 269e6, 1000 * per_token) == pytest.approx(20e9 / 292.04e6)


def test_bad_input() -> None:
    with pytest.raises(ValueError, match="both > 0"):
        ceiling_tps(0, 1)


def test_mbu_is_a_share_with_the_speeds_interval() -> None:
    figure = mbu(Figure(12.0, 9.0, 15.0, 10), ceiling_figure(30e9, 1e9))
    assert (figure.value, figure.low, figure.high, figure.n) == (0.4, 0.3, 0.5, 10)


def test_mbu_carries_what_spoils_its_parts() -> None:
    assert mbu(Figure(12.0, reasons=("contended",)), ceiling_figure(30e9, 1e9)).reasons == ("contended",)
    assert mbu(Figure(12.0), ceiling_figure(None, 1e9)).reasons == ("not_measured",)
    assert mbu(missing("error"), ceiling_figure(30e9, 1e9)).value is None
