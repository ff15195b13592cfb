"""Joules per token from windows, every number worked by hand."""

from __future__ import annotations

from typing import Any

import pytest

from harness.metrics.energy_windows import KEYS, log_rates, per_correct, window_figures
from harness.record import Figure

T1 = 12.706205


def reading(joules: float | None, seconds: float, reason: str | None = None) -> dict[str, Any]:
    return {
        "domain": "gpu:GPU-1", "method": "nvml", "unit": "mj", "resolution_s": 0.1, "before": 1000,
        "after": None if joules is None else 1000 + round(1000 * joules), "range": None, "window_s": seconds,
        "reason": reason,
    }  # fmt: skip


def window(
    kind: str,
    number: int,
    joules: float | None,
    seconds: float = 10.0,
    *codes: str,
    requests: int = 0,
    prompt: int = 0,
    output: int = 0,
    reason: str | None = None,
) -> dict[str, Any]:
    return {
        "kind": kind, "window": number, "length": 50, "requests": requests, "prompt_tokens": prompt,
        "output_tokens": output, "record": {"codes": list(codes)}, "energy": [reading(joules, seconds, reason)],
    }  # fmt: skip


def generation(number: int, joules: float | None, *codes: str, seconds: float = 10.0, **more: Any) -> dict[str, Any]:
    """10 requests of 50 prompt tokens and 50 tokens out."""
    return window("generation", number, joules, seconds, *codes, requests=10, prompt=500, output=500, **more)


def prefill(number: int, joules: float | None, *codes: str, **more: Any) -> dict[str, Any]:
    """40 prompts of 50 tokens."""
    return window("prefill", number, joules, 10.0, *codes, requests=40, prompt=2000, output=40, **more)


def idle(number: int, joules: float | None, *codes: str, **more: Any) -> dict[str, Any]:
    return window("idle", number, joules, 10.0, *codes, **more)


def test_gross_and_net_of_the_generation_window_only() -> None:
    # Generation 10 s at 250 W, idle 50 W. Loading (20 s at 150 W) is in no window: with it, gross would read 11.
    found = window_figures([idle(0, 500), generation(0, 2500)])
    assert found["energy_j_per_token"].value == pytest.approx(5.0)
    assert found["energy_net_j_per_token"].value == pytest.approx(4.0)
    assert found["energy_net_j_per_token"].conditions["idle_w"] == pytest.approx(50.0)


def test_prefill_and_decode_apart() -> None:
    # Prompts: 400 J / 2000 = 0.2 J a token. Generation: 2500 J - 500 x 0.2 = 2400 J over 500 - 10 decoded tokens.
    found = window_figures([prefill(0, 400), generation(0, 2500)])
    assert found["energy_prefill_j_per_token"].value == pytest.approx(0.2)
    assert found["energy_decode_j_per_token"].value == pytest.approx(2400 / 490)
    assert found["energy_net_j_per_token"].reasons == ("not_measured",)


def test_each_turn_is_compared_with_its_own_idle_and_prefill() -> None:
    # Turn 1 is hotter: idle 60 W instead of 50, prompts 0.4 instead of 0.2 J, and 100 + 100 J more in the generation.
    rows = [idle(0, 500), prefill(0, 400), generation(0, 2500), idle(1, 600), prefill(1, 800), generation(1, 2600)]
    found = window_figures(rows)
    net = found["energy_net_j_per_token"]
    assert (net.value, net.low, net.high) == pytest.approx((4.0, 4.0, 4.0))
    decode = found["energy_decode_j_per_token"]
    assert (decode.value, decode.low, decode.high) == pytest.approx((2400 / 490,) * 3)


def test_intervals_over_windows() -> None:
    found = window_figures([generation(0, 2400), generation(1, 2600)])["energy_j_per_token"]
    # R = 5; SE = sqrt(2/1 x (100² + 100²)) / 1000 = 0.2
    assert (found.value, found.n, found.reasons) == (pytest.approx(5.0), 2, ())
    assert found.high == pytest.approx(5.0 + 0.2 * T1, abs=1e-4) and found.low == pytest.approx(
        5.0 - 0.2 * T1, abs=1e-4
    )
    assert found.conditions == {
        "scope": ["gpu:GPU-1"], "method": ["nvml"], "resolution_s": 0.1, "window_s": 10.0, "prompt_tokens": 50,
        "output_tokens": 50,
    }  # fmt: skip
    wide = window_figures([generation(0, 100), generation(1, 4900)])["energy_j_per_token"]
    assert wide.low == 0.0  # no less than nothing


def test_one_window_has_no_interval() -> None:
    found = window_figures([generation(0, 2500)])["energy_j_per_token"]
    assert (found.low, found.high, found.reasons) == (None, None, ("small_n",)) and found.ranks


def test_a_disturbed_window_is_left_out_and_mostly_disturbed_ones_are_coded() -> None:
    rows = [generation(0, 2500), generation(1, 9000, "contended"), generation(2, 2500)]
    found = window_figures(rows)["energy_j_per_token"]
    assert (found.value, found.n, found.reasons) == (pytest.approx(5.0), 2, ())
    rows[2] = generation(2, 2500, "contended")
    found = window_figures(rows)["energy_j_per_token"]
    assert (found.n, found.reasons) == (3, ("contended",)) and not found.ranks


def test_a_baseline_of_a_busy_time_codes_the_net_figure_alone() -> None:
    found = window_figures([idle(0, 900, "contended"), generation(0, 2500), generation(1, 2500)])
    assert found["energy_j_per_token"].reasons == ()
    assert found["energy_net_j_per_token"].reasons == ("contended",)


@pytest.mark.parametrize(
    ("broken", "reason"),
    [
        (generation(0, None, reason="counter_invalid"), "counter_invalid"),  # vanished
        (generation(0, -5), "counter_invalid"),  # reset
        (generation(0, 0), "below_resolution"),
        (generation(0, 5, seconds=0.03), "below_resolution"),
    ],
)
def test_what_a_counter_does_not_tell_is_none_and_never_0(broken: dict[str, Any], reason: str) -> None:
    found = window_figures([broken])
    assert all(found[key].value is None for key in KEYS)
    assert found["energy_j_per_token"].reasons == (reason,)
    whole = window_figures([broken, generation(1, 2500)])["energy_j_per_token"]
    assert (whole.value, whole.n) == (pytest.approx(5.0), 1)  # the other window still tells


def test_a_difference_at_or_below_0_is_noise() -> None:
    found = window_figures([idle(0, 3000), prefill(0, 16_000), generation(0, 2500)])
    assert found["energy_net_j_per_token"].reasons == found["energy_decode_j_per_token"].reasons == ("undefined",)


def test_a_doubted_counter_is_said() -> None:
    row = generation(0, 3270)
    row["energy"][0]["power_j"] = 1870.0
    said = window_figures([row])["energy_j_per_token"].conditions["disagreement"]
    assert said == "gpu:GPU-1: its counter says 327 W, the device reports 187 W"


def test_logs_for_resampling_take_the_windows_that_count() -> None:
    assert log_rates([generation(0, 500), generation(1, None, reason="counter_invalid"), idle(2, 5)]) == {0: 0.0}


def doc(right: bool) -> dict[str, Any]:
    return {"correct": right}


def stretch(joules: float | None, items: int, *codes: str, reason: str | None = None) -> dict[str, Any]:
    return {"energy": [reading(joules, 60.0, reason)], "items": items, "codes": list(codes)}


DOCS = [doc(True)] * 40 + [doc(False)] * 60
ACC = Figure(0.4, 0.32, 0.5, 100)


def test_joules_per_correct_answer_with_the_interval_of_the_accuracy() -> None:
    found = per_correct([stretch(500, 70), stretch(300, 30)], DOCS, ACC)
    # 800 J / 40; at 50 right 16 J each, at 32 right 25 J.
    assert (found.value, found.low, found.high, found.n) == pytest.approx((20.0, 16.0, 25.0, 100))
    assert found.reasons == () and found.conditions["window_s"] == 120.0


def test_answers_given_while_nobody_read_the_meter_void_it() -> None:
    assert per_correct([stretch(500, 70)], DOCS, ACC).reasons == ("unmetered",)
    assert per_correct([], DOCS, ACC).reasons == ("unmetered",)
    lost = per_correct([stretch(500, 70), stretch(None, 30, reason="counter_invalid")], DOCS, ACC)
    assert (lost.value, lost.reasons) == (None, ("counter_invalid",))


def test_nothing_correct_and_nothing_valid_have_no_value() -> None:
    assert per_correct([stretch(5, 1)], [doc(False)], Figure(0.0, 0.0, 0.9, 1)).reasons == ("undefined",)
    assert per_correct([stretch(5, 1)], [doc(False)], Figure(None, reasons=("nonfinite",))).reasons == ("nonfinite",)


def test_a_stretch_that_others_disturbed_and_a_sample_that_is_not_mmlu_are_said() -> None:
    acc = Figure(0.4, 0.32, 0.5, 100, ("sample_not_mmlu",))
    assert per_correct([stretch(800, 100, "contended")], DOCS, acc).reasons == ("sample_not_mmlu", "contended")
