"""The section on speculation: the heat map, the drafts by place, the audit, and what is left of it without data."""

from __future__ import annotations

from typing import Any

import pytest

from harness.record import CODES
from harness.report.heat import HeatCell
from harness.report.model import build
from harness.report.page import render
from harness.report.speculation import Section


def section(results: Any, series: Any) -> Section:
    found = build(results, series).speculation
    assert found is not None
    return found


def cells(results: Any, series: Any) -> dict[tuple[str, str], HeatCell]:
    heat = section(results, series).heat
    assert heat is not None
    names = [name for name, _ in heat.drafts]
    return {(target, draft): one for target, _, row in heat.rows for draft, one in zip(names, row, strict=True)}


def test_a_cell_is_coloured_by_the_side_of_1_its_interval_is_on(results: Any, series: Any) -> None:
    series["audit"] = []
    found = cells(results, series)
    assert {key: (one.tone, one.sign) for key, one in found.items()} == {
        ("f16", "lookup"): ("faster", "▲"),
        ("f16", "draft"): ("slower", "▼"),
        ("q8_0", "lookup"): ("even", "≈"),
        ("q8_0", "draft"): ("none", ""),
        ("q4_0", "lookup"): ("none", ""),
        ("q4_0", "draft"): ("none", ""),
    }
    gain, loss = found["f16", "lookup"], found["f16", "draft"]
    assert (gain.text, gain.spread, gain.accepted) == ("1.14x", "[1.04, 1.25]", "25% accepted")
    assert gain.title == ("f16+lookup: 1.14 ± 0.11x; n = 18; 1.75 tokens per verification; up to 4 drafted, adaptive")
    assert (gain.strength, loss.strength) == (28, 60)  # 20 + 40 |log2|: log2 of 1.14 is 0.189, of 0.5 is -1


def test_a_blank_cell_says_why(results: Any, series: Any) -> None:
    found = cells(results, series)
    assert (found["q8_0", "draft"].text, found["q8_0", "draft"].why) == ("—", "the worker died")
    assert (found["q4_0", "draft"].why, found["q4_0", "draft"].title) == (
        "not run",
        "the suite that gives this figure was not run",
    )


def test_a_speed_up_of_another_text_is_no_gain(results: Any, series: Any) -> None:
    series["speculation"]["cells"][1]["speedup"] |= {"value": 1.9, "low": 1.8, "high": 2.0}
    found = cells(results, series)["f16", "draft"]
    assert (found.tone, found.strength, found.sign, found.why) == ("fault", 0, "✕", "FAULT: it changed the text")
    heat = section(results, series).heat
    assert heat is not None
    assert heat.words == "What pays on f16: lookup (1.14x); on q8_0: nothing."


def test_a_speed_up_with_a_doubt_is_not_coloured(results: Any, series: Any) -> None:
    series["speculation"]["cells"][0]["why"] = CODES["contended"]
    found = cells(results, series)["f16", "lookup"]
    assert (found.tone, found.strength, found.why) == ("doubt", 0, CODES["contended"])
    heat = section(results, series).heat
    assert heat is not None
    assert heat.words == "What pays on f16: cannot tell; on q8_0: nothing."


def test_a_fault_is_said_even_where_there_is_no_speed_up(results: Any, series: Any) -> None:
    series["speculation"]["cells"][1]["speedup"] = None
    found = cells(results, series)["f16", "draft"]
    assert (found.tone, found.text, found.why) == ("fault", "—", "FAULT: it changed the text")


@pytest.mark.parametrize(("value", "tone"), [(1.02, "even"), (0.98, "even"), (1.05, "faster"), (0.95, "slower")])
def test_without_an_interval_a_difference_must_matter(results: Any, series: Any, value: float, tone: str) -> None:
    series["speculation"]["cells"][0]["speedup"] = {"value": value, "low": None, "high": None, "n": 1}
    found = cells(results, series)["f16", "lookup"]
    assert (found.tone, found.spread) == (tone, "")


def test_targets_and_drafts_are_headed(results: Any, series: Any) -> None:
    heat = section(results, series).heat
    assert heat is not None
    assert heat.drafts == (("lookup", "up to 4 drafted, adaptive"), ("draft", "4 drafted"))
    assert next((target, alone) for target, alone, _ in heat.rows) == ("f16", "94.2 tokens/s alone")
    series["speculation"]["cells"][1]["tokens"] = 8
    heat = section(results, series).heat
    assert heat is not None
    assert heat.drafts[1] == ("draft", "")  # 8 on one target, 4 on the other


def test_acceptance_by_place_has_its_counts(results: Any, series: Any) -> None:
    found = section(results, series)
    by_name = {step.name: step for step in found.steps}
    assert set(by_name) == {"f16+lookup", "f16+draft", "q8_0+lookup"}  # q8_0+draft drafted nothing
    assert by_name["f16+draft"].places == ((75, 40), (25, 32))
    assert (by_name["f16+draft"].drafting, by_name["f16+lookup"].drafting) == (40, None)
    assert (by_name["f16+draft"].color, by_name["f16+draft"].shape) == ("ink", "square")
    assert (found.places, found.timed) == (2, True)
    series["speculation"]["cells"][1]["by_position"] = [{"accepted": 0, "drafted": 0}, {"accepted": 1, "drafted": 3}]
    step = next(step for step in section(results, series).steps if step.name == "f16+draft")
    assert step.places == (None, (33, 3))


def test_the_audit_in_plain_words_faults_first(results: Any, series: Any) -> None:
    fault, near, same, blank = section(results, series).findings
    assert (fault.name, fault.verdict, fault.tone) == ("f16+draft", "FAULT", "fault")
    assert fault.lines == (
        ("", "The same text as without speculation in 2 of 4 prompts, 256 tokens in all."),
        (
            "fault",
            "Parted after 41 tokens of ‘p2’, where the two best tokens were 2.1 nats apart; noise floor 0.35: FAULT, "
            "not a near tie.",
        ),
        (
            "",
            "Parted after 1 token of ‘p1’, where the two best tokens were 0.50 nats apart; noise floor 0.35: a near "
            "tie, not a fault.",
        ),
    )
    assert (near.verdict, near.tone, len(near.lines)) == ("near ties only", "open", 2)
    assert (same.name, same.verdict, same.tone, len(same.lines)) == ("f16+lookup", "lossless", "yes", 1)
    assert (blank.name, blank.verdict, blank.tone) == ("q8_0+draft", "not audited", "none")
    assert blank.lines == (("", "The suite that gives this figure was not run."),)


def test_many_partings_are_counted_and_odd_ones_told(results: Any, series: Any) -> None:
    parting = {"prompt": "p", "index": 3, "margin": 0.1, "explained": True}
    row = series["audit"][0]
    row |= {"divergences": [parting] * 5 + [{**parting, "margin": None, "explained": False}], "verdict": "fault"}
    row["floor"] = {"max": None, "mean": None, "n": 0}
    found = next(one for one in section(results, series).findings if one.name == "f16+lookup")
    assert found.lines[1] == ("fault", "Parted after 3 tokens of ‘p’, where one text ends: FAULT.")
    assert "noise floor not measured: a near tie" in found.lines[2][1]
    assert found.lines[-1] == ("", "And 2 more.")
    assert len(found.lines) == 6


def test_the_page_shows_all_of_it(results: Any, series: Any) -> None:
    page = render(results, series)
    for text in ("1.14x", "[1.04, 1.25]", "25% accepted", "draft 40%, verify 60%", "n 40", "near ties only", "FAULT"):
        assert text in page
    assert 'class="slower" style="--s:60%"' not in page  # f16+draft is a fault, so its colour says nothing
    assert 'class="faster" style="--s:28%"' in page


@pytest.mark.parametrize("gone", [("speculation",), ("audit",), ("speculation", "audit")])
def test_what_was_not_measured_is_not_shown(results: Any, series: Any, gone: tuple[str, ...]) -> None:
    for key in gone:
        series[key] = None
    found = section(results, series)
    assert (found.heat is None, found.findings == ()) == ("speculation" in gone, "audit" in gone)
    assert (found.steps == ()) == ("speculation" in gone)
    page = render(results, series)
    assert ("How far the drafts hold" in page) == ("speculation" not in gone)
    assert ("Is the text the same?" in page) == ("audit" not in gone)


def test_bare_cells_are_no_error(results: Any, series: Any) -> None:
    bare = {"target": "f16", "draft": "draft", "variant": "f16+draft", "speedup": None, "why": None}
    series["speculation"]["cells"] = [bare]
    assert section(results, series).heat is None
    render(results, series)


def test_without_a_variant_that_speculates_there_is_no_section(results: Any, series: Any) -> None:
    results["variants"] = [v for v in results["variants"] if "+" not in v["name"]]
    assert build(results, series).speculation is None
    assert 'id="speculation"' not in render(results, series)
