"""The audit's judgement on hand-worked rows."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.metrics.catalog import METRICS
from harness.suites.lossless import audit, fault, figure, series_row

PLAIN = [5, 6, 7, 8]


def row(
    prompt: str,
    tokens: list[int],
    margins: tuple[float, ...] = (1.0, 0.2, 3.0, 2.0),
    floor: tuple[float | None, ...] = (0.0, 0.1, 0.05, 0.05),
    **more: Any,
) -> dict[str, Any]:
    made = {"prompt": prompt, "tokens": tokens, "plain": PLAIN, "margins": list(margins), "floor": list(floor)}
    return {**made, "batch": 5, "finish_reason": "length", "plain_finish_reason": "length", **more}


def judged(*rows: dict[str, Any]) -> Any:
    found = audit(rows)
    assert found is not None
    return found


def test_equal_texts_are_lossless() -> None:
    found = judged(row("a", PLAIN), row("b", PLAIN))
    assert (found.verdict, found.identical, found.prompts, found.tokens) == ("lossless", 2, 2, 8)
    assert fault(found) is None
    shown = figure(found)
    assert (shown.value, shown.n, shown.ranks) == (1.0, 2, True)
    assert shown.low == pytest.approx(2 / (2 + 1.959964**2))  # Wilson with no failure: n / (n + z^2)
    assert shown.conditions == {"divergences": 0, "floor_max": 0.1, "widest_margin": None, "verdict": "lossless"}


def test_a_parting_within_twice_the_floor_is_a_near_tie() -> None:
    """Margin 0.2 where the largest change is 0.1: exactly twice."""
    found = judged(row("a", [5, 9, 9, 9]), row("b", PLAIN))
    assert (found.verdict, found.identical) == ("near ties only", 1)
    assert [(p.prompt, p.index, p.margin, p.explained) for p in found.partings] == [("a", 1, 0.2, True)]
    assert fault(found) is None and figure(found).ranks
    assert (figure(found).value, figure(found).conditions["widest_margin"]) == (0.5, 0.2)


def test_the_floor_is_the_largest_over_all_prompts() -> None:
    alone = judged(row("a", [5, 9, 9, 9], floor=(0.0, 0.09, 0.0, 0.0)))
    assert alone.verdict == "fault"
    with_other = judged(row("a", [5, 9, 9, 9], floor=(0.0, 0.09, 0.0, 0.0)), row("b", PLAIN))
    assert with_other.verdict == "near ties only"


def test_a_wider_margin_is_a_fault_with_all_that_shows_it() -> None:
    found = judged(row("a", [5, 9, 7, 8]), row("b", [5, 6, 9, 8]), row("c", [1, 6, 7, 8]))
    assert (found.verdict, found.identical) == ("fault", 0)
    assert [p.explained for p in found.partings] == [True, False, False]
    assert fault(found) == ("speculation changed the output: prompt b, token 2: margin 3, noise floor 0.1 (and 1 more)")
    shown = figure(found)
    assert (shown.value, shown.reasons, shown.ranks) == (0.0, ("lossy_speculation",), False)
    assert shown.conditions["widest_margin"] == 3.0


def test_without_any_noise_only_an_exact_tie_is_explained() -> None:
    silent = (0.0, 0.0, 0.0, 0.0)
    assert judged(row("a", [5, 9, 7, 8], floor=silent)).verdict == "fault"
    assert judged(row("a", [5, 9, 7, 8], margins=(1, 0, 1, 1), floor=silent)).verdict == "near ties only"


def test_another_length_is_a_fault() -> None:
    found = judged(row("a", PLAIN[:2]), row("b", [*PLAIN, 1], margins=(1.0, 0.0, 0.0, 0.0)))
    assert [(p.index, p.margin, p.explained) for p in found.partings] == [(2, 3.0, False), (4, None, False)]
    only = judged(row("b", [*PLAIN, 1]))
    assert fault(only) == (
        "speculation changed the output: prompt b, token 4: the text has another length, noise floor 0.1"
    )


@pytest.mark.parametrize(
    "bad",
    [{"floor": (0.0, None, 0.0, 0.0)}, {"finish_reason": "nonfinite"}, {"plain_finish_reason": "nonfinite"}],
)
def test_logits_that_are_not_finite_give_no_figure(bad: dict[str, Any]) -> None:
    found = judged(row("a", PLAIN, **bad), row("b", PLAIN))
    assert (figure(found).value, figure(found).reasons) == (None, ("nonfinite",))


def test_nothing_audited() -> None:
    assert audit([]) is None and fault(None) is None
    assert figure(None).reasons == ("not_measured",)
    assert METRICS["audit_identical"].group == "speculation"


def test_the_row_for_readers_is_strict_json() -> None:
    shown = series_row("q4_0+draft", judged(row("a", [5, 9, 9, 9]), row("b", PLAIN)))
    assert json.loads(json.dumps(shown, allow_nan=False)) == {
        "variant": "q4_0+draft", "prompts": 2, "tokens": 8, "identical": 1,
        "divergences": [{"prompt": "a", "index": 1, "margin": 0.2, "explained": True}],
        "floor": {"max": 0.1, "mean": pytest.approx(0.05), "n": 8}, "verdict": "near ties only",
    }  # fmt: skip


TOKENS = st.lists(st.integers(0, 3), min_size=4, max_size=4)
NUMBERS = st.lists(st.floats(0, 2), min_size=4, max_size=4)


@given(st.lists(st.tuples(TOKENS, TOKENS, NUMBERS, NUMBERS), min_size=1, max_size=5))
def test_the_verdict_is_that_of_the_widest_margin(texts: list[Any]) -> None:
    rows = [row(str(i), t, tuple(m), tuple(f), plain=p) for i, (t, p, m, f) in enumerate(texts)]
    found = judged(*rows)
    widest = found.widest_margin
    assert (found.verdict == "lossless") == all(t == p for t, p, _, _ in texts) == (widest is None)
    if widest is not None:
        assert (found.verdict == "fault") == (widest > 2 * max(max(f) for *_, f in texts))
    assert found.identical + len(found.partings) == found.prompts == len(rows)
