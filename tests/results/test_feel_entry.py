"""The ``feel`` entry of results.json from rows made by hand."""

from __future__ import annotations

import json
from typing import Any

import pytest

from harness import schemas
from harness.record import Figure
from harness.results.feel import feel
from harness.results.model import PartRows, RunData, VariantRun


def trial(block: int, gap_s: float, prompt: int) -> dict[str, Any]:
    stamps = [int(1e8 + k * gap_s * 1e9) for k in range(20)]
    record = {
        "sent_ns": 0, "events": [[t, 1, 2, "content", 2] for t in stamps], "prompt_tokens": prompt,
        "output_tokens": 20, "finish_reason": "length", "codes": [],
    }  # fmt: skip
    return {"block": block, "position": block, "prompt_tokens": prompt, "record": record}


def variant(name: str, *rows: dict[str, Any], dropped: frozenset[int] = frozenset()) -> VariantRun:
    parts = {("speed", "trials"): PartRows(rows, "done", None, False)}
    return VariantRun(name, name == "f16", name, {}, {}, parts, dropped)


def test_bands_details_and_prompt_lengths() -> None:
    rows = [trial(b, 0.005 if b % 2 else 0.01, 128 if b % 2 else 32) for b in range(12)]
    run = RunData({}, (variant("f16", *rows), variant("q4_0")))
    speeds = {"f16": {"decode_tps": Figure(148.0, 140.0, 156.0, 12)}, "q4_0": {"decode_tps": Figure(9.0)}}
    found = feel(run, speeds)
    schemas.Feel.model_validate(json.loads(json.dumps(found, allow_nan=False)))
    assert list(found["variants"]) == ["f16"]  # the other one was not timed
    f16 = found["variants"]["f16"]
    assert (f16["bands"], f16["band"]) == (["fluent", "brisk"], "fluent or brisk")
    # Sent 0.1 s before the first token: 11 tokens of 0.01 s or all 20 of 0.005 s; in the middle 15.5.
    assert f16["figures"]["tokens_in_budget"]["value"] == 15.5
    assert f16["figures"]["agent5_p95_s"]["value"] == pytest.approx(5 * (0.29 + 0.195) / 2)
    assert f16["figures"]["skimming_wait_s"]["value"] == 0.0
    short, long = f16["by_prompt"]
    assert (short["prompt_tokens"], long["prompt_tokens"]) == (32, 128)
    # 16 tokens after 0.25 and 0.175 s.
    assert (short["completion_share"]["value"], long["completion_share"]["value"]) == (0.0, 1.0)
    assert long["completion_s"]["value"] == pytest.approx(0.175)


def test_without_a_speed_there_is_no_band_and_replaced_rounds_do_not_count() -> None:
    rows = [trial(0, 0.01, 32), trial(1, 0.5, 32), trial(10_001, 0.01, 32)]
    run = RunData({}, (variant("f16", *rows, dropped=frozenset({1})),))
    found = feel(run, {"f16": {"decode_tps": Figure(None, reasons=("undefined",))}})["variants"]["f16"]
    assert (found["bands"], found["band"]) == ([], None)
    assert found["figures"]["agent5_p95_s"]["n"] == 2
