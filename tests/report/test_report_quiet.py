"""How quiet the machine was, as the page says it."""

from __future__ import annotations

import copy
from typing import Any

from harness.report.page import render
from harness.report.quiet import section

WIDTHS = {"decode_tps": 0.021, "ttft_s": 0.034, "speedup": None, "ttft_ratio": None}


def point(block: int, end: str, bandwidth: float | None, decode: float | None, again: bool = False) -> dict[str, Any]:
    return {"block": block, "end": end, "again": again, "bandwidth": bandwidth, "decode": decode}


QUIET: dict[str, Any] = {
    "quiet": False,
    "sentence": "Not quiet: 3 of 60 trials ran beside other load. Speeds are known to ±2.1% or better.",
    "trials": {
        "n": 60, "contended": 3, "throttled": 0, "disturbed": 3, "repeated": 9, "attempts": 75, "waited_s": 42.4,
    },
    "load": {
        "steal_share": {"median": 0.004, "worst": 0.031, "n": 60},
        "other_share": {"median": 0.01, "worst": 0.4, "n": 60},
        "psi_some_share": None, "wait_share": None,
    },
    "clock": {"least_frequency_ratio": 0.93, "most_temperature_rise_c": 7.0, "throttle_events": 1},
    "sentinel": {
        "rounds": 2, "moved": [1], "run_again": [1], "still_moved": [],
        "course": [
            point(0, "before", 1.0, 1.0), point(0, "after", 1.01, None), point(1, "before", 1.0, 1.0),
            point(1, "after", 0.8, 0.9), point(10_001, "before", 1.0, 1.0, True),
            point(10_001, "after", 1.0, 1.0, True),
        ],
        "memory_bytes_s": {"low": 18.1e9, "median": 20e9, "high": 24.2e9, "n": 4},
        "drift": {
            "bandwidth": {"change": -0.08, "low": -0.11, "high": -0.05, "n": 6, "flagged": True}, "decode": None,
        },
    },
    "warm_up": {"f16": {"flat": True, "n": 5}, "q4_0": {"flat": False, "n": 12}},
    "precision": {
        "asked": {"decode_tps": 0.03},
        "variants": {
            "f16": {**WIDTHS, "met": None, "extra_rounds": 5, "why": None},
            "q4_0": {
                **WIDTHS, "speedup": 0.012, "met": True, "extra_rounds": 5, "why": "decode_tps ±4%, asked ±3%",
            },
        },
    },
}  # fmt: skip


def given(**changes: Any) -> dict[str, Any]:
    found = copy.deepcopy(QUIET) | changes
    return {"quiet": found, "variants": [{"name": "f16", "reference": True}, {"name": "q4_0", "reference": False}]}


def test_finding_facts_and_precision() -> None:
    found = section(given(), ["q4_0", "f16"])
    assert found is not None
    assert found.finding == "Not quiet: 3 of 60 trials ran beside other load."
    assert found.consequence == "Speeds are known to ±2.1% or better."
    assert dict(found.facts) == {
        "Trials": "60 timed; 9 repeated, with 15 more attempts; 3 kept beside other load, 0 throttled",
        "Waited for quiet": "42 s in all",
        "Load, median over trials": "steal 0.4%, at worst 3.1%; other processes 1.0%, at worst 40.0%. Not readable "
        "here: tasks waiting for a CPU, our threads waiting",
        "Clock and heat": "frequency fell to 93% at most within a trial; temperature rose by 7 °C at most; "
        "1 throttle event",
        "Rounds": "over 1 of 2 the machine's speed moved by more than 5%; run again: 1; "
        "the trials that count are of steady ones",
        "Memory around rounds": "20 GB/s in the median, 18.1 GB/s to 24.2 GB/s in 90% of readings; another memory "
        "speed may give other ratios",
        "Drift over the run": "memory bandwidth −8.0% (−11.0% to −5.0%): drifted",
        "Warm-up": "not yet steady when timing began: q4_0 (after 12)",
    }
    assert found.precision is not None and found.asked == "decode_tps ±3.0%"
    assert [c.label for c in found.precision.columns] == ["decode speed", "speed-up", "TTFT", "as asked", "more rounds"]
    q4, f16 = found.precision.rows
    assert [c.text for c in q4.cells] == ["±2.1%", "±1.2%", "±3.4%", "yes", "5"]
    assert q4.cells[-1].spread == "decode_tps ±4%, asked ±3%"
    assert [c.text for c in f16.cells] == ["±2.1%", "—", "±3.4%", "—", "5"] and f16.reference


def test_the_course_is_drawn_told_and_listed() -> None:
    found = section(given(), ["f16", "q4_0"])
    assert found is not None and found.course is not None
    decode, bandwidth = found.course.spec["data"]
    assert decode["y"] == [0.0, None, 0.0, -9.999999999999998, 0.0, 0.0]
    assert bandwidth["text"][3] == "after round 2: memory bandwidth −20.0%"
    assert found.course.rows[1] == ("after round 1", "—", "+1.0%")
    assert found.course.rows[4] == ("before round 2 again", "+0.0%", "+0.0%")
    assert found.course.summary == (
        "The machine's own speed around each round, against its median: decode speed from −10.0% to +0.0%; "
        "memory bandwidth from −20.0% to +1.0%."
    )


def test_what_was_not_recorded_is_said_and_not_drawn() -> None:
    clock = dict.fromkeys(QUIET["clock"])
    trials = {**QUIET["trials"], "waited_s": None}
    precision = {"asked": None, "variants": QUIET["precision"]["variants"]}
    old = section(
        given(sentinel=None, warm_up={"f16": None}, clock=clock, trials=trials, precision=precision), ["f16", "q4_0"]
    )
    assert old is not None and old.course is None and old.asked == ""
    facts = dict(old.facts)
    assert "Waited for quiet" not in facts and "Drift over the run" not in facts
    assert facts["Warm-up"] == "not recorded"
    assert facts["Rounds"] == "the machine's speed around each round was not recorded"
    assert facts["Clock and heat"] == "neither frequency nor temperature can be read here"
    assert old.precision is not None and "as asked" not in [c.label for c in old.precision.columns]


def test_nothing_timed_or_an_older_file() -> None:
    empty = section(
        given(
            trials={**QUIET["trials"], "n": 0, "waited_s": None}, load=dict.fromkeys(QUIET["load"]), sentinel=None,
            precision={"asked": None, "variants": {"f16": dict.fromkeys(WIDTHS) | {"met": None, "extra_rounds": 0}}},
        ),
        ["f16"],
    )  # fmt: skip
    assert empty is not None and empty.precision is None
    assert "Trials" not in dict(empty.facts)
    assert section({"variants": []}, []) is None


def test_on_the_page(results: dict[str, Any], series: dict[str, Any]) -> None:
    assert 'id="quiet"' not in render(results, series)
    page = render({**results, "quiet": QUIET}, series)
    assert 'id="quiet"' in page and 'href="#quiet"' in page
    assert "fig-quiet" in page and "Precision reached" in page
