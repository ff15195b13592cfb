"""The heat map's cells: each draft on each target, against the same settings without speculation."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from harness.record import CODES
from harness.results.deploy import needs
from harness.results.model import PartRows, RunData, VariantRun
from harness.results.speculation import by_target_and_draft

PLAIN = {"kind": "none", "ngram": 3, "tokens": 8, "adapt": False, "draft_path": None, "draft_digest": None}


def trial(block: int, gap_s: float, **counters: Any) -> dict[str, Any]:
    """11 tokens, one every ``gap_s``."""
    stamps = [int(1e8 + i * gap_s * 1e9) for i in range(11)]
    record = {
        "sent_ns": 0, "events": [[t, 1, 2, "content", 2] for t in stamps], "prompt_tokens": 32, "output_tokens": 11,
        "finish_reason": "length", "codes": [], **counters,
    }  # fmt: skip
    return {"block": block, "position": block, "prompt_tokens": 32, "record": record}


COUNTERS = {
    "drafted": 4, "accepted": 3, "verify_steps": 2, "drafted_at": [2, 2, 0], "accepted_at": [2, 1, 0],
    "draft_s": 1.0, "verify_s": 3.0,
}  # fmt: skip


def variant(weights: str, gap_s: float, draft: str = "none", kv: str = "f16", **speculate: Any) -> VariantRun:
    how = PLAIN if draft == "none" else {**PLAIN, "kind": "draft_model", "tokens": 3, **speculate}
    spec = {
        "backend": "llama_cpp", "model_path": f"/m/{weights}", "model_digest": weights, "weights": weights, "kv": kv,
        "speculate": how, "speculation": draft,
    }  # fmt: skip
    counters = COUNTERS if draft != "none" else {}
    # Blocks drift, all variants alike.
    rows = tuple(trial(b, gap_s * (1 + 0.1 * b), **counters) for b in range(10)) if gap_s else ()
    name = weights if draft == "none" else f"{weights}+{draft}"
    parts = {("speed", "trials"): PartRows(rows, "done" if rows else "failed", None, False)}
    return VariantRun(name, name == "f16", name, spec, {}, parts)


def cells(*variants: VariantRun) -> dict[str, Any]:
    drawn = by_target_and_draft(RunData({}, variants))
    assert json.loads(json.dumps(drawn, allow_nan=False)) == drawn
    return {**drawn, "by_name": {cell["variant"]: cell for cell in drawn["cells"]}}


def test_the_speed_up_is_that_over_the_same_target_and_not_over_the_reference() -> None:
    drawn = cells(
        variant("f16", 0.04), variant("q4_0", 0.02), variant("q8_0", 0.03),
        variant("f16", 0.02, "small"), variant("q4_0", 0.04, "small"), variant("q4_0", 0.01, "coarse", adapt=True),
    )  # fmt: skip
    assert (drawn["targets"], drawn["drafts"]) == (["f16", "q4_0"], ["small", "coarse"])
    found = {name: (cell["target"], cell["draft"], cell["speedup"]["value"]) for name, cell in drawn["by_name"].items()}
    assert found == {
        "f16+small": ("f16", "small", pytest.approx(2.0)),
        "q4_0+small": ("q4_0", "small", pytest.approx(0.5)),
        "q4_0+coarse": ("q4_0", "coarse", pytest.approx(2.0)),
    }
    cell = drawn["by_name"]["q4_0+coarse"]
    assert cell["speedup"]["n"] == 10 and cell["speedup"]["low"] == pytest.approx(2.0) and cell["why"] is None
    assert cell["accept_rate"]["value"] == 0.75 and cell["accept_len"]["value"] == 2.5
    assert cell["by_position"] == [{"accepted": 20, "drafted": 20}, {"accepted": 10, "drafted": 20}]
    assert (cell["draft_share"], cell["tokens"], cell["adapt"]) == (0.25, 3, True)


def test_a_target_that_is_not_in_the_run_is_named_and_has_no_speed_up() -> None:
    """The plain variant with another KV cache is another target."""
    drawn = cells(variant("f16", 0.04), variant("q4_0", 0.02, kv="q8_0"), variant("q4_0", 0.04, "small"))
    assert (drawn["targets"], drawn["drafts"]) == ([], ["small"])
    cell = drawn["by_name"]["q4_0+small"]
    assert (cell["target"], cell["speedup"]) == ("q4_0", None)
    assert cell["why"] == "the same settings without speculation are not in this run"
    assert cell["accept_rate"]["value"] == 0.75


def test_a_side_without_trials_says_why() -> None:
    drawn = cells(variant("f16", 0.0), variant("f16", 0.02, "small"), variant("f16", 0.0, "coarse"))
    why = "the cell that gives this figure failed"
    assert [cell["why"] for cell in drawn["cells"]] == [f"f16: {why}", f"f16+coarse: {why}"]
    cell = drawn["by_name"]["f16+coarse"]
    assert (cell["accept_rate"], cell["by_position"], cell["draft_share"]) == (None, [], None)


def test_a_disturbed_speed_up_is_shown_with_its_reason() -> None:
    noisy = variant("f16", 0.02, "small")
    rows = tuple({**row, "record": {**row["record"], "codes": ["contended"]}} for row in noisy.rows("speed", "trials"))
    noisy = replace(noisy, parts={("speed", "trials"): PartRows(rows, "done", None, False)})
    (cell,) = cells(variant("f16", 0.04), noisy)["cells"]
    assert cell["speedup"]["value"] == pytest.approx(2.0) and cell["why"] == CODES["contended"]


def test_runs_without_speculation_have_an_empty_map() -> None:
    drawn = by_target_and_draft(RunData({}, (variant("f16", 0.04),)))
    assert drawn == {"targets": [], "drafts": [], "cells": []}


def test_an_adapting_draft_length_is_a_condition_of_deploying() -> None:
    assert "fixed number of tokens" in needs(variant("f16", 0.02, "small", adapt=True).spec)
    assert "fixed" not in needs(variant("f16", 0.02, "small").spec)
    old = variant("f16", 0.02, "small").spec
    del old["speculate"]["adapt"]  # type: ignore[index]
    assert "fixed" not in needs(old)
