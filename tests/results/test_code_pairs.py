"""Code with and without speculation: shares, difference and partings by hand."""

from __future__ import annotations

from typing import Any

import pytest

from harness.metrics.quality import delta_interval
from harness.report.code_pairs import grid
from harness.results.code_pairs import pair, parting
from harness.results.model import VariantRun
from harness.stats.interval import wilson
from harness.suites.code_syntax.check import Verdict
from harness.suites.code_syntax.prompt import Prompt
from harness.suites.code_syntax.score import Judged

TWIN = VariantRun("f16", True, "f16", {"speculate": {"kind": "none"}}, {}, {})


def one(name: str, status: Any, tokens: list[int] | None) -> Judged:
    row = {"prompt": name} if tokens is None else {"prompt": name, "tokens": tokens}
    return row, Prompt(name, "c", "f", "", ()), Verdict(True, status)


def test_shares_difference_and_partings() -> None:
    mine = [
        one("a", "parsed", [1, 2, 3]), one("b", "invalid", [1, 2, 9]), one("c", "truncated", [7]),
        one("d", "parsed", [4, 4, 5]), one("only", "parsed", [1]),
    ]  # fmt: skip
    theirs = [one("d", "parsed", [4, 4]), one("b", "parsed", [1, 2, 3]), one("a", "parsed", [1, 2, 3])]
    theirs.append(one("c", "parsed", [8, 1]))
    found = pair(mine, theirs, TWIN)
    assert (found["plain"], found["n"], found["why"]) == ("f16", 4, None)
    assert found["with"] == {"value": 0.5, "low": wilson(2, 4).low, "high": wilson(2, 4).high, "n": 4}
    assert found["without"]["value"] == 1.0
    _, low, high = delta_interval([0, -1, -1, 0], range(4))
    assert found["difference"] == {"value": -0.5, "low": low, "high": high, "n": 4}
    assert found["parted"] == [{"prompt": "b", "token": 2}, {"prompt": "c", "token": 0}]
    assert (found["parted_of"], found["first_parting"]) == (4, 1)
    table = grid([{"variant": "f16+lookup", **found}])
    assert table is not None
    assert [cell.text for cell in table.rows[0].cells] == ["50", "100", "-50", "2/4", "1"]
    assert "b after 2; c after 0" in table.rows[0].cells[3].title


def test_no_change_is_no_certainty() -> None:
    same = [one(str(i), "parsed", [i]) for i in range(32)]
    found = pair(same, same, TWIN)
    assert found["difference"]["value"] == 0 and found["difference"]["low"] < 0 < found["difference"]["high"]
    assert found["parted"] == [] and found["first_parting"] is None


@pytest.mark.parametrize(
    ("theirs", "twin", "why"),
    [
        (None, None, "the same settings without speculation are not in this run"),
        (None, TWIN, "f16 has no programs"),
        ([one("b", "parsed", [1])], TWIN, "no prompt was answered by both"),
    ],
)
def test_what_cannot_be_paired_says_why(theirs: Any, twin: Any, why: str) -> None:
    found = pair([one("a", "parsed", [1])], theirs, twin)
    assert (found["why"], found["n"], found["difference"]) == (why, 0, None)
    table = grid([{"variant": "v", **found}])
    assert table is not None and all(cell.missing and cell.title == why for cell in table.rows[0].cells)


def test_rows_without_tokens_keep_their_shares() -> None:
    found = pair([one("a", "parsed", None)], [one("a", "invalid", [1])], TWIN)
    assert (found["difference"]["value"], found["parted_of"]) == (1.0, 0)
    assert found["why"] == "the rows hold no tokens"


def test_parting_is_the_first_token_that_differs() -> None:
    assert parting([1, 2, 3], [1, 5, 3]) == 1
    assert parting([1, 2], [1, 2, 3]) is None and parting([], [1]) is None
