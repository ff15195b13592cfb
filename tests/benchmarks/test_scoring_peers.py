from __future__ import annotations

import numpy as np
import pytest


@pytest.fixture
def peers():
    from benchmarks import scoring_peers

    return scoring_peers


def questions(golds):
    from benchmarks.mmlu_requests import Question

    return [Question(f"s/{i}", gold, (), ()) for i, gold in enumerate(golds)]


OURS = np.array([[-1.0, -9.0, -3.0, -4.0], [-2.0, -1.0, -3.0, -4.0], [-1.0, -5.0, -6.0, -7.0]])


def test_an_option_that_the_peer_did_not_score_is_counted_and_not_compared(peers):
    theirs = np.array([[-1.5, 0.0, -3.0, -4.0], [-2.0, -3.0, -3.25, -4.0], [-1.0, -5.0, -6.0, -7.0]])
    found, lines = peers.agreement(OURS, theirs, questions([0, 1, 0]))
    assert (found["options_unscored_by_peer"], found["options_compared"]) == (1, 11)
    assert found["largest_difference_nats"] == 2.0  # of s/1, option B; the unscored one would make it 9
    assert found["mean_difference_nats"] == pytest.approx((0.5 + 2.0 + 0.25) / 11)
    assert (found["answers_compared"], found["equal_choices"]) == (2, 0.5)
    assert found["accuracy_ours"] == 1.0 and found["accuracy_peer"] == pytest.approx(1 / 3)
    assert lines == ["s/1: B ours, A peer; margins 1.0000 and 1.0000 nats"]
    assert found["differences_at_near_ties"] == 0.0


def test_with_nothing_to_compare_equality_is_unknown(peers):
    found, lines = peers.agreement(OURS, np.zeros_like(OURS), questions([0, 1, 0]))
    assert found["largest_difference_nats"] is None and found["equal_choices"] is None and not lines
