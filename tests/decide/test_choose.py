"""Choosing, on results built by hand."""

from __future__ import annotations

from typing import Any

import pytest

from harness.decide.choose import choose, decide
from harness.decide.wish import MaxLoss, Require, default_wish, make_wish, parse_max_loss, parse_require
from harness.errors import InputError
from harness.metrics.catalog import METRICS

Ends = tuple[float | None, float | None, float | None]


def fig(
    key: str, value: float | None, low: float | None = None, high: float | None = None, *reasons: str
) -> dict[str, Any]:
    metric = METRICS[key]
    return {
        "value": value,
        "low": low,
        "high": high,
        "n": 10,
        "unit": metric.unit,
        "better": metric.better,
        "reasons": list(reasons),
        "conditions": {},
    }


def variant(
    name: str,
    *,
    weights: str | None = None,
    speculate: str = "none",
    status: str = "ok",
    **metrics: dict[str, Any] | Ends,
) -> dict[str, Any]:
    made = {k: v if isinstance(v, dict) else fig(k, *v) for k, v in metrics.items()}
    return {
        "name": name,
        "reference": name == "f16",
        "id": name,
        "status": status,
        "metrics": made,
        "failures": [{"suite": "engine", "reason": "out of memory"}] if status == "failed" else [],
        "settings": {"weights": weights or name, "kv": "f16", "speculate": speculate},
    }


def run(*variants: dict[str, Any], mmlu: dict[str, Any] | None = None) -> dict[str, Any]:
    return {
        "variants": list(variants),
        "suites": {"mmlu": mmlu} if mmlu else {},
        "conditions": {"model": {"name": "toy"}},
    }


TELLS = {"label": "MMLU", "at_chance": False, "separates": True}


def typical(**suites: Any) -> dict[str, Any]:
    shared, mmlu = "shared_scoring", (0.40, 0.35, 0.45)
    f16 = variant(
        "f16",
        decode_tps=(93.0, 91.0, 95.0),
        top1_agreement=fig("top1_agreement", None, None, None, "is_reference"),
        mmlu_acc=mmlu,
        peak_rss_bytes=(600e6, None, None),
        ttft_s=(0.50, 0.48, 0.52),
    )
    q8_0 = variant(
        "q8_0",
        decode_tps=(128.0, 125.0, 131.0),
        speedup=(1.38, 1.33, 1.43),
        top1_agreement=(0.971, 0.965, 0.977),
        mmlu_acc=mmlu,
        mmlu_delta=(-0.002, -0.008, 0.004),
        peak_rss_bytes=(400e6, None, None),
        ttft_s=(0.40, 0.39, 0.41),
    )
    q4_0 = variant(
        "q4_0",
        decode_tps=(165.0, 160.0, 170.0),
        speedup=(1.77, 1.7, 1.84),
        top1_agreement=(0.86, 0.85, 0.87),
        mmlu_acc=(0.37, 0.32, 0.42),
        mmlu_delta=(-0.03, -0.05, -0.015),
        peak_rss_bytes=(300e6, None, None),
        ttft_s=(0.35, 0.34, 0.36),
    )
    lookup = variant(
        "f16+lookup",
        weights="f16",
        speculate="lookup",
        decode_tps=(80.0, 70.0, 90.0),
        speedup=(0.86, 0.8, 0.93),
        top1_agreement=fig("top1_agreement", 1.0, 1.0, 1.0, shared),
        mmlu_acc=fig("mmlu_acc", *mmlu, shared),
        peak_rss_bytes=(600e6, None, None),
        ttft_s=(0.51, 0.49, 0.53),
    )
    return run(f16, q8_0, q4_0, lookup, variant("q2_k", status="failed"), **suites)


class TestDefaultWish:
    def test_fidelity_decides_where_mmlu_cannot(self) -> None:
        choice = choose(typical())
        assert choice.name == "q8_0"
        assert choice.reason == (
            "Deploy q8_0: 128 ± 3 decode tokens/s, 1.38x the reference (f16), "
            "and its top-1 agreement is within the limit (97.1 ± 0.6% ≥ 95%)."
        )
        assert dict(choice.losers) == {
            "f16": "qualifies, but has 93 ± 2 decode tokens/s against 128 ± 3 decode tokens/s",
            "q4_0": "its top-1 agreement is 86.0 ± 1.0%, against a limit of ≥ 95%",
            "f16+lookup": "qualifies, but has 80 ± 10 decode tokens/s against 128 ± 3 decode tokens/s",
            "q2_k": "failed (engine: out of memory)",
        }

    def test_mmlu_decides_where_it_can(self) -> None:
        choice = choose(typical(mmlu=TELLS))
        assert choice.name == "q8_0" and choice.wish.quality_key == "mmlu_acc"
        assert choice.reason == (
            "Deploy q8_0: 128 ± 3 decode tokens/s, 1.38x the reference (f16), "
            "and it loses at most 0.8 points of MMLU accuracy (limit 1 point)."
        )
        assert dict(choice.losers)["q4_0"] == "it loses 3 points of MMLU accuracy, at least 1.5 points (limit 1 point)"

    @pytest.mark.parametrize(
        ("mmlu", "word"),
        [
            ({**TELLS, "at_chance": True}, "does not beat guessing"),
            ({**TELLS, "separates": False}, "tells no variant"),
            (None, "was not measured"),
        ],
    )
    def test_why_fidelity(self, mmlu: dict[str, Any] | None, word: str) -> None:
        wish = default_wish(typical(mmlu=mmlu))
        assert (wish.quality_key, wish.objective, wish.maximize) == ("top1_agreement", "decode_tps", True)
        assert word in wish.quality_why

    def test_too_few_questions_for_one_point(self) -> None:
        results = typical(mmlu=TELLS)
        for v in results["variants"][1:3]:
            v["metrics"]["mmlu_delta"] = fig("mmlu_delta", 0.0, -0.04, 0.04)
        wish = default_wish(results)
        assert wish.quality_key == "top1_agreement" and "±4.0 at best" in wish.quality_why

    def test_decision_entry(self) -> None:
        entry = decide(typical())
        assert set(entry) == {"wish", "objective", "quality_key", "quality_why", "choice", "reason", "losers", "margin"}
        assert entry["wish"] == "highest decode tokens/s with top-1 agreement ≥ 95%"
        assert entry["choice"] == "q8_0"


class TestThreeWishes:
    def test_lowest_ttft(self) -> None:
        choice = choose(typical(), make_wish(objective="ttft_s", maximize=False))
        assert choice.name == "q4_0"
        assert choice.reason == "Deploy q4_0: TTFT 350 ± 10 ms, 0.7x the reference (f16)."

    def test_smallest_memory(self) -> None:
        choice = choose(typical(), make_wish(objective="peak_rss_bytes", maximize=False))
        assert choice.name == "q4_0" and "peak memory 300 MB" in choice.reason

    def test_constraint_takes_the_bad_end(self) -> None:
        results = typical()
        choice = choose(results, make_wish(["top1_agreement>=97%"]))
        assert choice.name == "f16"
        assert dict(choice.losers)["q8_0"] == "its top-1 agreement of 97.1 ± 0.6% may be 96.5%, so ≥ 97% is not shown"
        assert choice.reason == (
            "Deploy f16, the reference: 93 ± 2 decode tokens/s, the best of those that qualify. "
            "More data could make it q8_0 (128 ± 3 decode tokens/s): its top-1 agreement of 97.1 ± 0.6% may be 96.5%, "
            "so ≥ 97% is not shown; a larger preset narrows the interval."
        )

    def test_a_variant_that_misses_for_certain_is_no_near_miss(self) -> None:
        assert "More data" not in choose(typical(), make_wish(["top1_agreement>=99%"])).reason

    def test_nobody(self) -> None:
        choice = choose(typical(), make_wish(["ttft_s<=100ms"]))
        assert choice.name is None
        assert choice.reason == "No variant qualifies: none is shown to have TTFT ≤ 100 ms."
        assert dict(choice.losers)["q8_0"] == "its TTFT is 400 ± 10 ms, against a limit of ≤ 100 ms"


class TestWhatMayDecide:
    def test_estimated_energy_never(self) -> None:
        results = typical()
        for v in results["variants"]:
            v["metrics"]["energy_j_per_token"] = fig("energy_j_per_token", 0.1, 0.05, 0.15, "estimated_energy")
        choice = choose(results, make_wish(objective="energy_j_per_token", maximize=False))
        assert choice.name is None and "no counter; an estimate, which never ranks" in choice.reason
        limited = choose(results, make_wish(["energy_j_per_token<=1"]))
        assert limited.name is None

    def test_contended_speed_never(self) -> None:
        results = typical()
        results["variants"][1]["metrics"]["decode_tps"]["reasons"] = ["contended"]
        choice = choose(results)
        assert choice.name == "f16"
        assert "other load took the CPU" in dict(choice.losers)["q8_0"]

    def test_informative_codes_do(self) -> None:
        results = typical()
        results["variants"][1]["metrics"]["decode_tps"]["reasons"] = ["small_n"]
        assert choose(results).name == "q8_0"

    def test_speculation_on_the_reference_loses_exactly_nothing(self) -> None:
        results = typical()
        results["variants"][3]["metrics"]["decode_tps"] = fig("decode_tps", 200.0, 190.0, 210.0)
        choice = choose(results, make_wish(max_loss=["mmlu_acc=0"]))
        assert choice.name == "f16+lookup" and "scores the same" in choice.reason

    def test_shared_scoring_of_other_weights_is_not_the_references(self) -> None:
        results = typical()
        spec = results["variants"][3]
        spec["settings"]["weights"] = "q4_0"
        spec["metrics"]["decode_tps"] = fig("decode_tps", 300.0, 290.0, 310.0)
        spec["metrics"]["top1_agreement"] = fig("top1_agreement", 0.86, 0.85, 0.87, "shared_scoring")
        assert choose(results).name == "q8_0"

    def test_a_figure_without_interval_shows_nothing(self) -> None:
        results = typical()
        results["variants"][1]["metrics"]["top1_agreement"] = fig("top1_agreement", 0.99)
        assert "has no interval" in dict(choose(results).losers)["q8_0"]

    def test_too_wide_for_any_other(self) -> None:
        results = typical()
        for v in results["variants"][1:3]:
            v["metrics"]["mmlu_delta"] = fig("mmlu_delta", 0.0, -0.04, 0.04)
        choice = choose(results, make_wish(max_loss=["mmlu_acc=1pt"]))
        assert choice.name == "f16"
        assert choice.reason.endswith(
            "No variant scored apart from the reference could be shown to meet the limit "
            "(MMLU accuracy at most 1 point worse than the reference): "
            "the intervals are too wide, and more items would narrow them."
        )
        assert (
            dict(choice.losers)["q8_0"] == "its MMLU accuracy (no measured loss) may be 4 points worse (limit 1 point)"
        )

    def test_a_suite_at_chance_shows_no_equality(self) -> None:
        results = typical()
        for v in results["variants"][:3]:
            v["metrics"]["mmlu_acc"]["reasons"] = ["at_chance"]
        losers = dict(choose(results, make_wish(max_loss=["mmlu_acc=1pt"])).losers)
        assert "does not beat guessing" in losers["q8_0"]

    def test_unpaired_difference_is_taken_from_both_ends(self) -> None:
        results = typical()
        results["variants"][1]["metrics"]["ttft_s"] = fig("ttft_s", 0.50, 0.48, 0.52)
        near = dict(choose(results, make_wish(max_loss=["ttft_s=30ms"])).losers)
        assert near["q8_0"] == "its TTFT (no measured loss) may be 40 ms worse (limit 30 ms)"
        far = dict(choose(results, make_wish(max_loss=["ttft_s=40ms"])).losers)
        assert far["q8_0"].startswith("qualifies, but has 128 ± 3")

    def test_relative_loss(self) -> None:
        wish = make_wish(max_loss=["decode_tps=5%"], objective="peak_rss_bytes", maximize=False)
        choice = choose(typical(), wish)
        assert choice.name == "q4_0"
        assert "at least 7%" in dict(choice.losers)["f16+lookup"]


class TestEdges:
    def test_exactly_at_the_limit_is_within_it(self) -> None:
        results = run(variant("f16", decode_tps=(50.0, 49.0, 51.0), ttft_s=(0.2, 0.1, 0.1 + 0.2)))
        assert choose(results, make_wish(["ttft_s<=0.3"])).name == "f16"
        assert choose(results, make_wish(["ttft_s<=0.2999"])).name is None
        assert choose(results, make_wish(["ttft_s>=0.1"])).name == "f16"
        assert choose(results, make_wish(["ttft_s>0.1"])).name is None

    def test_loss_at_the_margin_is_unshown_not_missed(self) -> None:
        ref = variant("f16", mmlu_acc=(0.4, 0.3, 0.5))
        other = variant("q4", mmlu_acc=(0.4, 0.3, 0.5), mmlu_delta=(-0.02, -0.03, -0.01))
        assert MaxLoss("mmlu_acc", 0.01).test(other, ref).outcome == "unshown"
        assert MaxLoss("mmlu_acc", 0.03).test(other, ref).outcome == "met"
        assert MaxLoss("mmlu_acc", 0.009).test(other, ref).outcome == "missed"


class TestTies:
    def pair(self, a: float, b: float, memory: tuple[float | None, float | None] = (None, None)) -> dict[str, Any]:
        made = []
        for name, tps, m in (("b", a, memory[0]), ("a", b, memory[1])):
            made.append(variant(name, decode_tps=(tps, tps - 1, tps + 1), peak_rss_bytes=(m, None, None)))
            if m is None:
                del made[-1]["metrics"]["peak_rss_bytes"]
        return run(variant("f16", decode_tps=(50.0, 49.0, 51.0), peak_rss_bytes=(9e8, None, None)), *made)

    def test_least_memory(self) -> None:
        choice = choose(self.pair(100, 98, (3e8, 2e8)), make_wish())
        assert choice.name == "a"
        assert "Tied within 3% with b; chosen for needing the least memory (peak memory 200 MB)." in choice.reason
        assert (
            dict(choice.losers)["b"] == "tied (100.0 ± 1.0 decode tokens/s), but needs more memory (peak memory 300 MB)"
        )

    def test_then_name(self) -> None:
        assert choose(self.pair(100, 98), make_wish()).name == "a"
        choice = choose(self.pair(100, 98, (2e8, 2e8)), make_wish())
        assert choice.name == "a" and "by name, with equal memory" in choice.reason

    def test_beyond_tolerance_is_no_tie(self) -> None:
        choice = choose(self.pair(100, 96.9, (3e8, 2e8)), make_wish())
        assert choice.name == "b" and "Tied" not in choice.reason

    def test_order_of_the_run_does_not_matter(self) -> None:
        results = self.pair(100, 98, (3e8, 2e8))
        turned = {**results, "variants": results["variants"][::-1]}
        assert choose(results, make_wish()).name == choose(turned, make_wish()).name

    def test_uncertain_lead_is_admitted(self) -> None:
        results = run(variant("f16", decode_tps=(90.0, 80.0, 100.0)), variant("q8_0", decode_tps=(95.0, 85.0, 105.0)))
        reason = choose(results, make_wish()).reason
        assert "Its lead over f16 is not certain: the intervals overlap." in reason


class TestParsing:
    @pytest.mark.parametrize(
        ("text", "expected"),
        [
            ("ttft_s<=0.2", Require("ttft_s", "<=", 0.2)),
            (" mmlu_acc >= 40% ", Require("mmlu_acc", ">=", 0.4)),
            ("peak_rss_bytes<2GB", Require("peak_rss_bytes", "<", 2e9)),
            ("top1_agreement>=95%", Require("top1_agreement", ">=", 0.95)),
        ],
    )
    def test_require(self, text: str, expected: Require) -> None:
        assert parse_require(text) == expected

    @pytest.mark.parametrize("text", ["mmlu_acc=1pt", "mmlu_acc=0.01", "mmlu_acc = 1%"])
    def test_max_loss(self, text: str) -> None:
        assert parse_max_loss(text) == MaxLoss("mmlu_acc", 0.01)

    def test_unknown_figure_gets_a_suggestion(self) -> None:
        with pytest.raises(InputError, match=r"--require: unknown figure 'tttf_s'.*Did you mean 'ttft_s'\?"):
            parse_require("tttf_s<=1")
        with pytest.raises(InputError, match="unknown figure 'speed'"):
            make_wish(objective="speed")

    @pytest.mark.parametrize("text", ["ttft_s", "ttft_s=1", "ttft_s<=", "ttft_s=>1", "<=1", "ttft_s<=soon"])
    def test_bad_limits(self, text: str) -> None:
        with pytest.raises(InputError, match="expected"):
            parse_require(text)

    @pytest.mark.parametrize("text", ["mmlu_acc", "mmlu_acc=-1pt", "mbu=1%", "mmlu_acc=lots"])
    def test_bad_margins(self, text: str) -> None:
        with pytest.raises(InputError, match="expected"):
            parse_max_loss(text)


def test_a_lead_that_the_paired_blocks_show_is_certain_though_the_intervals_overlap() -> None:
    f16 = variant("f16", decode_tps=(44.6, 42.9, 46.4), top1_agreement=fig("top1_agreement", 1.0, 1.0, 1.0))
    shared = fig("top1_agreement", 1.0, 1.0, 1.0, "shared_scoring")
    fast = {"decode_tps": (50.2, 45.7, 55.2), "top1_agreement": shared}
    shown = variant("f16+lookup", weights="f16", speculate="lookup", speedup=(1.14, 1.04, 1.25), **fast)
    open_ = variant("f16+lookup", weights="f16", speculate="lookup", speedup=(1.14, 0.99, 1.3), **fast)
    assert "not certain" not in choose(run(f16, shown)).reason
    assert "Its lead over f16 is not certain" in choose(run(f16, open_)).reason
