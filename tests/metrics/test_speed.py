"""Speed figures on scripted events, every number worked by hand."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.metrics import request
from harness.metrics.speed import (
    Trial,
    block_log_rates,
    block_log_ttft,
    speed_figures,
    speedup,
    tps_by_prompt,
    trial_from_payload,
    ttft_by_prompt,
)
from harness.metrics.trials import around, prompt_groups, usable
from harness.record import Event, EventKind, RequestRecord
from harness.stats.compare import launches

Spec = tuple[float, int | None] | tuple[float, int | None, EventKind]


def record(
    events: Sequence[Spec],
    output: int | None = None,
    *,
    codes: tuple[str, ...] = (),
    finish: str | None = "stop",
    error: str | None = None,
    cached: int = 0,
    drafted: int | None = None,
    accepted: int | None = None,
    steps: int | None = None,
) -> RequestRecord:
    made = []
    for t, n, *kind in events:
        which: EventKind = kind[0] if kind else "content"
        chars = 0 if which in ("role", "usage") else 4 * (n or 1)
        made.append(Event(round(t * 1e9), n, chars, which, 2 * chars))
    return RequestRecord(
        0,
        tuple(made),
        10,
        output,
        codes=codes,
        finish_reason=finish,
        error=error,
        cached_tokens=cached,
        drafted=drafted,
        accepted=accepted,
        verify_steps=steps,
    )


def steady(tps: float, *, ttft: float = 0.5, tokens: int = 65, codes: tuple[str, ...] = ()) -> RequestRecord:
    return record([(ttft + k / tps, 1) for k in range(tokens)], tokens, codes=codes)


def trial(block: int, rec: RequestRecord, prompt: int = 128, position: int = 0) -> Trial:
    return Trial(block, position, prompt, rec)


class TestStreamCases:
    def test_tokens_come_from_usage_not_from_chunks(self) -> None:
        times = (1.0, 1.2, 1.4, 1.6)
        unknown = record([(t, None) for t in times], 20)
        first_known = record([(1.0, 5), *[(t, None) for t in times[1:]]], 20)
        assert request.decode_tps(unknown) == pytest.approx(19 / 0.6)
        assert request.decode_tps(unknown) == pytest.approx(31.7, abs=0.05)
        assert request.decode_tps(first_known) == pytest.approx(25.0)
        assert request.tokens_per_chunk(unknown) == 5.0

    def test_role_chunk_does_not_start_ttft(self) -> None:
        rec = record([(0.005, None, "role"), (0.214, 1), (0.264, 1), (0.314, 1)], 3)
        assert request.ttft_s(rec) == pytest.approx(0.214)
        assert request.icl_s(rec) == pytest.approx([0.05, 0.05])

    def test_empty_content_chunk_does_not_start_ttft(self) -> None:
        rec = RequestRecord(0, (Event(5_000_000, None, 0), Event(214_000_000, None, 3)), 10, 1)
        assert request.ttft_s(rec) == pytest.approx(0.214)

    def test_one_character_of_unknown_tokens_counts(self) -> None:
        rec = RequestRecord(0, (Event(214_000_000, None, 1), Event(300_000_000, None, 1)), 10, 2)
        assert request.ttft_s(rec) == pytest.approx(0.214)
        assert request.bytes_per_s(rec) is None

    def test_token_without_a_whole_character_counts(self) -> None:
        rec = RequestRecord(0, (Event(100_000_000, 1, 0), Event(200_000_000, 1, 1)), 10, 2)
        assert request.ttft_s(rec) == pytest.approx(0.1)

    def test_decode_and_end_to_end_speed_are_two_figures(self) -> None:
        rec = record([(1.0, 1), (5.0, 99)], 100)
        assert request.decode_tps(rec) == pytest.approx(24.75)
        assert request.output_tps(rec) == pytest.approx(20.0)

    def test_usage_tail_neither_ends_nor_gaps(self) -> None:
        rec = record([(0.5, 1), (0.6, 1), (0.7, 1), (1.5, None, "usage")], 3)
        assert request.output_tokens(rec) == 3
        assert request.e2e_s(rec) == pytest.approx(0.7)
        assert request.icl_s(rec) == pytest.approx([0.1, 0.1])

    def test_bursts_keep_chunk_gaps_and_token_means_apart(self) -> None:
        rec = record([(1.0, 1), (1.3, 3), (1.6, 3), (1.9, 3)], 10)
        assert request.icl_s(rec) == pytest.approx([0.3, 0.3, 0.3])
        assert request.token_gap_s(rec) == pytest.approx([0.1] * 9)
        assert request.itl_s(rec) is None
        assert request.tokens_per_chunk(rec) == 2.5
        assert request.tpot_s(rec) == pytest.approx(0.1)
        assert request.playout_lag_s(rec) == pytest.approx(0.2)

    def test_load_is_in_neither_mean_nor_tail(self) -> None:
        cold = trial(-1, record([(9.5, 1), (9.6, 1)], 2))
        warm = [trial(b, record([(0.4, 1), (0.5, 1)], 2)) for b in range(9)]
        assert request.e2e_s(cold.record) == pytest.approx(9.6)  # all ten together: 1.41
        figures = speed_figures([cold, *warm])
        assert figures["e2e_s"].value == pytest.approx(0.5)
        assert figures["e2e_s"].high == pytest.approx(0.5)
        assert figures["e2e_s"].n == 9

    def test_failed_stream_is_no_fast_request(self) -> None:
        good = [trial(b, record([(1.0, 1), (2.0, 9)], 10)) for b in range(4)]
        bad = trial(4, record([(0.1, 1), (0.11, 1), (0.12, 1)], 300, error="overloaded", finish="error"))
        cut = trial(5, record([(0.1, 1), (0.11, 1)], 300, codes=("truncated",), finish=None))
        figure = speed_figures([*good, bad, cut])["decode_tps"]
        assert figure.value == pytest.approx(9.0)
        assert figure.conditions["excluded"] == {"error": 1, "truncated": 1}
        assert figure.ranks


class TestRequest:
    def test_nothing_arrived(self) -> None:
        rec = record([(0.1, None, "role")], None)
        for function in (
            request.ttft_s,
            request.e2e_s,
            request.tpot_s,
            request.decode_tps,
            request.output_tps,
            request.peak_tps,
            request.icl_s,
            request.icl_s,
            request.stalls,
            request.playout_lag_s,
            request.chars_per_s,
            request.bytes_per_s,
            request.tokens_per_chunk,
        ):
            assert function(rec) is None

    def test_one_burst_has_no_decode_speed(self) -> None:
        rec = record([(1.0, 20)], 20)
        assert request.tpot_s(rec) is None
        assert request.output_tps(rec) == pytest.approx(20.0)

    def test_event_before_the_request_is_a_fault(self) -> None:
        with pytest.raises(ValueError, match="before the request"):
            request.ttft_s(RequestRecord(10, (Event(5, 1, 1),), 1, 1))

    def test_reasoning_starts_ttft_but_not_the_answer(self) -> None:
        rec = record([(0.2, 1, "reasoning"), (0.4, 1, "content"), (0.5, 1)], 3)
        assert request.ttft_s(rec) == pytest.approx(0.2)
        assert request.answer_ttft_s(rec) == pytest.approx(0.4)
        assert request.answer_ttft_s(record([(0.2, 1, "reasoning")], 1)) is None

    def test_peak_is_the_best_window(self) -> None:
        slow = [(1.0 + 0.1 * k, 1) for k in range(33)]
        fast = [(4.2 + 0.01 * k, 1) for k in range(1, 33)]
        assert request.peak_tps(record([*slow, *fast], 65)) == pytest.approx(100.0)
        assert request.peak_tps(record(slow[:32], 32)) is None
        assert request.peak_tps(record([(1.0, None), (2.0, None)], 100)) is None

    @given(st.lists(st.tuples(st.floats(0.001, 1.0), st.integers(1, 9)), min_size=2, max_size=60))
    def test_peak_is_never_below_the_average(self, steps: list[tuple[float, int]]) -> None:
        t, events = 0.0, []
        for gap, n in steps:
            t += gap
            events.append((t, n))
        rec = record(events, sum(n for _, n in steps))
        tokens, peak, mean = request.decode_tokens(rec), request.peak_tps(rec), request.decode_tps(rec)
        if tokens is not None and tokens >= 32:
            assert peak is not None and mean is not None and peak >= mean * (1 - 1e-9)
        else:
            assert peak is None

    @given(st.lists(st.tuples(st.floats(0.001, 1.0), st.integers(1, 9)), min_size=2, max_size=40))
    def test_reader_waits_at_least_for_the_biggest_burst(self, steps: list[tuple[float, int]]) -> None:
        t, events = 0.0, []
        for gap, n in steps:
            t += gap
            events.append((t, n))
        rec = record(events, sum(n for _, n in steps))
        lag, tpot = request.playout_lag_s(rec), request.tpot_s(rec)
        assert lag is not None and tpot is not None
        assert lag >= (steps[-1][1] - 1) * tpot - 1e-9

    def test_stalls(self) -> None:
        rec = record([(0.1 * k, 1) for k in range(1, 11)] + [(2.5, 1)], 11)
        assert request.stalls(rec) == (1, pytest.approx(1.5))
        assert request.stalls(record([(0.1, 1), (0.11, 1), (0.34, 1)], 3)) == (0, 0)

    def test_text_rates_start_after_the_first_event(self) -> None:
        rec = record([(1.0, 1), (2.0, 1), (3.0, 1)], 3)
        assert request.chars_per_s(rec) == pytest.approx(4.0)
        assert request.bytes_per_s(rec) == pytest.approx(8.0)

    def test_acceptance_comes_from_counters(self) -> None:
        rec = record([(1.0, 1), (2.0, 9)], 10, drafted=168, accepted=98, steps=28)
        assert request.accept_rate(rec) == pytest.approx(98 / 168)
        assert request.accept_len(rec) == pytest.approx(1 + 98 / 28)
        assert request.accept_rate(record([(1.0, 1)], 1)) is None

    def test_payload_round_trip(self) -> None:
        payload = {
            "block": 2,
            "position": 7,
            "prompt_tokens": 10,
            "attempt": 1,
            "energy": [],
            "contention": {},
            "record": {
                "sent_ns": 5,
                "events": [[7, 1, 3, "content", 4]],
                "prompt_tokens": 10,
                "output_tokens": 1,
                "codes": ["contended"],
                "finish_reason": "stop",
            },
        }
        made = trial_from_payload(payload)
        assert made.record.events == (Event(7, 1, 3, "content", 4),)
        assert (made.block, made.position, made.record.codes) == (2, 7, ("contended",))


class TestPooling:
    def test_rate_is_tokens_over_time_not_the_mean_of_rates(self) -> None:
        trials = [trial(0, record([(1.0, 1), (2.0, 10)], 11)), trial(1, record([(1.0, 1), (5.0, 10)], 11))]
        figure = speed_figures(trials)["decode_tps"]
        assert figure.value == pytest.approx(20 / 5)
        logs = [math.log(10.0), math.log(2.5)]
        half = 12.7062047 * (logs[0] - logs[1]) / 2
        assert figure.low == pytest.approx(4 * math.exp(-half), rel=1e-6)
        assert figure.high == pytest.approx(4 * math.exp(half), rel=1e-6)

    def test_a_block_without_its_slow_prompt_does_not_look_fast(self) -> None:
        trials = [trial(b, steady(100), 128) for b in range(4)] + [trial(b, steady(50), 2048) for b in range(3)]
        figure = speed_figures(trials)["decode_tps"]
        assert figure.value == pytest.approx(7 * 64 / (4 * 0.64 + 3 * 1.28))
        assert figure.low == pytest.approx(figure.value, rel=1e-6)

    def test_one_request_has_no_interval(self) -> None:
        for key in ("decode_tps", "ttft_s", "e2e_s", "stall_s"):
            figure = speed_figures([trial(0, steady(100))])[key]
            assert (figure.low, figure.high, figure.reasons) == (None, None, ("small_n",)), key

    def test_lengths_measured_once_claim_no_certainty(self) -> None:
        figure = speed_figures([trial(0, steady(100), 128), trial(1, steady(50), 512)])["decode_tps"]
        assert (figure.low, figure.high) == (None, None)

    def test_one_block_falls_back_to_requests(self) -> None:
        figure = speed_figures([trial(0, steady(v)) for v in (90, 100, 110)])["decode_tps"]
        assert figure.low is not None and figure.value is not None and figure.low < figure.value
        assert figure.reasons == ("small_n",) and figure.ranks

    def test_median_interval_from_blocks(self) -> None:
        values = [0.10, 0.11, 0.12]
        figure = speed_figures([trial(b, steady(100, ttft=v)) for b, v in enumerate(values)])["ttft_s"]
        logs = [math.log(v) for v in values]
        mean = sum(logs) / 3
        half = 4.30265273 * math.sqrt(sum((x - mean) ** 2 for x in logs) / 2 / 3)
        assert figure.value == pytest.approx(0.11)
        assert figure.low == pytest.approx(0.11 * math.exp(-half), rel=1e-6)

    def test_conditions_say_what_it_holds_for(self) -> None:
        figures = speed_figures([trial(b, steady(100), p) for b in range(2) for p in (127, 128, 512)])
        assert figures["decode_tps"].conditions == {"prompt_tokens": [127, 512], "output_tokens": [65], "blocks": 2}

    def test_conditions_give_the_range_of_lengths(self) -> None:
        figures = speed_figures([trial(b, steady(100, tokens=n)) for b, n in enumerate((50, 40, 60))])
        assert figures["decode_tps"].conditions["output_tokens"] == [40, 60]

    def test_every_key_is_in_the_catalogue_or_proposed(self) -> None:
        from harness.metrics.catalog import METRICS

        assert set(speed_figures([])) - set(METRICS) <= {"answer_ttft_s"}


class TestPrefill:
    def test_is_the_slope_not_the_ratio(self) -> None:
        trials = [trial(b, steady(100, ttft=0.2 + p / 500), p) for b in range(3) for p in (100, 500, 1000)]
        figure = speed_figures(trials)["prefill_tps"]
        assert figure.value == pytest.approx(500.0)
        assert figure.low == pytest.approx(500.0, rel=1e-4)

    def test_needs_three_lengths(self) -> None:
        trials = [trial(b, steady(100, ttft=0.2 + p / 500), p) for b in range(3) for p in (100, 101, 1000)]
        figure = speed_figures(trials)["prefill_tps"]
        assert figure.value is None and figure.reasons == ("undefined",)

    def test_cached_prompts_do_not_count(self) -> None:
        cached = record([(0.01, 1), (1.0, 9)], 10, cached=90)
        figures = speed_figures([trial(b, cached, p) for b in range(3) for p in (100, 500, 1000)])
        assert figures["prefill_tps"].reasons == ("cached_prompt",)
        assert figures["ttft_s"].value is None
        assert figures["decode_tps"].ranks


class TestJitter:
    def test_j80_within_prompt(self) -> None:
        # e2e = 0.5 + 64/tps; 40 values spread evenly from 0.8 to 1.2 of the median, at two lengths far apart.
        spread = [0.8 + 0.4 * k / 39 for k in range(40)]
        trials = [
            trial(b, record([(base * s / 2, 1), (base * s, 9)], 10), p)
            for base, p in ((1.0, 100), (9.0, 1000))
            for b, s in enumerate(spread)
        ]
        figure = speed_figures(trials)["jitter_pct"]
        assert figure.value == pytest.approx(100 * (0.8 * 0.4) / 2, rel=0.01)
        assert figure.low is not None and figure.high is not None and figure.low < figure.value < figure.high
        assert (figure.n, figure.reasons) == (80, ())

    def test_few_values_use_the_mad_and_say_so(self) -> None:
        trials = [trial(b, record([(v / 2, 1), (v, 9)], 10)) for b, v in enumerate((0.9, 1.0, 1.1, 1.0, 1.3))]
        figure = speed_figures(trials)["jitter_pct"]
        assert figure.value == pytest.approx(100 * 1.28 * 1.4826 * 0.1)
        assert figure.reasons == ("small_n",)

    def test_prompts_seen_once_show_no_jitter(self) -> None:
        figure = speed_figures([trial(0, steady(100), p) for p in (100, 200, 400, 800)])["jitter_pct"]
        assert figure.value is None and figure.reasons == ("small_n",)

    def test_the_interval_is_reproducible(self) -> None:
        trials = [trial(b, steady(90 + 7 * b % 20)) for b in range(40)]
        assert speed_figures(trials)["jitter_pct"] == speed_figures(trials)["jitter_pct"]

    def test_p95_of_few_values_is_flagged(self) -> None:
        few = speed_figures([trial(b, steady(100, ttft=0.1 + b / 100)) for b in range(19)])["ttft_p95_s"]
        enough = speed_figures([trial(b, steady(100, ttft=0.1 + b / 100)) for b in range(21)])["ttft_p95_s"]
        assert few.reasons == ("small_n",)
        assert enough.reasons == () and enough.value == pytest.approx(0.29)


class TestWhichTrialsCount:
    def test_contended_trials_are_left_out(self) -> None:
        busy = [trial(b, steady(10, codes=("contended",))) for b in (2, 3)]
        trials = [trial(b, steady(100)) for b in range(3)] + busy
        figure = speed_figures(trials)["decode_tps"]
        assert figure.value == pytest.approx(100.0) and figure.ranks
        assert figure.conditions["excluded"] == {"contended": 2}

    def test_mostly_contended_is_shown_and_does_not_rank(self) -> None:
        trials = [trial(0, steady(100))] + [trial(b, steady(50, codes=("contended",))) for b in (1, 2)]
        figure = speed_figures(trials)["decode_tps"]
        assert figure.value == pytest.approx(60.0)
        assert figure.reasons == ("contended",) and not figure.ranks

    @pytest.mark.parametrize("repeats", [1, 3])
    def test_quiet_rounds_between_disturbed_ones_do_not_rank(self, repeats: int) -> None:
        """Every third of 30 rounds is clean: 10, yet a neighbour was there all the time."""
        busy = replace(steady(50, codes=("contended",)), attempt=repeats)
        trials = [trial(b, busy if b % 3 else steady(80), position=b) for b in range(30)]
        figure = speed_figures(trials)["decode_tps"]
        assert figure.value == pytest.approx(80.0) and figure.n == 10
        assert figure.reasons == ("contended",) and not figure.ranks
        assert speedup(trials, [replace(t, record=steady(40)) for t in trials]).reasons == ("contended",)

    def test_a_quiet_stretch_before_a_neighbour_came_ranks(self) -> None:
        busy = replace(steady(50, codes=("contended",)), attempt=3)
        trials = [trial(b, busy if b >= 10 else steady(80), position=b) for b in range(30)]
        assert around(trials[:10], trials) == pytest.approx(3 / 5 / 10)
        figure = speed_figures(trials)["decode_tps"]
        assert figure.value == pytest.approx(80.0) and figure.ranks

    def test_rounds_are_neighbours_by_time_not_by_number(self) -> None:
        """A round that was run again has a high number, and its place in time."""
        busy = steady(50, codes=("contended",))
        trials = [trial(b, steady(80), position=b) for b in range(6)]
        trials[2] = trial(10_002, steady(80), position=2)
        trials += [trial(b, busy, position=b) for b in range(6, 12)]
        assert around(trials[:6], trials) == pytest.approx(1 / 3 / 6)

    def test_repeats_that_came_out_clean_count_as_disturbed_surroundings(self) -> None:
        trials = [trial(b, replace(steady(80), attempt=3), position=b) for b in range(12)]
        assert around(trials, trials) == pytest.approx(2 / 3)
        assert speed_figures(trials)["decode_tps"].reasons == ("contended",)
        twice = [replace(t, record=replace(t.record, attempt=2)) for t in trials]
        assert speed_figures(twice)["decode_tps"].ranks

    @pytest.mark.parametrize("source", ["chunks", "tokenizer"])
    def test_tokens_that_nobody_counted_are_labelled_and_do_not_rank(
        self, source: Literal["chunks", "tokenizer"]
    ) -> None:
        guessed = [trial(b, replace(steady(100), token_source=source)) for b in range(3)]
        figure = speed_figures(guessed)["decode_tps"]
        assert figure.value == pytest.approx(100.0)
        assert figure.reasons == ("approx_tokens",) and not figure.ranks
        told = [trial(b, replace(steady(100), token_source="usage")) for b in range(3)]
        assert speed_figures(told)["decode_tps"].ranks

    def test_half_contended_is_not_more_than_half(self) -> None:
        trials = [trial(0, steady(100)), trial(1, steady(50, codes=("contended",)))]
        assert speed_figures(trials)["decode_tps"].value == pytest.approx(100.0)

    def test_nothing_left(self) -> None:
        figure = speed_figures([trial(0, steady(100, codes=("nonfinite",)))])["decode_tps"]
        assert figure.value is None and figure.reasons == ("nonfinite",)
        assert speed_figures([])["decode_tps"].reasons == ("not_measured",)

    def test_not_streamed_leaves_only_the_end(self) -> None:
        figures = speed_figures([trial(b, record([(2.0, 20)], 20, codes=("not_streamed",))) for b in range(3)])
        assert figures["e2e_s"].value == pytest.approx(2.0) and figures["e2e_s"].ranks
        assert figures["output_tps"].value == pytest.approx(10.0)
        assert figures["decode_tps"].reasons == ("not_streamed",)

    def test_informative_codes_change_nothing(self) -> None:
        assert len(usable([trial(0, steady(100, codes=("small_n",)))]).trials) == 1

    def test_lengths_within_five_percent_are_one_prompt(self) -> None:
        trials = [trial(0, steady(100), p) for p in (127, 128, 129, 512, 510, 2048)]
        assert prompt_groups(trials) == [128, 128, 128, 511, 511, 2048]


class TestSpeculation:
    def test_rates_are_pooled(self) -> None:
        rows = [(100, 50, 20), (68, 48, 8)]
        trials = [
            trial(b, record([(1.0, 1), (2.0, 9)], 10, drafted=d, accepted=a, steps=s))
            for b, (d, a, s) in enumerate(rows)
        ]
        figures = speed_figures(trials)
        assert figures["accept_rate"].value == pytest.approx(98 / 168)
        assert figures["accept_len"].value == pytest.approx(1 + 98 / 28)
        # R = 98/28 = 3.5; without either 48/8 = 6 and 50/20 = 2.5, so SE = sqrt(1/2 x 2 x 1.75²) = 1.75
        half = 12.7062047 * 1.75
        assert (figures["accept_len"].low, figures["accept_len"].high) == (1.0, pytest.approx(4.5 + half))
        assert (figures["accept_rate"].low, figures["accept_rate"].high) == (0.0, 1.0)
        once = speed_figures(trials[:1])["accept_len"]
        assert (once.value, once.low, once.high, once.reasons) == (3.5, None, None, ("small_n",))

    def test_none_without_speculation(self) -> None:
        assert speed_figures([trial(0, steady(100))])["accept_rate"].reasons == ("no_speculation",)


class TestSpeedup:
    def test_drift_shared_by_both_cancels(self) -> None:
        slow = [trial(b, steady(100 / (1 + 0.1 * b))) for b in range(10)]
        fast = [trial(b, steady(150 / (1 + 0.1 * b))) for b in range(10)]
        figure = speedup(fast, slow)
        assert figure.value == pytest.approx(1.5, rel=1e-4)
        assert figure.low == pytest.approx(1.5, rel=1e-3) and figure.reasons == ()

    def test_reference_is_one_by_definition(self) -> None:
        figure = speedup([trial(0, steady(100))], None)
        assert (figure.value, figure.low, figure.high, figure.reasons) == (1.0, 1.0, 1.0, ("is_reference",))

    def test_only_lengths_both_have(self) -> None:
        ref = [trial(b, steady(100), 128) for b in range(3)] + [trial(b, steady(50), 2048) for b in range(3)]
        mine = [trial(b, steady(200), 128) for b in range(3)]
        assert speedup(mine, ref).value == pytest.approx(2.0, rel=1e-6)

    def test_contended_never_ranks(self) -> None:
        figure = speedup([trial(0, steady(100, codes=("contended",)))], [trial(0, steady(50))])
        assert figure.value == pytest.approx(2.0) and not figure.ranks

    def test_block_ttft_on_equal_lengths(self) -> None:
        trials = [
            trial(b, steady(100, ttft=v * p / 100), p) for b, v in ((0, 0.1), (1, 0.2), (2, 0.4)) for p in (100, 900)
        ]
        lost = [t for t in trials if (t.block, t.prompt_tokens) != (2, 900)]
        logs = block_log_ttft([*lost, trial(3, steady(1, codes=("contended",)), 100)])
        assert logs[1] - logs[0] == pytest.approx(math.log(2)) and set(logs) == {0, 1, 2}
        assert block_log_ttft([]) == {}

    def test_block_rates(self) -> None:
        rates = block_log_rates([trial(0, steady(100)), trial(1, steady(50))])
        assert [math.exp(v) for v in rates.values()] == pytest.approx([100.0, 50.0])


def test_series_by_prompt() -> None:
    trials = [trial(b, steady(100 - p / 100, ttft=p / 500), p) for b in range(3) for p in (100, 500)]
    assert [(r["prompt_tokens"], r["n"]) for r in ttft_by_prompt(trials)] == [(100, 3), (500, 3)]
    assert [r["value"] for r in ttft_by_prompt(trials)] == pytest.approx([0.2, 1.0])
    assert [r["value"] for r in tps_by_prompt(trials)] == pytest.approx([99.0, 95.0], rel=1e-6)


class TestOneLengthABlock:
    """Each round takes one prompt length, so a block's own length must not explain its spread away."""

    def test_blocks_of_different_lengths_are_no_certainty(self) -> None:
        trials = [trial(b, steady(100 + b + t), p) for b, p in enumerate((16, 48, 96)) for t in (0, 2)]
        figure = speed_figures(trials)["decode_tps"]
        assert "small_n" in figure.reasons
        assert figure.low is not None and figure.high is not None
        assert figure.high - figure.low > 0.01 * 100

    def test_the_means_of_the_lengths_cost_degrees_of_freedom(self) -> None:
        """Two blocks for each of three lengths, rates 1% around each length's own: t has 3 degrees of freedom."""
        rates = {0: 101, 1: 202, 2: 303, 3: 99, 4: 198, 5: 297}
        trials = [trial(b, steady(r), (16, 48, 96)[b % 3]) for b, r in rates.items()]
        figure = speed_figures(trials)["decode_tps"]
        assert figure.reasons == () and figure.value is not None and figure.high is not None
        # sd = sqrt(6 x 0.01^2 / 3), se = sd / sqrt(6), t(3) = 3.182
        half = 3.182 * math.sqrt(6 * 0.01**2 / 3) / math.sqrt(6)
        assert math.log(figure.high / figure.value) == pytest.approx(half, rel=0.02)

    def test_a_speedup_keeps_the_spread_between_blocks(self) -> None:
        base = [trial(b, steady(100), p) for b, p in enumerate((16, 48, 96))]
        fast = [trial(b, steady(r), p) for b, (r, p) in enumerate(((150, 16), (200, 48), (250, 96)))]
        figure = speedup(fast, base)
        assert figure.low is not None and figure.high is not None
        assert figure.value == pytest.approx((1.5 * 2.0 * 2.5) ** (1 / 3))
        assert figure.low < 1.3 and figure.high > 2.9

    def test_a_length_that_was_always_disturbed_voids_the_figure_instead_of_moving_it(self) -> None:
        clean = [trial(b, steady(100, ttft=0.1), 16) for b in range(6)]
        noisy = [trial(6, steady(100, ttft=0.9, codes=("contended",)), 96)]
        figure = speed_figures([*clean, *noisy])["ttft_s"]
        assert "contended" in figure.reasons

    def test_every_length_weighs_the_same_in_a_median(self) -> None:
        many = [trial(b, steady(100, ttft=0.1), 16) for b in range(6)]
        few = [trial(b, steady(100, ttft=0.9), 96) for b in range(2)]
        assert speed_figures([*many, *few])["ttft_s"].value == pytest.approx(0.5)


@pytest.mark.parametrize("key", ["decode_tps", "ttft_s", "icl_p95_s"])
def test_launches_that_differ_widen_an_absolute_interval(key: str) -> None:
    """Six rounds, three launches whose own speeds differ more than rounds of one do."""
    rates = [100.0, 101.0, 110.0, 111.0, 120.0, 121.0]
    one = [trial(block, steady(tps, ttft=10 / tps)) for block, tps in enumerate(rates)]
    many = [replace(t, launch=1 + t.block // 2) for t in one]
    plain, wide = speed_figures(one)[key], speed_figures(many)[key]
    assert plain.value == wide.value and plain.low and plain.high and wide.low and wide.high
    logs = [math.log(rate) for rate in rates]
    wider = launches([(logs, [0, 0, 1, 1, 2, 2])]).wider(6)
    assert wider > 1.5
    assert math.log(wide.high / wide.low) == pytest.approx(wider * math.log(plain.high / plain.low), rel=1e-6)
