from __future__ import annotations

from typing import Any

import pytest

from harness.decide.view import Span, delta_key, difference, ranks, shown, span, speculation_faults, why_not
from harness.record import CODES


def variant(name: str, weights: str = "f16", **metrics: tuple[Any, ...]) -> dict[str, Any]:
    made = {k: {"value": v[0], "low": v[1], "high": v[2], "n": 5, "reasons": list(v[3:])} for k, v in metrics.items()}
    return {
        "name": name,
        "reference": name == "f16",
        "metrics": made,
        "settings": {"weights": weights, "kv": "f16"},
    }


REF = variant("f16", decode_tps=(100.0, 90.0, 110.0), mmlu_acc=(0.40, 0.35, 0.45), ttft_s=(0.5, 0.4, 0.6))


def test_only_sound_figures_rank() -> None:
    assert ranks({"value": 0.0, "reasons": ["small_n"]})
    assert not ranks({"value": 1.0, "reasons": ["small_n", "estimated_energy"]})
    assert not ranks({"value": None, "reasons": []})
    assert not ranks({"value": float("nan"), "reasons": []})


def test_why_not_speaks() -> None:
    assert why_not({"value": 1.0, "reasons": ["contended"]}) == CODES["contended"]
    assert why_not({"value": None, "reasons": []}) == "the suite that gives this figure was not run"


def test_a_variant_differs_from_itself_by_exactly_nothing() -> None:
    assert difference(REF, REF, "mmlu_acc") == Span(0.0, 0.0, 0.0)
    shared = variant("f16+draft", mmlu_acc=(0.4, 0.35, 0.45, "shared_scoring"))
    assert difference(shared, REF, "mmlu_acc") == Span(0.0, 0.0, 0.0)


def test_paired_difference_where_there_is_one() -> None:
    other = variant("q8", "q8_0", mmlu_acc=(0.39, 0.34, 0.44), mmlu_delta=(-0.01, -0.02, 0.0))
    assert difference(other, REF, "mmlu_acc") == Span(-0.01, -0.02, 0.0)


def test_ends_against_each_other_where_there_is_none() -> None:
    other = variant("q8", "q8_0", mmlu_acc=(0.39, 0.34, 0.44), ttft_s=(0.3, 0.2, 0.4))
    d = difference(other, REF, "mmlu_acc")
    assert (d.value, d.low, d.high) == (pytest.approx(-0.01), pytest.approx(-0.11), pytest.approx(0.09))
    r = difference(other, REF, "ttft_s", relative=True)
    assert (r.value, r.low) == (pytest.approx(-0.4), pytest.approx(0.2 / 0.6 - 1))
    assert r.high == pytest.approx(0.4 / 0.4 - 1)


def test_relative_to_something_that_may_be_zero_has_no_upper_end() -> None:
    base = variant("f16", ttft_s=(0.5, 0.0, 1.0))
    assert difference(variant("q8", "q8_0", ttft_s=(0.3, 0.2, 0.4)), base, "ttft_s", relative=True).high is None


def test_paired_speedup() -> None:
    other = variant("q8", "q8_0", decode_tps=(150.0, 120.0, 180.0), speedup=(1.5, 1.4, 1.6))
    d = difference(other, REF, "decode_tps", relative=True)
    assert (d.value, d.low, d.high) == (0.5, pytest.approx(0.4), pytest.approx(0.6))


def test_missing_reference() -> None:
    assert difference(REF, None, "mmlu_acc").why == "there is no reference"


def test_memory_is_exact_other_figures_need_an_interval() -> None:
    v = variant("q8", "q8_0", peak_rss_bytes=(2e9, None, None), ttft_s=(0.1, None, None))
    assert span(v, REF, "peak_rss_bytes") == Span(2e9, 2e9, 2e9)
    assert span(v, REF, "ttft_s") == Span(0.1, None, None, "has no interval")


def test_identities() -> None:
    assert span(REF, REF, "top1_agreement") == Span(1.0, 1.0, 1.0)
    assert span(REF, REF, "kl_mean").value == 0.0
    assert span(variant("q8", "q8_0"), REF, "top1_agreement").value is None


def test_names() -> None:
    assert delta_key("mmlu_acc") == "mmlu_delta" and delta_key("ledger_acc") is None and delta_key("ttft_s") is None
    assert shown(REF, "decode_tps") == "100 ± 10 decode tokens/s"
    assert shown(REF, "ttft_s") == "TTFT 500 ± 100 ms"


def test_variants_whose_speculation_changed_the_text_are_named() -> None:
    sound = variant("q8_0+draft", audit_identical=(1.0, 0.5, 1.0))
    faulty = variant("f16+draft", audit_identical=(0.5, 0.1, 0.9, "lossy_speculation"))
    assert speculation_faults([REF, sound]) == ""
    assert speculation_faults([REF, faulty, sound]) == (
        "f16+draft: speculation changed the text by more than rounding can; do not deploy."
    )
