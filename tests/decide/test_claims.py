"""Verdicts on results built by hand."""

from __future__ import annotations

from typing import Any

import pytest

from harness.decide.claim_rules import model_billions
from harness.decide.claims import CLAIMS, evaluate
from harness.decide.evidence import Measured, combine, judge, log_slope
from harness.decide.view import Span
from harness.metrics.catalog import METRICS
from harness.record import CODES

Ends = tuple[float | None, float | None, float | None]


def variant(
    name: str, speculate: str = "none", **metrics: Ends | tuple[float | None, float | None, float | None, str]
) -> dict[str, Any]:
    made = {
        k: {
            "value": v[0],
            "low": v[1],
            "high": v[2],
            "n": 10,
            "unit": METRICS[k].unit,
            "better": METRICS[k].better,
            "reasons": list(v[3:]),
        }
        for k, v in metrics.items()
    }
    return {
        "name": name,
        "reference": name == "f16",
        "id": name,
        "status": "ok",
        "failures": [],
        "metrics": made,
        "settings": {"weights": name.partition("+")[0], "kv": "f16", "speculate": speculate},
    }


def verdict(
    key: str, *variants: dict[str, Any], series: dict[str, Any] | None = None, model: str = "SmolLM2-135M"
) -> tuple[str, str]:
    results = {"variants": list(variants), "suites": {}, "conditions": {"model": {"name": model}}}
    row = next(r for r in evaluate(results, series) if r["key"] == key)
    return row["verdict"], row["why"]


F16 = variant(
    "f16",
    decode_tps=(94, 92, 96),
    jitter_pct=(5, 4, 6),
    code_parse_rate=(0.5, 0.4, 0.6),
    mmlu_acc=(0.6, 0.55, 0.65),
    energy_j_per_token=(0.8, 0.79, 0.81),
    inconsistency=(0.2, 0.18, 0.22),
    coherence_1_10=(5, 4.9, 5.1),
    mbu=(0.9, 0.88, 0.92),
)


class TestJudge:
    def test_whole_interval_inside_outside_or_across(self) -> None:
        assert judge(Span(2.5, 2.0, 3.0), 2.0, 3.0) == "holds"
        assert judge(Span(3.5, 3.1, 4.0), 2.0, 3.0) == "does not hold"
        assert judge(Span(2.5, 1.9, 3.0), 2.0, 3.0) == "cannot tell"
        assert judge(Span(2.5), 2.0, 3.0) == "cannot tell"
        assert judge(Span(None), 2.0, 3.0) == "cannot tell"

    def test_one_counterexample_is_enough(self) -> None:
        rows = [Measured("a", Span(1, 1, 1), "x", "holds"), Measured("b", Span(2, 2, 2), "x", "does not hold")]
        assert combine(rows, "").verdict == "does not hold"
        assert combine(rows, "").why == "holds for a 1.00x; not for b 2.00x"
        assert combine([rows[0], Measured("c", Span(3, 3, 3), "x")], "").verdict == "cannot tell"
        assert combine([rows[0], Measured("c", Span(None, why="gone"), "x", "cannot tell")], "").verdict == "holds"
        assert combine([], "nothing here").why == "nothing here"


class TestPrecision:
    def test_int4_speed(self) -> None:
        q4_0, slow = variant("q4_0", speedup=(1.8, 1.7, 1.9)), variant("q4_k_m", speedup=(1.27, 1.2, 1.34))
        assert verdict("int4_speed", F16, q4_0)[0] == "holds"
        assert verdict("int4_speed", F16, q4_0, slow) == (
            "does not hold",
            "holds for q4_0 1.80 ± 0.10x; not for q4_k_m 1.27 ± 0.07x",
        )
        assert verdict("int4_speed", F16, variant("q4_0", speedup=(1.5, 1.4, 1.6)))[0] == "cannot tell"
        assert verdict("int4_speed", F16) == ("cannot tell", "no INT4 variant was measured")

    def test_contended_speed_cannot_tell(self) -> None:
        bad = variant("q4_0", speedup=(1.8, 1.7, 1.9, "contended"), decode_tps=(170, 165, 175, "contended"))
        assert verdict("int4_speed", F16, bad) == ("cannot tell", CODES["contended"])

    def test_int8_between(self) -> None:
        q4 = variant("q4_0", speedup=(1.8, 1.7, 1.9))
        assert verdict("int8_between", F16, q4, variant("q8_0", speedup=(1.35, 1.3, 1.4)))[0] == "holds"
        assert verdict("int8_between", F16, q4, variant("q8_0", speedup=(0.9, 0.85, 0.95)))[0] == "does not hold"
        assert verdict("int8_between", F16, q4, variant("q8_0", speedup=(2.1, 2.0, 2.2)))[0] == "does not hold"
        assert verdict("int8_between", F16, q4, variant("q8_0", speedup=(1.75, 1.65, 1.85)))[0] == "cannot tell"

    def test_other_model_sizes_cannot_tell(self) -> None:
        q4 = variant("q4_0", mmlu_delta=(-0.04, -0.042, -0.038), mmlu_acc=(0.56, 0.5, 0.6))
        found = verdict("int4_mmlu_70b", F16, q4)
        assert found[0] == "cannot tell" and "about a 70B model; this run measured SmolLM2-135M" in found[1]
        assert verdict("int4_mmlu_70b", F16, q4, model="Llama-3-70B")[0] == "holds"  # 6.3% to 7% of 0.6
        assert verdict("int4_mmlu_7b", F16, q4, model="Mistral-7B-v0.3")[0] == "holds"
        small = variant("q4_0", mmlu_delta=(-0.01, -0.02, 0.0), mmlu_acc=(0.59, 0.5, 0.65))
        assert verdict("int4_mmlu_7b", F16, small, model="Mistral-7B-v0.3")[0] == "does not hold"

    def test_inconsistency(self) -> None:
        assert verdict("int4_inconsistency", F16, variant("q4_0", inconsistency=(0.4, 0.38, 0.42)))[0] == "holds"
        assert (
            verdict("int4_inconsistency", F16, variant("q4_0", inconsistency=(0.22, 0.2, 0.24)))[0] == "does not hold"
        )

    def test_model_size(self) -> None:
        results = [
            {"conditions": {"model": {"name": n}}}
            for n in ("SmolLM2-135M-Instruct", "Qwen2.5-0.5B", "Llama-3.1-70B", "toy")
        ]
        assert [model_billions(r) for r in results] == [pytest.approx(0.135), 0.5, 70.0, None]


class TestSpeculation:
    def test_speed_against_the_same_weights(self) -> None:
        lookup = variant("f16+lookup", "lookup", speedup=(2.4, 2.2, 2.6))
        slow = variant("f16+draft", "draft", speedup=(0.6, 0.5, 0.7))
        assert verdict("spec_speed", F16, lookup)[0] == "holds"
        assert verdict("spec_speed", F16, lookup, slow)[0] == "does not hold"
        q8 = variant("q8_0", decode_tps=(100, 99, 101), speedup=(1.06, 1.0, 1.1))
        q8_draft = variant("q8_0+draft", "draft", decode_tps=(250, 240, 260), speedup=(2.66, 2.5, 2.8))
        found = verdict("spec_speed", F16, q8, q8_draft)
        assert found == ("holds", "holds for q8_0+draft 2.50 ± 0.13x")

    def test_code_breaks(self) -> None:
        assert (
            verdict("spec_code", F16, variant("f16+lookup", "lookup", code_parse_rate=(0.2, 0.15, 0.25)))[0] == "holds"
        )
        assert (
            verdict("spec_code", F16, variant("f16+lookup", "lookup", code_parse_rate=(0.5, 0.4, 0.6)))[0]
            == "cannot tell"
        )
        assert (
            verdict("spec_code", F16, variant("f16+lookup", "lookup", code_parse_rate=(0.7, 0.6, 0.8)))[0]
            == "does not hold"
        )

    def test_quality(self) -> None:
        assert (
            verdict("spec_quality", F16, variant("f16+lookup", "lookup", coherence_1_10=(5.1, 5.0, 5.2)))[0] == "holds"
        )
        assert (
            verdict("spec_quality", F16, variant("f16+lookup", "lookup", coherence_1_10=(4, 3.9, 4.1)))[0]
            == "does not hold"
        )

    def test_jitter(self) -> None:
        assert verdict("spec_jitter", F16, variant("f16+lookup", "lookup", jitter_pct=(30, 20, 40)))[0] == "holds"
        assert (
            verdict("spec_jitter", F16, variant("f16+lookup", "lookup", jitter_pct=(3, 2, 3.5)))[0] == "does not hold"
        )

    def test_energy(self) -> None:
        fast = variant("q4_0+draft", "draft", decode_tps=(200, 190, 210), energy_j_per_token=(1.2, 1.1, 1.3))
        assert verdict("fastest_energy", F16, fast)[0] == "holds"
        guessed = variant(
            "q4_0+draft", "draft", decode_tps=(200, 190, 210), energy_j_per_token=(1.2, 1.1, 1.3, "estimated_energy")
        )
        found = verdict("fastest_energy", F16, guessed)
        assert found[0] == "cannot tell" and "never ranks" in found[1]


def curve(power: float, spread: float) -> list[dict[str, Any]]:
    return [
        {"prompt_tokens": p, "value": v, "low": v / spread, "high": v * spread, "n": 10}
        for p in (128, 512, 2048)
        if (v := 0.001 * p**power)
    ]


class TestPromptLength:
    SPEEDS = variant("f16", ttft_s=(0.5, 0.49, 0.51), decode_tps=(94, 92, 96))

    def test_growth_exponent(self) -> None:
        found = log_slope(curve(1.2, 1.05))
        assert found.value == pytest.approx(1.2)
        # c = ±1/(2 ln 4)... SE_i = ln 1.05 at the outer two points
        assert found.high == pytest.approx(1.2 + 0.04879 * 2**0.5 / (2 * 1.386294), abs=1e-4)
        assert log_slope(curve(1.2, 1.05)[:2]).value is None

    def test_ttft(self) -> None:
        for power, spread, expected in ((1.2, 1.05, "holds"), (0.8, 1.05, "does not hold"), (1.05, 1.5, "cannot tell")):
            series = {"ttft_by_prompt": {"f16": curve(power, spread)}}
            assert verdict("ttft_superlinear", self.SPEEDS, series=series)[0] == expected
        assert verdict("ttft_superlinear", self.SPEEDS)[0] == "cannot tell"

    def test_decode(self) -> None:
        for ends, expected in (((94, 93, 95), "holds"), ((60, 58, 62), "does not hold"), ((88, 80, 96), "cannot tell")):
            rows = [(128, (95, 94, 96)), (2048, ends)]
            series = {
                "tps_by_prompt": {
                    "f16": [{"prompt_tokens": p, "value": v, "low": a, "high": b, "n": 9} for p, (v, a, b) in rows]
                }
            }
            assert verdict("decode_flat", self.SPEEDS, series=series)[0] == expected

    def test_series_of_a_busy_machine_decide_nothing(self) -> None:
        busy = variant("f16", ttft_s=(0.5, 0.49, 0.51, "contended"))
        assert (
            verdict("ttft_superlinear", busy, series={"ttft_by_prompt": {"f16": curve(1.2, 1.05)}})[0] == "cannot tell"
        )


class TestMachine:
    def test_ceiling(self) -> None:
        assert verdict("ceiling", F16)[0] == "holds"
        assert verdict("ceiling", F16, variant("q4_0", mbu=(1.3, 1.2, 1.4)))[0] == "does not hold"

    def test_feel(self) -> None:
        found = verdict("feel", F16, variant("q4_0", decode_tps=(148, 140, 156)))
        assert found == (
            "cannot tell",
            "feeling is not measured; by these bands: f16 passable, q4_0 fluent or brisk",
        )

    def test_completion_budget(self) -> None:
        assert verdict("completion_200ms", variant("f16", completion_s=(0.15, 0.14, 0.16)))[0] == "holds"
        assert verdict("completion_200ms", variant("f16", completion_s=(0.9, 0.8, 1.0)))[0] == "does not hold"
        assert verdict("completion_200ms", variant("f16", completion_s=(0.19, 0.18, 0.21)))[0] == "cannot tell"

    def test_agent(self) -> None:
        found = verdict("agent_wait", variant("f16", agent5_s=(4.5, 4, 5), agent10_s=(9, 8, 10)))
        assert found == ("cannot tell", "arithmetic; requests in a row, 5 and 10 of them: f16 4.50 s to 9.00 s")
        assert verdict("agent_wait", variant("f16"))[1].endswith("none may decide")

    def test_arithmetic_is_no_measurement(self) -> None:
        assert verdict("ceiling_70b", F16)[0] == "cannot tell"


def test_every_row_is_whole_even_without_data() -> None:
    rows = evaluate({"variants": [], "suites": {}, "conditions": {"model": {"name": "toy"}}})
    assert [r["key"] for r in rows] == [c.key for c in CLAIMS]
    for row in rows:
        assert set(row) == {"key", "claim", "source", "range", "measured", "verdict", "why"}
        assert row["verdict"] == "cannot tell" and row["why"]
