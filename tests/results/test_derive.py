"""Assembly of results.json from stored rows: nothing is left out silently, and what is missing says why."""

from __future__ import annotations

import json
from typing import Any

import pytest

from harness import schemas
from harness.metrics.catalog import METRICS
from harness.results import derive
from harness.results.deploy import command
from harness.results.model import PartRows, RunData, VariantRun

SPEC: dict[str, Any] = {
    "backend": "llama_cpp", "model_path": "/m/f16.gguf", "model_digest": "ab", "weights": "f16", "kv": "f16",
    "flash_attention": False, "threads": 2, "batch": 512, "ubatch": 256, "ctx": 2048, "gpu_layers": 0,
    "chat_template": False, "extra": {}, "speculation": "none",
    "speculate": {"kind": "none", "ngram": 3, "tokens": 8, "draft_path": None, "draft_digest": None},
}  # fmt: skip
INFO = {
    "engine": "llama.cpp", "engine_version": "1", "weight_bytes": 200, "draft_weight_bytes": 0, "kv_bytes": 10,
    "kv_bytes_per_token": 1, "active_bytes_per_token": 200,
}  # fmt: skip
SHARES = {"psi_some_share": 0.0, "steal_share": 0.0, "other_share": 0.0, "wall_s": 1.0}


def trial(block: int, gap_s: float, codes: tuple[str, ...] = ()) -> dict[str, Any]:
    """11 tokens: the first at 0.1 s, then one every ``gap_s``."""
    stamps = [int(1e8 + i * gap_s * 1e9) for i in range(11)]
    record = {
        "sent_ns": 0, "events": [[t, 1, 2, "content", 2] for t in stamps], "prompt_tokens": 32, "output_tokens": 11,
        "token_source": "engine", "finish_reason": "length", "asked_tokens": 11, "drafted": None, "accepted": None,
        "verify_steps": None, "codes": list(codes), "attempt": 1,
    }  # fmt: skip
    return {
        "block": block, "position": block, "prompt_tokens": 32, "record": record, "contention": SHARES, "energy": [],
        "attempt": 1,
    }  # fmt: skip


def doc(number: int, correct: bool, finite: bool = True) -> dict[str, Any]:
    return {
        "subject": f"s{number % 5}", "doc_id": number, "gold": 0,
        "logprobs": [-1.0, -2.0, -3.0, -4.0] if finite else [None] * 4,
        "n_tokens": [1] * 4, "is_greedy": [False] * 4, "pred": (0 if correct else 1) if finite else None,
        "correct": correct if finite else None, "finite": finite,
    }  # fmt: skip


def variant(name: str, gap_s: float, right: int, *, shared: bool = False, **parts: Any) -> VariantRun:
    rows: dict[tuple[str, str], PartRows] = {
        ("engine", "load"): PartRows(
            ({"load_s": 1.0, "peak_rss_bytes": 1000, "rss_bytes": 900, "info": INFO, "idle": []},), "done", None, False
        ),
        ("speed", "trials"): PartRows(
            tuple(trial(b, gap_s * (1 + 0.001 * (b % 3))) for b in range(12)), "done", None, False
        ),
        ("mmlu", "docs"): PartRows(tuple(doc(i, i < right) for i in range(100)), "done", None, shared),
    }
    rows |= parts.get("replace", {})
    spec = {**SPEC, "weights": name.partition("+")[0]}
    if "+" in name:
        spec["speculation"] = "lookup"
        spec["speculate"] = {**SPEC["speculate"], "kind": "prompt_lookup"}
    return VariantRun(
        name,
        name == "f16",
        f"id-{name}",
        spec,
        {"name": "m", "file": "f", "digest": "d", "restored": True, "note": "n"},
        rows,
    )


def run(*variants: VariantRun, **facts: Any) -> RunData:
    known = {
        "run_id": "r", "created": "2030-01-01T00:00:00+00:00", "harness_version": "0", "preset": "quick",
        "state": "complete",
        "machine": {"fingerprint": "x", "cpu": "c", "cores": 2, "ram_bytes": 1, "os": "o", "gpus": []},
        "suites": {"mmlu": {"form": "continuation"}, "speed": {"rounds": 12}},
        "mmlu_data": {"label": "MMLU-format sample (not MMLU)", "is_sample": True},
        "energy": {"method": "none", "scope": [], "why": "no"},
        "warnings": [], "bandwidth": {"best": 20000.0, "median": 19000.0, "n": 7},
    }  # fmt: skip
    return RunData({**known, **facts}, variants)


def by_name(results: dict[str, Any]) -> dict[str, Any]:
    return {entry["name"]: entry for entry in results["variants"]}


def test_every_catalogue_figure_is_there_and_a_missing_one_says_why() -> None:
    results, _ = derive(run(variant("f16", 0.02, 60), variant("q8_0", 0.01, 59)))
    schemas.check_results(json.loads(json.dumps(results, allow_nan=False)))
    for entry in results["variants"]:
        assert set(entry["metrics"]) == set(METRICS)
        assert all(figure["value"] is not None or figure["reasons"] for figure in entry["metrics"].values())
    assert by_name(results)["q8_0"]["metrics"]["ledger_acc"]["reasons"] == ["not_measured"]
    assert by_name(results)["q8_0"]["metrics"]["energy_j_per_token"]["value"] is None


def test_speeds_are_those_of_the_events() -> None:
    results, _ = derive(run(variant("f16", 0.02, 60), variant("q8_0", 0.01, 59)))
    f16, q8 = (entry["metrics"] for entry in results["variants"])
    assert f16["decode_tps"]["value"] == pytest.approx(50, rel=0.002)
    assert q8["speedup"]["value"] == pytest.approx(2.0, rel=1e-6)
    assert f16["ttft_s"]["value"] == pytest.approx(0.1)
    # 20,000 bytes/s over 200 bytes of weights and 1 byte for each of 32 + 5.5 tokens
    assert f16["ceiling_tps"]["value"] == pytest.approx(20000 / 237.5)
    assert f16["mbu"]["value"] == pytest.approx(f16["decode_tps"]["value"] / (20000 / 237.5))


def test_a_suite_at_chance_ranks_nobody_and_fidelity_decides() -> None:
    results, _ = derive(run(variant("f16", 0.02, 27), variant("q8_0", 0.01, 20)))
    assert results["suites"]["mmlu"]["at_chance"] is True
    assert all("at_chance" in entry["metrics"]["mmlu_acc"]["reasons"] for entry in results["variants"])
    assert results["decision"]["quality_key"] == "top1_agreement"
    front = next(front for front in results["fronts"] if front["objectives"] == ["mmlu_acc", "decode_tps"])
    assert front["members"] == [] and {entry["name"] for entry in front["left_out"]} == {"f16", "q8_0"}


def test_one_nonfinite_item_fails_the_variant() -> None:
    bad = PartRows((*(doc(i, True) for i in range(99)), doc(99, True, finite=False)), "done", None, False)
    results, _ = derive(run(variant("f16", 0.02, 60), variant("q8_0", 0.01, 0, replace={("mmlu", "docs"): bad})))
    entry = by_name(results)["q8_0"]
    assert entry["status"] == "failed"
    assert entry["metrics"]["mmlu_acc"]["value"] is None
    assert entry["metrics"]["mmlu_acc"]["reasons"] == ["nonfinite"]
    assert results["decision"]["choice"] != "q8_0"


def test_a_failed_cell_is_named_and_the_rest_is_kept() -> None:
    gone = PartRows((), "failed", "the engine's process ended by SIGKILL", False)
    results, _ = derive(run(variant("f16", 0.02, 60), variant("q8_0", 0.01, 59, replace={("speed", "trials"): gone})))
    entry = by_name(results)["q8_0"]
    assert (results["status"], entry["status"]) == ("partial", "partial")
    assert entry["failures"] == [{"suite": "speed", "reason": "the engine's process ended by SIGKILL"}]
    assert entry["metrics"]["decode_tps"]["reasons"] == ["cell_failed"]
    assert entry["metrics"]["mmlu_acc"]["value"] == 0.59


def test_speculation_shares_scores_with_its_weights_and_is_not_compared_with_itself() -> None:
    results, _ = derive(run(variant("f16", 0.02, 60), variant("f16+lookup", 0.015, 60, shared=True)))
    figures = by_name(results)["f16+lookup"]["metrics"]
    assert {"shared_scoring", "is_reference"} <= set(figures["mmlu_delta"]["reasons"])
    assert figures["mmlu_delta"]["value"] == 0.0
    assert figures["ceiling_tps"]["value"] is None


def test_contended_blocks_never_rank() -> None:
    noisy = PartRows(tuple(trial(b, 0.001, ("contended",)) for b in range(12)), "done", None, False)
    results, _ = derive(run(variant("f16", 0.02, 60), variant("q8_0", 0.01, 59, replace={("speed", "trials"): noisy})))
    assert by_name(results)["q8_0"]["metrics"]["decode_tps"]["reasons"] == ["contended"]
    assert "q8_0" not in results["fronts"][0]["members"]
    assert results["conditions"]["quiet"]["contended_trials"] == 12


@pytest.mark.parametrize(
    ("change", "wanted"),
    [
        ({}, "llama-server --model /m/f16.gguf --ctx-size 2048 --parallel 1 --threads 2 --batch-size 512"),
        ({"kv": "q8_0", "flash_attention": True}, "--flash-attn on --cache-type-k q8_0 --cache-type-v q8_0"),
        ({"model_path": "/a b/m.gguf"}, "--model '/a b/m.gguf'"),
        (
            {"speculate": {"kind": "draft_model", "tokens": 4, "draft_path": "/m/d.gguf"}},
            "--spec-type draft-simple --model-draft /m/d.gguf --spec-draft-n-max 4",
        ),
        (
            {"speculate": {"kind": "prompt_lookup", "tokens": 8}},
            "python -m llama_cpp.server --model /m/f16.gguf",
        ),
    ],
)
def test_the_deploy_command_carries_the_settings(change: dict[str, Any], wanted: str) -> None:
    assert wanted in command({**SPEC, **change})


UNREADABLE = {
    "domain": "gpu:GPU-1", "method": "nvml", "unit": "mj", "before": None, "after": None, "range": None,
    "window_s": 1.0, "low_j": None, "high_j": None, "reason": "no_counter",
}  # fmt: skip
GUESSED = UNREADABLE | {
    "domain": "cpu", "method": "estimate:ccf-vcpu", "unit": "j", "before": 0.0, "after": 1.0, "low_j": 0.5,
    "high_j": 2.0, "reason": None,
}  # fmt: skip


@pytest.mark.parametrize(("reading", "reason"), [(UNREADABLE, "no_counter"), (GUESSED, "estimated_energy")])
def test_energy_that_no_counter_measured_is_on_no_front(reading: dict[str, Any], reason: str) -> None:
    rows = PartRows(tuple(trial(b, 0.01) | {"energy": [reading]} for b in range(12)), "done", None, False)
    parts = {("speed", "trials"): rows}
    variants = variant("f16", 0.02, 60, replace=parts), variant("q8_0", 0.01, 59, replace=parts)
    results, _ = derive(run(*variants, energy={"method": "estimate:ccf-vcpu", "scope": ["cpu"], "why": "no"}))
    front = next(front for front in results["fronts"] if front["objectives"][1] == "energy_j_per_token")
    assert front["members"] == []
    assert [(entry["name"], reason in entry["reasons"]) for entry in front["left_out"]] == [
        ("f16", True),
        ("q8_0", True),
    ]
    figure = by_name(results)["q8_0"]["metrics"]["energy_j_per_token"]
    assert figure["value"] == (None if reason == "no_counter" else pytest.approx(1 / 11))


def test_rows_left_by_a_failed_cell_are_shown_and_never_rank() -> None:
    half = PartRows(tuple(doc(i, True) for i in range(50)), "failed", "the engine's process ended", False)
    results, _ = derive(run(variant("f16", 0.02, 60), variant("q8_0", 0.01, 0, replace={("mmlu", "docs"): half})))
    figure = by_name(results)["q8_0"]["metrics"]["mmlu_acc"]
    assert (figure["value"], "cell_failed" in figure["reasons"]) == (1.0, True)
    front = next(front for front in results["fronts"] if front["objectives"] == ["mmlu_acc", "decode_tps"])
    assert "q8_0" not in front["members"]
    assert by_name(results)["q8_0"]["metrics"]["decode_tps"]["reasons"] == []


def test_a_speculative_text_that_leaves_the_references_at_token_57_is_reported_and_not_assumed_equal() -> None:
    def text(tokens: list[int]) -> dict[tuple[str, str], PartRows]:
        row = {"prompt": "p", "tokens": tokens, "margins": [0.1] * 200, "finish_reason": "length"}
        return {("fidelity", "greedy"): PartRows((row,), "done", None, False)}

    theirs = list(range(200))
    results, _ = derive(
        run(
            variant("f16", 0.02, 60, replace=text(theirs)),
            variant("f16+lookup", 0.015, 60, shared=True, replace=text([*theirs[:57], *[-1] * 143])),
        )
    )
    figure = by_name(results)["f16+lookup"]["metrics"]["greedy_agree_tokens"]
    assert (figure["value"], figure["conditions"]["identical"]) == (57.0, 0)
    assert (
        "shared_scoring" not in figure["reasons"]
        and by_name(results)["f16"]["metrics"]["greedy_agree_tokens"]["value"] == 200
    )


def audited(tokens: list[int], margin: float = 2.0) -> dict[tuple[str, str], PartRows]:
    row = {
        "prompt": "p", "tokens": tokens, "plain": [1, 2, 3], "margins": [1.0, margin, 1.0], "floor": [0.0, 0.1, 0.0],
        "batch": 9, "finish_reason": "length", "plain_finish_reason": "length",
    }  # fmt: skip
    kl = {"start": 0, "kl": [0.0] * 128, "top1": [1] * 128, "finite": True}
    return {
        ("fidelity", "audit"): PartRows((row,), "done", None, False),
        ("fidelity", "kl"): PartRows((kl,), "done", None, True),
    }


def test_speculation_that_changes_the_output_fails_the_variant() -> None:
    """The lossy variant is the fastest and scores as the reference does; it is chosen nowhere all the same."""
    bad = variant("f16+lookup", 0.001, 60, shared=True, replace=audited([1, 9, 3]))
    results, drawn = derive(run(variant("f16", 0.02, 60), bad))
    entry = by_name(results)["f16+lookup"]
    why = "speculation changed the output: prompt p, token 1: margin 2, noise floor 0.1"
    assert (entry["status"], entry["failures"]) == ("failed", [{"suite": "fidelity", "reason": why}])
    assert entry["metrics"]["audit_identical"]["reasons"] == ["lossy_speculation"]
    assert entry["metrics"]["decode_tps"]["reasons"] == []
    assert results["decision"]["choice"] == "f16"
    assert why in next(loser["why"] for loser in results["decision"]["losers"] if loser["name"] == "f16+lookup")
    for front in results["fronts"]:
        assert "f16+lookup" not in front["members"] and "f16+lookup" not in front["p_front"]
        assert {"name": "f16+lookup", "reasons": ["lossy_speculation"]} in front["left_out"]
    assert {c["key"]: c["measured"] for c in results["claims"] if c["key"].startswith("spec_")}["spec_speed"] == []
    assert [row["verdict"] for row in drawn["audit"]] == ["fault"]
    (cell,) = drawn["speculation"]["cells"]
    assert cell["speedup"]["value"] == pytest.approx(20) and cell["why"].startswith("speculation changed the output")
    schemas.check_results(results)


def test_a_near_tie_fails_nobody() -> None:
    tied = variant("f16+lookup", 0.001, 60, shared=True, replace=audited([1, 9, 3], margin=0.2))
    results, drawn = derive(run(variant("f16", 0.02, 60), tied))
    entry = by_name(results)["f16+lookup"]
    assert (entry["status"], results["decision"]["choice"]) == ("ok", "f16+lookup")
    assert entry["metrics"]["audit_identical"]["conditions"]["verdict"] == "near ties only"
    assert by_name(results)["f16"]["metrics"]["audit_identical"]["reasons"] == ["no_speculation"]
    assert [row["variant"] for row in drawn["audit"]] == ["f16+lookup"]


def test_a_front_holds_no_failed_variant_even_where_its_own_figures_are_sound() -> None:
    bad = PartRows((*(doc(i, True) for i in range(99)), doc(99, True, finite=False)), "done", None, False)
    results, _ = derive(run(variant("f16", 0.02, 60), variant("q8_0", 0.01, 0, replace={("mmlu", "docs"): bad})))
    assert results["fronts"]
    for front in results["fronts"]:
        assert "q8_0" not in front["members"]
        assert {"name": "q8_0", "reasons": ["nonfinite"]} in front["left_out"]


def test_layers_left_on_the_cpu_and_a_doubted_counter_are_notes_of_the_run() -> None:
    placed = {"n_layers": 30, "placement": {"gpu_layers_asked": 999, "gpu_layers": 0}}
    parts = energy_parts(3270, **placed)
    parts["speed", "energy"].rows[0]["energy"][0]["power_j"] = 1870.0  # type: ignore[index]
    results, _ = derive(
        run(variant("f16", 0.02, 60), variant("q8_0", 0.01, 59, replace=parts), warnings=["64 threads"], energy=COUNTED)
    )
    assert results["conditions"]["notes"] == [
        {"code": "note", "text": "64 threads"},
        {"code": "energy", "text": "q8_0: package-0: its counter says 327 W, the device reports 187 W"},
        {"code": "placement", "text": "q8_0: 0 of 30 layers are on a GPU"},
    ]


def energy_window(kind: str, number: int, joules: float, domain: str = "package-0") -> dict[str, Any]:
    """10 s; of generations 500 tokens out after as many prompt tokens, in 10 requests."""
    counted = UNREADABLE | {
        "domain": domain, "method": "rapl", "unit": "uj", "before": 0, "after": round(joules * 1e6), "window_s": 10.0,
        "reason": None,
    }  # fmt: skip
    return {
        "kind": kind, "window": number, "length": 50, "requests": 10, "prompt_tokens": 500, "output_tokens": 500,
        "record": {"codes": []}, "energy": [counted],
    }  # fmt: skip


def energy_parts(joules: float, stretch: int = 100, **info: Any) -> dict[tuple[str, str], PartRows]:
    rows = tuple(energy_window("generation", n, joules) for n in range(3))
    rows += tuple(energy_window("idle", n, 500) for n in range(3))
    spent = {"items": stretch, "codes": [], "energy": [energy_window("", 0, 1200)["energy"][0]]}
    load = {"load_s": 1.0, "peak_rss_bytes": 1, "rss_bytes": 1, "info": INFO | info, "idle": []}
    docs = tuple(doc(i, i < 60) for i in range(100))
    near = {"start": 0, "kl": [0.001] * 128, "top1": [1] * 128, "finite": True}
    return {
        ("fidelity", "kl"): PartRows((near,), "done", None, False),
        ("speed", "energy"): PartRows(rows, "done", None, False),
        ("mmlu", "docs"): PartRows(docs, "done", None, False, (spent,)),
        ("engine", "load"): PartRows((load,), "done", None, False),
    }


COUNTED = {"method": "rapl", "scope": ["package-0"], "why": ""}


def test_counted_energy_ranks_and_stands_on_a_front() -> None:
    cheap = variant("q8_0", 0.01, 60, replace=energy_parts(1000))
    results, _ = derive(run(variant("f16", 0.02, 60, replace=energy_parts(2500)), cheap, energy=COUNTED))
    schemas.check_results(json.loads(json.dumps(results, allow_nan=False)))
    figures = by_name(results)["f16"]["metrics"]
    assert [figures[f"energy_{key}j_per_token"]["value"] for key in ("", "net_")] == pytest.approx([5.0, 4.0])
    assert figures["energy_prefill_j_per_token"]["reasons"] == ["not_measured"]
    assert figures["energy_per_correct_j"]["value"] == pytest.approx(1200 / 60)
    front = next(front for front in results["fronts"] if front["objectives"][1] == "energy_j_per_token")
    assert front["members"] == ["q8_0"] and front["p_front"]["q8_0"] == 1.0


def test_a_counter_that_does_not_see_where_the_model_runs_ranks_nobody() -> None:
    on_gpu = variant("f16", 0.02, 60, replace=energy_parts(2500, n_layers=30, placement={"gpu_layers": 30}))
    split = energy_parts(2500, n_layers=30, placement={"gpu_layers": 10})

    def reasons(variant: VariantRun, *scope: str) -> list[str]:
        results, _ = derive(run(variant, energy=COUNTED | {"scope": list(scope)}))
        found: list[str] = results["variants"][0]["metrics"]["energy_j_per_token"]["reasons"]
        return found

    assert reasons(on_gpu, "package-0") == ["uncovered"]
    assert reasons(on_gpu, "gpu:GPU-1") == reasons(on_gpu, "meter") == reasons(on_gpu, "soc") == []
    assert reasons(variant("f16", 0.02, 60, replace=split), "gpu:GPU-1") == ["uncovered"]
    assert reasons(variant("f16", 0.02, 60, replace=split), "gpu:GPU-1", "package-0") == []
    assert reasons(variant("f16", 0.02, 60, replace=energy_parts(2500)), "package-0", "dram-0") == []


def test_a_resumed_suite_with_a_hole_and_a_suite_at_chance_have_no_price_per_answer_that_ranks() -> None:
    holed = variant("f16", 0.02, 60, replace=energy_parts(2500, stretch=70))
    results, _ = derive(run(holed, energy=COUNTED))
    figure = results["variants"][0]["metrics"]["energy_per_correct_j"]
    assert (figure["value"], figure["reasons"]) == (None, ["unmetered"])
    parts = energy_parts(2500)
    dull = PartRows(tuple(doc(i, i < 27) for i in range(100)), "done", None, False, parts["mmlu", "docs"].energy)
    results, _ = derive(run(variant("f16", 0.02, 27, replace=parts | {("mmlu", "docs"): dull}), energy=COUNTED))
    assert "at_chance" in results["variants"][0]["metrics"]["energy_per_correct_j"]["reasons"]
