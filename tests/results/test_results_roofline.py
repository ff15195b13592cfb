"""Ceilings of a run, worked by hand: which bandwidth counts, at which depth, and what speculation changes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from harness.record import Figure
from harness.results.model import PartRows, RunData, VariantRun
from harness.results.roofline import depth_series, roofline

READS = {"weight_bytes": 200.0, "kv": [[1.0, None], [2.0, 10]]}
DECODE = {"decode_tps": Figure(25.0, 20.0, 30.0, 6)}


def rows(*payloads: Mapping[str, Any]) -> PartRows:
    return PartRows(tuple(payloads), "done", None, False)


def trial(prompt: int, output: int, **counts: Any) -> dict[str, Any]:
    record = {"output_tokens": output, "drafted": None, "accepted": None, **counts}
    return {"prompt_tokens": prompt, "record": record}


def variant(
    *trials: Mapping[str, Any], placement: Mapping[str, Any] | None = None, kind: str = "none", **more: PartRows
) -> VariantRun:
    info = {
        "active_bytes_per_token": 200, "kv_bytes_per_token": 3, "n_layers": 2,
        "placement": {"reads": READS, "gpu_layers": 0, **(placement or {})},
    }  # fmt: skip
    parts = {("engine", "load"): rows({"info": info}), ("speed", "trials"): rows(*(trials or (trial(30, 20),)))}
    parts |= {("speed", name): part for name, part in more.items()}
    spec = {"threads": 1, "speculate": {"kind": kind}}
    return VariantRun("v", True, "id", spec, {}, parts)


def run(**facts: Any) -> RunData:
    probes = {"1": {"best": 1000.0, "n": 9, "threads": 1}, "2": {"best": 2000.0, "n": 9, "threads": 2}}
    return RunData({"bandwidth": probes["2"], "bandwidths": probes, **facts}, ())


def test_the_ceiling_is_that_of_the_variants_own_threads_at_the_depth_of_its_tokens() -> None:
    found = roofline(run(), variant(), DECODE)
    # 20 tokens after 30: on average 40 tokens deep, of which a layer with a window of 10 sees 10.
    assert found["ceiling_tps"].value == pytest.approx(1000 / (200 + 40 + 20))
    assert found["mbu"].value == pytest.approx(25 * 260 / 1000)
    conditions = found["ceiling_tps"].conditions
    assert (conditions["threads"], conditions["depth"], conditions["kv_bytes"]) == (1, 40, 60)
    assert conditions["bytes_per_token"] == 260


def test_several_prompt_lengths_are_averaged_in_bytes_not_in_depth() -> None:
    found = roofline(run(), variant(trial(0, 2), trial(100, 2)), DECODE)
    assert found["ceiling_tps"].conditions["kv_bytes"] == ((1 + 2 * 1) + (101 + 20)) / 2


def test_runs_of_before_have_one_probe_and_two_sums() -> None:
    old = variant(placement={"reads": None})
    found = roofline(run(bandwidths=None), old, DECODE)
    assert found["ceiling_tps"].value == pytest.approx(2000 / (200 + 3 * 40))
    assert roofline(run(bandwidths=None, bandwidth=None), old, DECODE)["ceiling_tps"].reasons == ("not_measured",)


def test_on_a_gpu_the_gpus_own_bandwidth_counts_or_none() -> None:
    whole, part = variant(placement={"gpu_layers": 3}), variant(placement={"gpu_layers": 1})
    gpu = {"gpu": {"best": 26000.0, "n": 9, "device": "H100"}}
    found = roofline(run(bandwidths=gpu), whole, DECODE)
    assert found["ceiling_tps"].value == pytest.approx(26000 / 260)
    assert found["ceiling_tps"].conditions["device"] == "H100"
    # Split over two memories, neither bandwidth is the ceiling's.
    assert roofline(run(bandwidths=gpu), part, DECODE)["mbu"].reasons == ("not_measured",)
    assert roofline(run(bandwidths={"gpu": {"best": None, "why": "no"}}), whole, DECODE)["mbu"].value is None


def test_a_drafts_passes_are_paid_for_and_accepted_tokens_are_gained() -> None:
    # 41 tokens: the first of the prompt's pass, 30 accepted, so 10 passes, for which 40 were drafted.
    counted = trial(30, 41, drafted=40, accepted=30)
    draft = {"draft_reads": {"weight_bytes": 20.0, "kv": [[0.5, None]]}}
    found = roofline(run(), variant(counted, placement=draft, kind="draft_model"), DECODE)
    depth = 30 + 41 / 2
    one_pass, one_draft = 200 + depth + 20, 20 + 0.5 * depth
    assert found["ceiling_tps"].value == pytest.approx(1000 * 4 / (one_pass + 4 * one_draft))
    conditions = found["ceiling_tps"].conditions
    assert (conditions["tokens_per_pass"], conditions["drafted_per_pass"]) == (4.0, 4.0)


def test_lookup_drafts_without_reading_weights() -> None:
    counted = trial(30, 41, drafted=80, accepted=20)
    found = roofline(run(), variant(counted, kind="prompt_lookup"), DECODE)
    assert found["ceiling_tps"].value == pytest.approx(1000 * 2 / (200 + 50.5 + 20))


@pytest.mark.parametrize("kind", ["draft_model", "prompt_lookup"])
def test_uncounted_speculation_has_no_ceiling(kind: str) -> None:
    assert roofline(run(), variant(kind=kind), DECODE)["ceiling_tps"].reasons == ("not_measured",)


def test_a_draft_of_unknown_size_has_no_ceiling() -> None:
    counted = trial(30, 41, drafted=40, accepted=30)
    assert roofline(run(), variant(counted, kind="draft_model"), DECODE)["ceiling_tps"].value is None


def test_what_was_not_timed_has_no_figures() -> None:
    untimed = VariantRun("v", True, "id", {"threads": 1, "speculate": {"kind": "none"}}, {}, {})
    assert roofline(run(), untimed, {}) == {} and depth_series(run(), untimed) == []


def test_by_depth() -> None:
    """11 tokens at each depth, 0.1 s apart: 10 tokens/s."""
    times = [[k * 1_000_000_000 + i * 100_000_000 for i in range(11)] for k in (1, 9)]
    record = {"sent_ns": 0, "depths": [2, 92], "t_ns": times, "codes": []}
    passes = rows({"record": record}, {"record": record})
    found = depth_series(run(), variant(depth=passes))
    # 16 tokens after the depth: on average 8 deeper.
    ceilings = [1000 / (200 + 10 + 20), 1000 / (200 + 100 + 20)]
    assert [point["depth"] for point in found] == [2, 92]
    assert [point["ceiling_tps"] for point in found] == pytest.approx(ceilings)
    assert [point["mbu"]["value"] for point in found] == pytest.approx([10 / ceiling for ceiling in ceilings])
