"""Scores with the variant's own noise floor beside them."""

from __future__ import annotations

import math
from typing import Any

import pytest

from harness.results import derive
from harness.results.model import PartRows

from .test_derive import by_name, doc, run, variant


def parts(kl: float, floor: float, largest: float, docs: list[dict[str, Any]]) -> dict[tuple[str, str], PartRows]:
    """Rows of 64 positions with a constant divergence and floor."""
    far = {"start": 0, "kl": [kl] * 64, "top1": [1] * 60 + [0] * 4, "finite": True}
    own = {"start": 0, "kl": [floor] * 64, "top1": [1] * 63 + [0], "largest": [largest] * 64, "finite": True}
    return {
        ("fidelity", "kl"): PartRows((far,), "done", None, False),
        ("fidelity", "floor"): PartRows((own,), "done", None, False),
        ("mmlu", "docs"): PartRows(tuple(docs), "done", None, False),
    }


def answers(*leads: float) -> list[dict[str, Any]]:
    """A question for each number: how far answer 0 is ahead of answer 1."""
    made = []
    for number, lead in enumerate(leads):
        row = doc(number, lead > 0) | {"logprobs": [-2.0, -2.0 - lead, -9.0, -9.0]}
        made.append(row)
    return made


@pytest.mark.parametrize(("kl", "within"), [(0.003, True), (0.05, None)])
def test_a_score_shows_its_floor_and_the_flips_it_explains(kl: float, within: bool | None) -> None:
    """Four answers of the variant changed; sqrt(2) x 0.3 = 0.42 explains the first two."""
    base = parts(0.0, 1e-6, 0.01, answers(1.0, 0.2, 1.0, 1.0, 1.0, 1.0))
    ours = parts(kl, 0.004, 0.3, answers(-0.4, -2.0, -0.5, -2.0, 1.0, 1.0))
    results, drawn = derive(run(variant("f16", 0.02, 0, replace=base), variant("q8_0", 0.01, 0, replace=ours)))
    figures = by_name(results)["q8_0"]["metrics"]
    assert figures["kl_floor"]["value"] == pytest.approx(0.004)
    assert figures["kl_mean"]["conditions"] == {"floor": figures["kl_floor"]["value"]} | (
        {"within_noise": True} if within else {}
    )
    assert figures["top1_agreement"]["conditions"] == {"floor": 63 / 64}
    assert figures["mmlu_flips"]["conditions"] == {"floor": 0.3, "flipped": 4, "near_ties": 2}
    assert [(flip["doc_id"], flip["near_tie"]) for flip in drawn["flips"]] == [
        (0, True), (1, True), (2, False), (3, False),
    ]  # fmt: skip
    assert drawn["flips"][0]["limit"] == pytest.approx(0.3 * math.sqrt(2))
    reference = by_name(results)["f16"]["metrics"]
    assert reference["kl_floor"]["value"] == pytest.approx(1e-6) and "within_noise" not in str(reference)
    assert reference["mmlu_flips"]["conditions"] == {"floor": 0.01}


def test_a_speculating_variant_has_the_floor_of_its_weights() -> None:
    rows = parts(0.0, 1e-6, 0.01, answers(1.0, 1.0))
    shared = {key: PartRows(part.rows, "done", None, True) for key, part in rows.items()}
    results, _ = derive(run(variant("f16", 0.02, 0, replace=rows), variant("f16+lookup", 0.01, 0, replace=shared)))
    figure = by_name(results)["f16+lookup"]["metrics"]["kl_floor"]
    assert figure["value"] == pytest.approx(1e-6) and figure["reasons"] == ["shared_scoring"]


def test_without_a_floor_nothing_is_said_of_noise() -> None:
    results, drawn = derive(run(variant("f16", 0.02, 60), variant("q8_0", 0.01, 59)))
    figures = by_name(results)["q8_0"]["metrics"]
    assert figures["kl_floor"]["reasons"] == ["not_measured"]
    assert figures["mmlu_flips"]["conditions"] == {}
    assert [flip["near_tie"] for flip in drawn["flips"]] == [None]
