"""A made-up run of the default matrix with plausible figures: what the report's tests render."""

from __future__ import annotations

import random
from typing import Any

import pytest

from harness.metrics.catalog import METRICS

# name: (decode, peak, TTFT s, jitter %, MMLU, top-1, J, MiB, weights, speculate)
_ROWS: dict[str, tuple[float, float, float, float, float, float, float, float, str, str]] = {
    "f16": (94.2, 97.1, 0.214, 3.1, 0.452, 1.0, 0.318, 412, "f16", "none"),
    "q8_0": (125.3, 129.0, 0.181, 3.4, 0.452, 0.985, 0.239, 291, "q8_0", "none"),
    "q4_0": (170.4, 176.2, 0.164, 4.2, 0.443, 0.912, 0.176, 226, "q4_0", "none"),
    "q4_k_m": (119.1, 122.8, 0.212, 3.9, 0.447, 0.956, 0.252, 231, "q4_k_m", "none"),
    "q2_k": (200.6, 208.3, 0.158, 4.8, 0.395, 0.741, 0.149, 204, "q2_k", "none"),
    "f16+lookup": (88.0, 131.5, 0.219, 17.2, 0.452, 1.0, 0.341, 418, "f16", "lookup"),
    "f16+draft": (50.3, 78.4, 0.241, 24.9, 0.452, 1.0, 0.596, 561, "f16", "draft"),
    "q8_0+lookup": (109.7, 160.2, 0.186, 19.5, 0.452, 0.985, 0.273, 297, "q8_0", "lookup"),
    "q8_0+draft": (61.8, 93.0, 0.207, 26.3, 0.452, 0.985, 0.485, 438, "q8_0", "draft"),
}


def metric(key: str, value: float | None, half: float | None = None, n: int = 24, *reasons: str) -> dict[str, Any]:
    """One metric of results.json."""
    low, high = (None, None) if value is None or half is None else (value - half, value + half)
    about = METRICS[key]
    return {
        "value": value, "low": low, "high": high, "n": n, "unit": about.unit, "better": about.better,
        "reasons": list(reasons), "conditions": {},
    }  # fmt: skip


def _metrics(name: str) -> dict[str, Any]:
    tps, peak, ttft, jitter, mmlu, top1, joules, mib, _weights, speculate = _ROWS[name]
    ref = ("is_reference",) if name == "f16" else ()
    spec = () if speculate != "none" else ("no_speculation",)
    shared = ("shared_scoring",) if spec == () else ()
    found = {
        "decode_tps": metric("decode_tps", tps, tps * 0.018),
        "peak_tps": metric("peak_tps", peak, peak * 0.02),
        "output_tps": metric("output_tps", tps * 0.8, tps * 0.02),
        "prefill_tps": metric("prefill_tps", 640.0, 22.0, 18),
        "ttft_s": metric("ttft_s", ttft, ttft * 0.03),
        "jitter_pct": {**metric("jitter_pct", jitter, None, 24, "small_n"), "low": jitter * 0.8, "high": jitter * 1.5},
        "speedup": metric("speedup", tps / 94.2, None if name == "f16" else 0.03, 10, *ref),
        "energy_j_per_token": {**metric("energy_j_per_token", joules, joules * 0.4, 24, "estimated_energy")},
        "peak_rss_bytes": metric("peak_rss_bytes", mib * 2**20, None, 1),
        "model_bytes": metric("model_bytes", mib * 0.65 * 2**20, None, 1),
        "load_s": metric("load_s", 0.21, None, 1),
        "mmlu_acc": metric("mmlu_acc", mmlu, 0.043, 228, "sample_not_mmlu", *shared),
        "mmlu_delta": metric("mmlu_delta", mmlu - 0.452, 0.012, 228, "sample_not_mmlu", *ref),
        "mmlu_flips": metric("mmlu_flips", (1 - top1) * 0.7, 0.01, 228, "sample_not_mmlu", *ref),
        "top1_agreement": metric("top1_agreement", top1, None if ref else 0.006, 4096, *ref),
        "kl_mean": metric("kl_mean", (1 - top1) ** 1.4 * 1.7, (1 - top1) * 0.01, 4096, *ref),
        "kl_p99": metric("kl_p99", (1 - top1) ** 1.2 * 9, (1 - top1) * 0.3, 4096, *ref),
        "greedy_agree_tokens": metric("greedy_agree_tokens", 64 * top1**6, 4.0, 12, *ref),
        "coherence_1_10": metric("coherence_1_10", 3.1 + top1, 0.5, 72),
        "ledger_acc": metric("ledger_acc", 0.3 + top1 / 5, 0.08, 72),
        "tracking_acc": metric("tracking_acc", 0.29, 0.09, 48),
        "nondegeneration": metric("nondegeneration", 0.61, 0.05, 3),
        "inconsistency": metric("inconsistency", 0.34, 0.09, 24),
        "code_parse_rate": metric("code_parse_rate", 0.5 + 0.2 * top1, 0.17, 24),
        "accept_rate": metric("accept_rate", 0.42 if spec == () else None, 0.03, 24, *spec),
        "accept_len": metric("accept_len", 2.1 if spec == () else None, 0.2, 24, *spec),
        "tokens_per_chunk": metric("tokens_per_chunk", 2.1 if spec == () else 1.0, None, 24),
    }
    if name == "q8_0+draft":
        for key in ("top1_agreement", "kl_mean", "kl_p99", "greedy_agree_tokens"):
            found[key] = metric(key, None, None, 0, "cell_failed")
    if name == "q2_k":
        found["ttft_s"] = metric("ttft_s", None, None, 0, "not_streamed")
        found["jitter_pct"] = metric("jitter_pct", None, None, 3, "undefined")
    return found


def _variant(name: str) -> dict[str, Any]:
    weights, speculate = _ROWS[name][8:]
    failed = name == "q8_0+draft"
    return {
        "name": name, "reference": name == "f16", "id": f"{sum(name.encode()):08x}",
        "status": "partial" if failed else "ok",
        "failures": [{"suite": "fidelity", "reason": "the worker died: out of memory"}] if failed else [],
        "settings": {
            "backend": "llama_cpp", "weights": weights, "kv": "f16", "speculate": speculate, "threads": 2,
            "ctx": 4096, "flash_attention": False,
            "speculation": {"kind": "draft_model", "tokens": 4} if speculate == "draft" else {},
        },
        "model_file": f"models/smollm2-135m-{weights}.gguf", "model_digest": "sha256:" + "4f" * 32,
        "deploy": f"llama-server --model models/smollm2-135m-{weights}.gguf --threads 2 --ctx-size 4096",
        "metrics": _metrics(name),
    }  # fmt: skip


def make_results() -> dict[str, Any]:
    """The run: 9 variants, energy estimated, MMLU from the sample, one failed cell, one variant with nulls."""
    return {
        "schema_version": 1, "run_id": "20261130-2215-smollm2-quick", "created": "2026-11-30T22:15:04Z",
        "harness_version": "0.1.0", "preset": "quick", "status": "complete",
        "machine": {
            "fingerprint": "9c1b77d0e2aa", "cpu": "AMD EPYC 9R14", "cores": 2, "ram_bytes": 8_215_000_000,
            "os": "Linux 6.1 x86_64", "gpus": [],
            "bandwidth_bytes_per_s": {"best": 27.9e9, "median": 19.2e9, "n": 9},
        },
        "conditions": {
            "model": {
                "name": "SmolLM2-135M-Instruct", "file": "SmolLM2-135M-Instruct-Q4_1.gguf",
                "digest": "sha256:" + "ab" * 32,
                "restored": True,
                "note": "F16 was restored from the shipped Q4_1 file; your own F16 or BF16 file is the real reference.",
            },
            "engine": {"name": "llama-cpp-python", "version": "0.3.36"},
            "suites": {
                "mmlu": {"form": "continuation", "few_shot": 5, "per_subject": 4},
                "speed": {"prompt_tokens": [128, 512, 2048], "output_tokens": 64},
            },
            "schedule": {"rounds": 6, "order": "palindromic"},
            "energy": {
                "method": "estimate:cpu-share", "scope": ["cpu"],
                "why": "No RAPL counter can be read on this virtual machine",
            },
            "quiet": {
                "psi_some_share": 0.021, "steal_share": 0.004, "other_share": 0.013, "contended_trials": 2,
                "repeated_trials": 2, "trials": 216,
            },
            "notes": [],
        },
        "suites": {
            "mmlu": {
                "label": "MMLU-format sample (not MMLU)", "is_sample": True, "form": "continuation", "chance": 0.25,
                "reference": {"value": 0.452, "low": 0.409, "high": 0.495, "n": 228}, "at_chance": False,
                "separates": False,
                "why": "the reference beats guessing, but only q2_k can be told from it",
            },
            "long_context": {
                "label": "Long context: planted facts", "is_sample": False, "chance": 0.25, "at_chance": False,
                "separates": False, "why": "generated stories and documents",
            },
            "code_syntax": {
                "label": "Code that parses", "is_sample": False, "chance": 0.0, "at_chance": False, "separates": False,
                "why": "function bodies in eight languages",
            },
        },
        "variants": [_variant(name) for name in _ROWS],
        "fronts": [
            {
                "objectives": ["top1_agreement", "decode_tps"], "members": ["f16", "q8_0", "q4_0", "q2_k"],
                "p_front": {"f16": 1.0, "q8_0": 1.0, "q4_0": 1.0, "q2_k": 1.0, "q4_k_m": 0.04, "f16+lookup": 0.11,
                            "f16+draft": 0.0, "q8_0+lookup": 0.0},
                "left_out": [{"name": "q8_0+draft", "reasons": ["cell_failed"]}], "tied": [["f16", "f16+lookup"]],
            },
            {
                "objectives": ["top1_agreement", "ttft_s"], "members": ["f16", "q8_0", "q4_0"],
                "p_front": {"f16": 1.0, "q8_0": 0.99, "q4_0": 0.98},
                "left_out": [{"name": "q2_k", "reasons": ["not_streamed"]}], "tied": [],
            },
            {
                "objectives": ["top1_agreement", "peak_rss_bytes"],
                "members": ["f16", "q8_0", "q4_k_m", "q4_0", "q2_k"],
                "p_front": {}, "left_out": [], "tied": [],
            },
        ],
        "decision": {
            "wish": "highest decode tokens/s with top-1 agreement ≥ 95%",
            "objective": "decode_tps", "quality_key": "top1_agreement",
            "quality_why": "MMLU cannot tell these variants apart here, so quality = top-1 agreement",
            "choice": "q8_0",
            "reason": "Deploy q8_0: 125 ± 2 decode tokens/s, 1.33x the reference (f16), and top-1 agreement "
            "98.5 ± 0.6% (at least 95% asked).",
            "losers": [
                {"name": "q4_0", "why": "top-1 agreement 91.2%, below 95%"},
                {"name": "q2_k", "why": "top-1 agreement 74.1%, below 95%"},
                {"name": "f16", "why": "slower: 94 tokens/s"},
                {"name": "q4_k_m", "why": "slower: 119 tokens/s"},
            ],
            "margin": 0.05,
        },
        "claims": _claims(),
    }  # fmt: skip


def _claims() -> list[dict[str, Any]]:
    def row(key: str, claim: str, span: str, verdict: str, why: str, *measured: tuple[Any, ...]) -> dict[str, Any]:
        values = [dict(zip(("variant", "value", "low", "high", "unit"), one, strict=True)) for one in measured]
        return {"key": key, "claim": claim, "source": "first text", "range": span, "measured": values,
                "verdict": verdict, "why": why}  # fmt: skip

    return [
        row("int4_speed", "INT4 decodes faster than FP16", "1.5–2×", "holds", "the interval lies inside the range",
            ("q4_0", 1.81, 1.77, 1.85, "x"), ("q4_k_m", 1.26, 1.23, 1.30, "x")),
        row("spec_speed", "Speculation multiplies tokens/s", "2–3×", "does not hold", "every interval lies below 1",
            ("f16+lookup", 0.93, 0.90, 0.96, "x"), ("f16+draft", 0.53, 0.51, 0.56, "x")),
        row("int4_mmlu", "INT4 loses 5–8% of MMLU", "5–8%", "cannot tell", "the interval spans zero and the range",
            ("q4_0", -0.009, -0.021, 0.003, "ratio")),
        row("energy", "The fastest combination costs more energy", "+50%", "cannot tell", "energy is an estimate here"),
    ]  # fmt: skip


def make_series() -> dict[str, Any]:
    """Series for the plots, drawn from a fixed seed."""
    rng = random.Random(7)
    found: dict[str, Any] = {key: {} for key in ("ttft_by_prompt", "tps_by_prompt", "streams", "jitter", "depth",
                                                 "code_by_language")}  # fmt: skip
    for name, (tps, _, ttft, jitter, mmlu, top1, *__) in _ROWS.items():
        slow = ttft / 512
        found["ttft_by_prompt"][name] = [
            _point("prompt_tokens", n, slow * n * (1 + n / 9000), 0.05) for n in (128, 512, 2048)
        ]
        found["tps_by_prompt"][name] = [
            _point("prompt_tokens", n, tps * (1 - n / 12000), 0.02) for n in (128, 512, 2048)
        ]
        found["depth"][name] = [
            _point("depth", n, 0.1 + top1 / 4 + mmlu / 2 - n / 9000, 0.15) for n in (512, 1024, 2048)
        ]
        found["jitter"][name] = [round(rng.gauss(1, jitter / 128), 4) for _ in range(24)]
        found["streams"][name] = {"sent_s": 0, "events": _events(rng, name, tps, ttft), "prompt_tokens": 512}
        languages = ("c", "cpp", "go", "java", "javascript", "python", "rust", "typescript")
        found["code_by_language"][name] = {
            language: {"parsed": rng.randint(0, 3), "total": 4, "truncated": rng.randint(0, 1)}
            for language in languages
        }
    found["code_samples"] = [
        {"variant": "q2_k", "language": "python", "prompt": "py-sum-list", "output": "def f(xs):\n    return sum(xs\n",
         "verdict": "invalid", "error": "'(' was never closed (line 2)"},
        {"variant": "f16", "language": "go", "prompt": "func f() int {", "output": "return 1 }", "verdict": "parsed",
         "error": None},
        {"variant": "f16", "language": "c", "prompt": "int f(", "output": "void) {", "verdict": "truncated",
         "error": None},
    ]  # fmt: skip
    found["flips"] = [
        {"variant": "q2_k", "subject": "astronomy", "doc_id": i,
         "question": f"Which planet is number {i} from the Sun?",
         "choices": ["Mercury", "Venus", "Earth", "Mars"], "gold": 2, "reference_pred": 2, "pred": 0}
        for i in range(34)
    ]  # fmt: skip
    found["mmlu_by_subject"] = {}
    found["depth_speed"] = {name: _depth_speed(row[0]) for name, row in _ROWS.items()}
    return found | {"speculation": make_speculation(), "audit": make_audit()}


def _depth_speed(tps: float) -> list[dict[str, Any]]:
    def span(value: float) -> dict[str, Any]:
        return {"value": value, "low": value * 0.95, "high": value * 1.05, "n": 6}

    return [{"depth": n, "decode_tps": span(tps / (1 + n / 8192)), "ttft_s": span(n / 500)} for n in (512, 2048, 8192)]


def make_speculation() -> dict[str, Any]:
    """Lookup pays on f16, cannot be told on q8_0; the draft slows f16 and was not measured on q8_0."""

    def cell(target: str, draft: str, ratio: tuple[float, float, float] | None, **more: Any) -> dict[str, Any]:
        speedup = None if ratio is None else dict(zip(("value", "low", "high"), ratio, strict=True)) | {"n": 18}
        rate = {"value": 0.25, "low": 0.2, "high": 0.3, "n": 18} if ratio else None
        return {
            "target": target, "draft": draft, "variant": f"{target}+{draft}", "speedup": speedup, "why": None,
            "accept_rate": rate, "accept_len": {**rate, "value": 1.75} if rate else None,
            "by_position": [{"accepted": 30, "drafted": 40}, {"accepted": 8, "drafted": 32}] if rate else [],
            "draft_share": 0.4 if draft == "draft" and rate else None, "tokens": 4, "adapt": draft == "lookup", **more,
        }  # fmt: skip

    cells = [
        cell("f16", "lookup", (1.14, 1.04, 1.25)),
        cell("f16", "draft", (0.5, 0.48, 0.52)),
        cell("q8_0", "lookup", (0.97, 0.9, 1.04)),
        cell("q8_0", "draft", None, why="the worker died"),
    ]
    return {"targets": ["f16", "q8_0", "q4_0"], "drafts": ["lookup", "draft"], "cells": cells}


def make_audit() -> list[dict[str, Any]]:
    """One of each verdict; q8_0+draft was not audited."""

    def row(variant: str, verdict: str, *partings: tuple[str, int, float | None, bool]) -> dict[str, Any]:
        keys = ("prompt", "index", "margin", "explained")
        return {
            "variant": variant, "prompts": 4, "tokens": 256, "identical": 4 - len(partings),
            "divergences": [dict(zip(keys, one, strict=True)) for one in partings],
            "floor": {"max": 0.35, "mean": 0.05, "n": 256}, "verdict": verdict,
        }  # fmt: skip

    return [
        row("f16+lookup", "lossless"),
        row("q8_0+lookup", "near ties only", ("p3", 17, 0.02, True)),
        row("f16+draft", "fault", ("p1", 1, 0.5, True), ("p2", 41, 2.1, False)),
    ]


def _point(x_key: str, x: int, value: float, share: float) -> dict[str, Any]:
    return {x_key: x, "value": value, "low": value * (1 - share), "high": value * (1 + share), "n": 12}


def _events(rng: random.Random, name: str, tps: float, ttft: float) -> list[list[float]]:
    events, at, left = [], ttft, 64
    while left > 0:
        tokens = min(left, rng.choice((1, 1, 2, 3, 5)) if "+" in name else 1)
        events.append([round(at, 4), tokens])
        at += tokens / tps * rng.uniform(0.85, 1.15)
        left -= tokens
    return events


def make_many(count: int) -> tuple[dict[str, Any], dict[str, Any]]:
    """The same run with ``count`` variants: copies under new names with slightly other figures."""
    run, plots = make_results(), make_series()
    names = list(_ROWS)
    for index in range(count - len(names)):
        base = names[index % len(names)]
        name = f"{base}-kv{index}"
        copy = _variant(base) | {"name": name, "reference": False}
        for key in ("decode_tps", "top1_agreement"):
            if copy["metrics"][key]["value"] is not None:
                copy["metrics"][key]["value"] *= 1 - 0.01 * (index + 1)
            copy["metrics"][key]["low"] = copy["metrics"][key]["high"] = None
        run["variants"].append(copy)
        for part in plots.values():
            if isinstance(part, dict) and base in part:
                part[name] = part[base]
    return run, plots


@pytest.fixture
def results() -> dict[str, Any]:
    """A run a test may change."""
    return make_results()


@pytest.fixture
def series() -> dict[str, Any]:
    """Its series for plots."""
    return make_series()


@pytest.fixture
def thirty() -> tuple[dict[str, Any], dict[str, Any]]:
    """A run of thirty variants and its series."""
    return make_many(30)
