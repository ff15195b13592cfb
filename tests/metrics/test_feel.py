"""What a reader feels, on scripted streams with bursts, every number worked by hand."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.metrics.feel import (
    band,
    band_text,
    bands,
    completion_by_prompt,
    feel_details,
    feel_figures,
    first_tokens_s,
    reading_wait_s,
    tokens_within,
)
from harness.metrics.request import Trial
from harness.record import Event, Figure, RequestRecord
from harness.stats.interval import share

Spec = tuple[float, int | None]


def record(events: Sequence[Spec], codes: tuple[str, ...] = ()) -> RequestRecord:
    made = tuple(Event(round(t * 1e9), n, 3 * (n or 1)) for t, n in events)
    counts = [n for _, n in events]
    total = None if None in counts else sum(n for n in counts if n is not None)
    return RequestRecord(0, made, 10, total, codes=codes, finish_reason="length")


def steady(first_s: float, gap_s: float, tokens: int = 21) -> RequestRecord:
    return record([(first_s + k * gap_s, 1) for k in range(tokens)])


def trial(block: int, made: RequestRecord, prompt: int = 32, position: int | None = None, **more: bool) -> Trial:
    return Trial(block, block if position is None else position, prompt, made, **more)


def felt(trials: list[Trial]) -> dict[str, Figure]:
    return feel_figures(trials) | feel_details(trials)


# 1, 5, 10 and 18 tokens have arrived at 0.1, 0.15, 0.2 and 0.3 s.
BURSTS = record([(0.1, 1), (0.15, 4), (0.2, 5), (0.3, 8)])


class TestBand:
    def test_each_speed_has_one_name(self) -> None:
        assert [band(v) for v in (1, 49, 50, 99, 100, 150, 151, 299, 300, 900)] == [
            "sluggish", "sluggish", "passable", "passable", "fluent", "fluent", "brisk", "brisk", "instant", "instant",
        ]  # fmt: skip

    def test_an_interval_over_a_limit_says_both(self) -> None:
        assert bands(99.0, 97.0, 101.0) == ("passable", "fluent")
        assert bands(120.0, 101.0, 149.0) == ("fluent",)
        assert bands(320.0, None, None) == ("instant",)
        assert [band_text(bands(v, v - 30, v + 30)) for v in (75.0, 40.0, 125.0)] == [
            "sluggish to fluent",
            "sluggish or passable",
            "passable to brisk",
        ]


class TestCompletion:
    def test_a_burst_brings_all_its_tokens_at_once(self) -> None:
        assert first_tokens_s(BURSTS, 1) == pytest.approx(0.1)
        assert first_tokens_s(BURSTS, 5) == pytest.approx(0.15)
        assert first_tokens_s(BURSTS, 6) == pytest.approx(0.2)
        assert first_tokens_s(BURSTS) == pytest.approx(0.3)  # 16 tokens are in the last burst

    def test_tokens_in_200_ms_include_those_that_arrive_just_then(self) -> None:
        assert tokens_within(BURSTS) == 10
        assert tokens_within(BURSTS, 0.199) == 5
        assert tokens_within(BURSTS, 0.05) == 0

    def test_a_shorter_output_is_waited_for_to_its_end(self) -> None:
        assert first_tokens_s(record([(0.1, 1), (0.4, 6)])) == pytest.approx(0.4)

    def test_unknown_counts_determine_nothing(self) -> None:
        unknown = record([(0.1, 1), (0.15, None), (0.3, 20)])
        assert first_tokens_s(unknown) is None and tokens_within(unknown) is None and reading_wait_s(unknown) is None
        assert first_tokens_s(unknown, 1) == pytest.approx(0.1)  # enough before the count is lost
        assert first_tokens_s(record([])) is None and tokens_within(record([])) is None

    def test_share_and_median_over_requests(self) -> None:
        # 16 tokens are there after 0.1 + 15 x gap: 0.175, 0.2, 0.25 s.
        made = [steady(0.1, gap) for gap in (0.005, 0.1 / 15, 0.01)] * 4
        found = felt([trial(i // 2, r) for i, r in enumerate(made)])
        within = found["completion_share"]
        wanted = share([i % 3 < 2 for i in range(12)], [i // 2 for i in range(12)])
        assert (within.value, within.low, within.high, within.n) == (
            pytest.approx(2 / 3), wanted.low, wanted.high, 12,
        )  # fmt: skip
        assert found["completion_s"].value == pytest.approx(0.2)
        assert found["tokens_in_budget"].value == 16.0
        assert within.conditions["tokens"] == 16 and within.conditions["budget_s"] == 0.2

    def test_requests_of_one_round_are_not_independent(self) -> None:
        good, bad = steady(0.1, 0.005), steady(0.3, 0.005)
        mixed = felt([trial(i // 2, good if i % 2 else bad) for i in range(24)])["completion_share"]
        apart = felt([trial(i // 2, good if i // 2 % 2 else bad) for i in range(24)])["completion_share"]
        assert mixed.value == apart.value == 0.5
        assert (apart.high or 0) - (apart.low or 0) > (mixed.high or 0) - (mixed.low or 0)

    def test_conditions_state_a_completion_that_is_shorter(self) -> None:
        found = felt([trial(b, steady(0.1, 0.01, tokens=8)) for b in range(3)])["completion_s"]
        assert found.value == pytest.approx(0.17) and found.conditions["tokens"] == 8

    def test_by_prompt_length(self) -> None:
        trials = [trial(b, steady(0.5 if b % 2 else 0.1, 0.005), 256 if b % 2 else 32) for b in range(8)]
        (short, quick), (long, slow) = completion_by_prompt(trials)
        assert (short, long) == (32, 256)
        assert (quick["completion_share"].value, slow["completion_share"].value) == (1.0, 0.0)
        assert slow["completion_s"].value == pytest.approx(0.575) and slow["tokens_in_budget"].value == 0.0


class TestReading:
    def test_bursts_by_hand(self) -> None:
        # At 10 tokens/s: due 0, 0.1, 0.5 and 0.9 s after the first; there after 0, 0.5, 1.0 and 1.9 s.
        late = record([(1.0, 1), (1.5, 4), (2.0, 4), (2.9, 2)])
        assert reading_wait_s(late, 10) == pytest.approx(1.0)
        assert reading_wait_s(late, 4) == pytest.approx(0.25)  # due 0.25, 1.25, 2.25
        assert reading_wait_s(late, 2) == 0.0

    def test_a_stream_as_fast_as_the_reader_or_a_single_burst_needs_no_wait(self) -> None:
        assert reading_wait_s(steady(0.5, 0.1), 10) == pytest.approx(0.0, abs=1e-9)
        assert reading_wait_s(record([(3.0, 40)]), 5.5) == 0.0

    def test_a_slow_stream_keeps_the_reader_waiting_all_along(self) -> None:
        # 20 gaps of 0.25 s, read in 20 x 0.1 s.
        assert reading_wait_s(steady(0.5, 0.25), 10) == pytest.approx(3.0)

    @given(st.lists(st.tuples(st.integers(0, 10**9), st.integers(1, 9)), min_size=1, max_size=20), st.floats(0.5, 60.0))
    def test_who_starts_at_once_stalls_as_long_in_all(self, steps: list[tuple[int, int]], tps: float) -> None:
        events, clock = [], 10**9
        for gap, tokens in steps:
            clock += gap
            events.append(Event(clock, tokens, 5))
        ready, stalled = float(events[0].t_ns), 0.0
        for event in events:
            if event.t_ns > ready:
                stalled += event.t_ns - ready
                ready = float(event.t_ns)
            ready += (event.n_tokens or 0) * 1e9 / tps
        found = reading_wait_s(RequestRecord(0, tuple(events), 10, None), tps)
        assert found == pytest.approx(stalled / 1e9, abs=1e-6)

    def test_median_and_p95_over_requests(self) -> None:
        slow, fast = steady(0.5, 0.25), steady(0.5, 0.01)  # 20 x (0.25 - 1 / 5.5) = 1.364 s; none
        found = felt([trial(i // 2, slow if i % 10 == 9 else fast) for i in range(20)])
        assert found["reading_wait_s"].value == 0.0
        assert (found["reading_wait_p95_s"].value, found["reading_wait_p95_s"].reasons) == (
            pytest.approx(20 * (0.25 - 1 / 5.5)),
            (),
        )
        assert found["skimming_wait_p95_s"].value == pytest.approx(20 * (0.25 - 1 / 15))
        few = felt([trial(b, fast) for b in range(19)])["reading_wait_p95_s"]
        assert few.value == 0.0 and few.reasons == ("small_n",)
        assert found["skimming_wait_s"].conditions["reader_tps"] == 15.0


class TestWhatCounts:
    def test_extra_rounds_and_warm_ups_do_not(self) -> None:
        trials = [trial(b, steady(0.1, 0.005)) for b in range(12)]
        more = [trial(20, steady(9.0, 0.5), extra=True), trial(-1, steady(9.0, 0.5))]
        assert felt(trials + more) == felt(trials)
        assert completion_by_prompt(trials + more) == completion_by_prompt(trials)

    def test_disturbed_streams_carry_their_code(self) -> None:
        noisy = record([(0.1 + k * 0.01, 1) for k in range(20)], ("contended",))
        found = felt([trial(b, noisy) for b in range(4)])
        assert all("contended" in figure.reasons and not figure.ranks for figure in found.values())

    def test_one_read_leaves_the_end_alone(self) -> None:
        whole = record([(1.0, 20)], ("not_streamed",))
        found = felt([trial(b, whole) for b in range(12)])
        assert found["agent5_s"].value == pytest.approx(5.0) and found["agent5_s"].ranks
        assert found["completion_s"].reasons == ("not_streamed",)
