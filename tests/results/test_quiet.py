"""How quiet the machine was, from rows made by hand; what was not recorded stays unknown."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest

from harness import schemas
from harness.record import Figure, missing
from harness.results.model import PartRows, RunData, VariantRun
from harness.results.quiet import quiet, short

SPEEDS = {
    "decode_tps": Figure(100.0, 98.0, 102.0, 20),
    "ttft_s": Figure(0.1, 0.09, 0.11, 20),
    "speedup": Figure(2.0, 1.98, 2.02, 10),
    "ttft_ratio": missing("undefined"),
}


def row(block: int, codes: tuple[str, ...] = (), attempt: int = 1, **more: Any) -> dict[str, Any]:
    seen = {"steal_share": 0.01, "other_share": 0.02, "psi_some_share": None, "wait_share": 0.0}
    contention = {**seen, "frequency_ratio": None, **more.pop("contention", {})}
    return {"block": block, "attempt": attempt, "record": {"codes": list(codes)}, "contention": contention, **more}


def variant(name: str, rows: list[dict[str, Any]], warm: dict[str, Any] | None = None) -> VariantRun:
    load: dict[str, Any] = {"load_s": 1.0} | ({"warm": warm} if warm else {})
    parts = {
        ("engine", "load"): PartRows((load,), "done", None, False),
        ("speed", "trials"): PartRows(tuple(rows), "done", None, False),
    }
    return VariantRun(name, name == "f16", name, {"speculate": {"kind": "none"}}, {}, parts)


def reading(block: int, end: str, bandwidth: float, gap_s: float, by: str = "f16") -> dict[str, Any]:
    first = block - 10_000 if block >= 10_000 else None
    return {"block": block, "end": end, "replaces": first, "bandwidth": bandwidth, "gap_s": gap_s, "by": by, "t_ns": 0}


def steady(blocks: int, **moved: tuple[float, float]) -> list[dict[str, Any]]:
    """Readings of 10 GB/s, with other bandwidths at both ends of the rounds given as b3=(before, after)."""
    ends = {number: moved.get(f"b{number}", (10e9, 10e9)) for number in [*range(blocks), 10_000]}
    numbers = [n for n in ends if n < blocks or f"b{n}" in moved]
    return [reading(n, end, ends[n][i], 0.01) for n in numbers for i, end in enumerate(("before", "after"))]


def account(*variants: VariantRun, figures: dict[str, Figure] | None = None, **facts: Any) -> dict[str, Any]:
    run = RunData(facts, variants)
    found = quiet(run, {v.name: {**SPEEDS, **(figures or {})} for v in variants})
    schemas.Quiet.model_validate(found)
    json.dumps(found, allow_nan=False)
    return found


def two(rows: list[dict[str, Any]]) -> tuple[VariantRun, VariantRun]:
    return variant("f16", rows), variant("q4_0", rows)


class TestTrials:
    def test_counts_waits_and_loads(self) -> None:
        rows = [
            row(0, waited_s=0.0),
            row(1, attempt=2, waited_s=1.5),
            row(2, ("contended",), attempt=3, waited_s=4.0, contention={"other_share": 0.4}),
            row(3, ("throttled", "contended"), contention={"frequency_ratio": 0.85, "throttled": 2}),
        ]
        found = account(variant("f16", rows))
        assert found["trials"] == {
            "n": 4, "contended": 2, "throttled": 1, "disturbed": 2, "repeated": 2, "attempts": 7, "waited_s": 5.5,
        }  # fmt: skip
        assert found["load"]["other_share"] == {"median": 0.02, "worst": 0.4, "n": 4}
        assert found["load"]["psi_some_share"] is None
        assert found["clock"] == {
            "least_frequency_ratio": 0.85, "most_temperature_rise_c": None, "throttle_events": 2,
        }  # fmt: skip

    def test_what_an_older_run_did_not_record_is_unknown(self) -> None:
        found = account(*two([row(b) for b in range(3)]))
        assert found["sentinel"] is None and found["trials"]["waited_s"] is None
        assert found["warm_up"] == {"f16": None, "q4_0": None}
        assert found["precision"]["asked"] is None
        assert found["precision"]["variants"]["q4_0"]["met"] is None

    def test_nothing_timed(self) -> None:
        gone = {key: missing("not_measured") for key in SPEEDS}
        found = account(*two([]), figures=gone)
        assert found["quiet"] is None
        assert found["sentence"] == "Nothing was timed, so it is not known how quiet the machine was."

    def test_the_short_form_has_means(self) -> None:
        rows = [row(0), row(1, ("contended",), attempt=3, contention={"steal_share": 0.03})]
        assert short(RunData({}, (variant("f16", rows),))) == {
            "psi_some_share": None, "steal_share": 0.02, "other_share": 0.02, "contended_trials": 1,
            "repeated_trials": 1, "trials": 2,
        }  # fmt: skip


class TestSentinel:
    def test_moved_rounds_and_their_repeats(self) -> None:
        readings = steady(4, b0=(10e9, 9e9), b2=(10e9, 12e9), b10000=(10e9, 9.9e9))
        found = account(*two([row(b) for b in range(4)]), sentinels=readings)["sentinel"]
        assert (found["rounds"], found["moved"], found["run_again"], found["still_moved"]) == (4, [0, 2], [0], [2])

    def test_a_repeat_that_moved_too_counts_under_the_number_of_its_round(self) -> None:
        readings = steady(3, b1=(10e9, 9e9), b2=(10e9, 8e9), b10000=(10e9, 9.1e9), b0=(10e9, 9e9))
        found = account(*two([row(b) for b in range(3)]), sentinels=readings)["sentinel"]
        assert (found["run_again"], found["still_moved"]) == ([0], [0, 1, 2])

    def test_memory_speed_around_the_rounds_that_count(self) -> None:
        readings = steady(2, b0=(10e9, 5e9), b1=(20e9, 20e9), b10000=(10e9, 10e9))
        found = account(*two([row(b) for b in range(2)]), sentinels=readings)["sentinel"]
        # 10, 10, 20, 20: the take over which memory fell to half does not count.
        assert found["memory_bytes_s"] == {"low": 10e9, "median": 15e9, "high": 20e9, "n": 4}

    def test_memory_speed_that_was_not_read_is_unknown(self) -> None:
        readings = [{**one, "bandwidth": None} for one in steady(2)]
        found = account(*two([row(b) for b in range(2)]), sentinels=readings)
        assert found["sentinel"]["memory_bytes_s"] is None and "memory" not in found["sentence"]

    def test_course_is_in_order_and_over_the_median(self) -> None:
        readings = steady(2, b1=(10e9, 8e9))
        found = account(*two([row(0)]), sentinels=readings[::-1])["sentinel"]
        assert [(p["block"], p["end"], p["bandwidth"]) for p in found["course"]] == [
            (0, "before", 1.0), (0, "after", 1.0), (1, "before", 1.0), (1, "after", pytest.approx(0.8)),
        ]  # fmt: skip

    def test_a_slower_variant_is_no_slower_machine(self) -> None:
        readings = [reading(b, "before", 10e9, gap, by) for b, (gap, by) in enumerate([(0.01, "f16"), (0.03, "q8_0")])]
        found = account(*two([row(0)]), sentinels=readings)["sentinel"]
        assert [point["decode"] for point in found["course"]] == [1.0, 1.0]

    def test_drift_is_seen_and_said(self) -> None:
        falling = [reading(b, "before", 10e9 * math.exp(-b / 40), 0.01) for b in range(10)]
        found = account(*two([row(b) for b in range(10)]), sentinels=falling)
        drift = found["sentinel"]["drift"]["bandwidth"]
        assert drift["flagged"] and drift["change"] == pytest.approx(math.exp(-9 / 40) - 1)
        assert not found["sentinel"]["drift"]["decode"]["flagged"]
        assert found["quiet"] is False and "memory became 20% slower over the run" in found["sentence"]


class TestSentence:
    def test_quiet(self) -> None:
        found = account(*two([row(b) for b in range(10)]), sentinels=steady(10))
        assert found["quiet"] is True
        assert found["sentence"] == (
            "The machine was quiet: none of 20 trials ran beside other load. Speeds are known to ±2.0%, "
            "ratios to the reference, which are paired within rounds, to ±1.0% or better, on a machine whose memory "
            "gives 10.0 GB/s."
        )

    def test_not_quiet(self) -> None:
        rows = [row(b, ("contended",) if b < 2 else ()) for b in range(10)]
        found = account(*two(rows), sentinels=steady(8, b3=(10e9, 9e9)))
        assert found["quiet"] is False
        assert found["sentence"] == (
            "Not quiet: 4 of 20 trials ran beside other load, in 1 of 8 rounds the machine changed its "
            "speed by more than 5%. Speeds are known to ±2.0%, ratios to the reference, which are paired within "
            "rounds, to ±1.0% or better, on a machine whose memory gives 9.75 to 10.0 GB/s."
        )

    def test_ratios_of_disturbed_trials_do_not_hold(self) -> None:
        rows = [row(b, ("contended",)) for b in range(10)]
        bad = {"speedup": Figure(2.0, 1.98, 2.02, 10, ("contended",))}
        said = account(*two(rows), figures=bad)["sentence"]
        assert said.endswith("The ratios rest on disturbed trials, or on few between them, and do not rank.")

    def test_throttled_trials_are_said_apart(self) -> None:
        heat = [row(b, ("throttled",) if b < 2 else ()) for b in range(10)]
        assert "4 of 20 trials ran throttled." in account(*two(heat))["sentence"]
        both = [row(b, ("throttled", "contended") if b < 2 else ()) for b in range(10)]
        assert "4 of 20 trials ran beside other load or throttled." in account(*two(both))["sentence"]


class TestPrecision:
    RACE = (
        {"from_block": 10, "blocks": 5, "variants": ["q4_0"], "why": {"q4_0": "decode_tps ±5%, asked ±3%"}},
        {"from_block": 15, "blocks": 5, "variants": [], "why": {}},
    )

    def test_reached_asked_and_spent(self) -> None:
        speed = {"speed": {"precision": {"decode_tps": 0.03}}}
        rows = [row(b) for b in range(13)]  # stopped in the middle of the further rounds
        found = account(*two(rows), suites=speed, race=self.RACE)["precision"]
        assert found["asked"] == {"decode_tps": 0.03}
        q4 = found["variants"]["q4_0"]
        assert q4 == {
            "decode_tps": pytest.approx(math.log(102 / 98) / 2), "ttft_s": pytest.approx(math.log(11 / 9) / 2),
            "speedup": pytest.approx(math.log(202 / 198) / 2), "ttft_ratio": None, "met": True, "extra_rounds": 3,
            "why": "decode_tps ±5%, asked ±3%",
        }  # fmt: skip
        reference = found["variants"]["f16"]
        assert (reference["speedup"], reference["met"], reference["why"]) == (None, None, None)

    @pytest.mark.parametrize(("asked", "met"), [({"decode_tps": 0.01}, False), ({"ttft_s": 0.5}, False)])
    def test_a_wider_or_missing_interval_is_not_met(self, asked: dict[str, float], met: bool) -> None:
        found = account(*two([row(0)]), suites={"speed": {"precision": asked}})["precision"]
        assert found["variants"]["q4_0"]["met"] is met

    def test_a_variant_alone_is_judged_by_its_own_speeds(self) -> None:
        speed = {"speed": {"precision": {"decode_tps": 0.03}}}
        found = account(variant("f16", [row(0)]), suites=speed)["precision"]
        assert found["variants"]["f16"]["met"] is True


def test_warm_up() -> None:
    warm = {"seconds": [0.3, 0.2, 0.2, 0.2, 0.2], "flat": False}
    assert account(variant("f16", [row(0)], warm))["warm_up"] == {"f16": {"flat": False, "n": 5}}
