"""Speculation figures from scripted counters, every number worked by hand."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from harness.metrics.request import Trial, trial_from_payload
from harness.metrics.speculation import by_position, draft_share
from harness.metrics.speed import speed_figures
from harness.record import Event, RequestRecord

EVENTS = tuple(Event(10**9 * k, 1, 2) for k in range(1, 4))


def trial(block: int, **counters: Any) -> Trial:
    counters = {"drafted": 6, "accepted": 3, "verify_steps": 2, **counters}
    return Trial(block, block, 16, RequestRecord(0, EVENTS, 16, 3, finish_reason="length", **counters))


def test_acceptance_by_place_is_summed_over_requests() -> None:
    """Drafts of 2 and of 3 tokens: places 1 and 2 of both, place 3 of one; place 4 was never drafted."""
    trials = [
        trial(0, drafted_at=(5, 4, 0, 0), accepted_at=(3, 1, 0, 0)),
        trial(1, drafted_at=(5, 5, 2), accepted_at=(4, 2, 2)),
    ]
    assert by_position(trials) == [(7, 10), (3, 9), (2, 2)]
    assert by_position([*trials, replace(trials[0], block=-1)]) == [(7, 10), (3, 9), (2, 2)]  # no warm-ups
    failed = trial(2, drafted_at=(9,), accepted_at=(9,), error="gone")
    assert by_position([*trials, failed]) == [(7, 10), (3, 9), (2, 2)]
    assert by_position([trial(0)]) == []


def test_draft_share_is_pooled_with_the_interval_of_a_ratio() -> None:
    figure = draft_share([trial(0, draft_s=1.0, verify_s=3.0), trial(1, draft_s=3.0, verify_s=1.0)])
    # R = 4/8, residuals -1 and 1, SE = sqrt(2 x 2) / 8 = 0.25, t(1) = 12.7: wider than 0 to 1
    assert (figure.value, figure.low, figure.high, figure.n) == (0.5, 0.0, 1.0, 2)
    even = draft_share([trial(b, draft_s=1.0, verify_s=3.0) for b in range(3)])
    assert (even.value, even.low, even.high) == (0.25, 0.25, 0.25)
    assert draft_share([trial(0, draft_s=0.0, verify_s=0.0)]).reasons == ("undefined",)


def test_rows_of_older_runs_still_read_and_say_what_was_not_recorded() -> None:
    record = {
        "sent_ns": 0, "events": [[10**9, 1, 2, "content", 2], [2 * 10**9, 3, 2, "content", 2]], "prompt_tokens": 16,
        "output_tokens": 4, "drafted": 4, "accepted": 2, "verify_steps": 1, "codes": [],
    }  # fmt: skip
    payload = {"block": 0, "position": 0, "prompt_tokens": 16, "record": record}
    old = speed_figures([trial_from_payload(payload)])
    assert (old["accept_rate"].value, old["accept_len"].value) == (0.5, 3.0)
    assert (old["draft_share"].value, old["draft_share"].reasons) == (None, ("not_measured",))
    new = {"drafted_at": [2, 2], "accepted_at": [1, 1], "draft_s": 0.5, "verify_s": 1.5}
    read = trial_from_payload({**payload, "record": {**record, **new}})
    assert (read.record.drafted_at, read.record.accepted_at) == ((2, 2), (1, 1))
    assert speed_figures([read])["draft_share"].value == 0.25
    plain = {**record, "drafted": None, "accepted": None, "verify_steps": None, **dict.fromkeys(new)}
    assert speed_figures([trial_from_payload({**payload, "record": plain})])["draft_share"].reasons == (
        "no_speculation",
    )


def test_a_figure_of_speculation_has_its_conditions() -> None:
    figure = speed_figures([trial(b, draft_s=1.0, verify_s=1.0) for b in range(2)])["draft_share"]
    assert figure.value == pytest.approx(0.5) and figure.conditions["prompt_tokens"] == [16]
