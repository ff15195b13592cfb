"""What a worker sends back, on the fake engine with language models worked out by hand."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from harness.backends.base import Emission, EngineSpec, GenerateEnd, GenerateRequest, ScoreRequest
from harness.backends.fake import FakeBackend
from harness.errors import InputError
from harness.meters.fake import FakeMeter
from harness.meters.sampler import Snapshot
from harness.run import scoring, tasks, trial


def fake(logits: Any = None, **extra: Any) -> FakeBackend:
    backend = FakeBackend(logits)
    backend.load(EngineSpec("fake", "none", "0", "f16", ctx=64, extra=extra))
    return backend


def scored(backend: FakeBackend, pairs: Sequence[tuple[str, str]]) -> list[dict[str, Any]]:
    rows: list[tuple[int, dict[str, Any]]] = []
    scoring.loglikelihood(backend, rows.append, pairs)
    return [row for _, row in sorted(rows, key=lambda row: row[0])]


def by_table(backend: FakeBackend, table: dict[tuple[str, str], float]) -> Any:
    """A language model from the probability of a piece after the last one; what is left goes to all others alike."""

    def logits(tokens: Sequence[int]) -> np.ndarray:
        last = backend.detokenize(tokens[-1:]).decode()
        given = {backend.tokenize(piece)[0]: p for (before, piece), p in table.items() if before == last}
        size = len(backend._pieces)
        row = np.full(size, math.log((1 - sum(given.values())) / (size - len(given))))
        for token, p in given.items():
            row[token] = math.log(p)
        return row.astype(np.float32)

    return logits


def test_a_merge_across_the_join_is_scored_and_does_not_win_with_nothing() -> None:
    """[Answer][> A] is cut before the merge: cut at the length of [Answer][>], A would be empty and win with 0."""
    backend = fake(pieces=["> A"])
    assert len(backend.tokenize("Answer> A")) == len(backend.tokenize("Answer>")) == 2
    table = {("Answer", "> A"): 0.1, ("Answer", ">"): 0.8, (">", " B"): 0.7, (">", " C"): 0.14, (">", " D"): 0.05}
    backend._given = by_table(backend, table)
    rows = scored(backend, [("Answer>", f" {letter}") for letter in "ABCD"])
    found = [row["logprob"] for row in rows]
    assert found == pytest.approx([math.log(p) for p in (0.1, 0.7, 0.14, 0.05)], abs=1e-6)
    assert max(found) == found[1] and all(value < 0 for value in found)
    assert [row["n_tokens"] for row in rows] == [1, 1, 1, 1]


def test_logprobs_are_not_shifted_by_a_position() -> None:
    """P(b|a) = 0.5 and P(c|b) = 0.25: ln 0.125 = -2.079; a shift by one would give P(a|<s>) or leave c out."""
    backend = fake()
    backend._given = by_table(backend, {("a", "b"): 0.5, ("b", "c"): 0.25, ("", "a"): 0.9, ("c", "d"): 0.9})
    assert scored(backend, [("a", "bc"), ("b", "c")])[0]["logprob"] == pytest.approx(-2.079, abs=5e-4)


@pytest.mark.parametrize("order", [[0, 1, 2], [2, 0, 1], [2, 1, 0]])
def test_what_was_scored_before_leaks_into_no_item(order: list[int]) -> None:
    def by_length(tokens: Sequence[int]) -> np.ndarray:
        return np.sin(np.arange(280) * len(tokens)).astype(np.float32)

    pairs = [("x", "y"), ("a long text", "y"), ("x", "a long answer")]
    straight = scored(fake(by_length), pairs)
    assert scored(fake(by_length), [pairs[i] for i in order]) == [straight[i] for i in order]
    assert straight[0]["logprob"] != straight[1]["logprob"]


def test_a_prompt_that_does_not_fit_is_refused_with_figures_and_nothing_is_sent() -> None:
    rows: list[Any] = []
    with pytest.raises(InputError, match=r"request 1: 71 tokens; the context holds 64"):
        scoring.loglikelihood(fake(), rows.append, [("x", "y"), ("x" * 69, "y")])
    with pytest.raises(InputError, match=r"= 72 tokens; .* at most 64"):
        tasks.greedy(fake(), rows.append, [("p", "x" * 69)], max_tokens=2)
    assert rows == []


def test_a_nan_is_sent_as_none_and_not_as_zero() -> None:
    row = scored(fake(nonfinite="Q"), [("Q", "y")])[0]
    assert (row["logprob"], row["finite"]) == (None, False)


class Cut(FakeBackend):
    """An engine whose stream stops in the middle."""

    def generate(self, request: GenerateRequest) -> Iterator[Emission | GenerateEnd]:
        yield Emission([5])


def test_a_stream_without_an_end_is_no_completion() -> None:
    backend = Cut()
    backend.load(EngineSpec("fake", "none", "0", "f16", ctx=64))
    request = GenerateRequest((5,), 2, ignore_eos=True)
    with pytest.raises(RuntimeError, match="ended without an end"):
        tasks.record_of(backend, request)
    with pytest.raises(RuntimeError, match="ended without an end"):
        tasks.programs(backend, lambda row: None, limit=1, max_tokens=2)


class Short(FakeBackend):
    """An engine that ends before the length asked for, in the middle of a character."""

    def generate(self, request: GenerateRequest) -> Iterator[Emission | GenerateEnd]:
        raw = [self.tokenize("\u2028")[i] for i in range(3)]
        yield Emission(raw[:2])
        yield Emission(raw[2:])
        yield GenerateEnd("stop", "\u2028")


def test_a_short_output_is_coded_and_bytes_make_characters_across_events() -> None:
    backend = Short()
    backend.load(EngineSpec("fake", "none", "0", "f16", ctx=64))
    record = tasks.record_of(backend, GenerateRequest((5,), 4, ignore_eos=True))
    assert record["codes"] == ["short_output"] and record["output_tokens"] == 3
    assert [(n_tokens, chars, n_bytes) for _, n_tokens, chars, _, n_bytes in record["events"]] == [(2, 0, 2), (1, 1, 1)]


def test_an_empty_continuation_is_an_error_and_never_scores_zero() -> None:
    with pytest.raises(InputError, match="both non-empty"):
        fake().score([ScoreRequest((1,), ())], lambda index, result: None)


@pytest.mark.parametrize(("busy_s", "reason"), [(0.1, None), (5.0, "contended")])
def test_an_idle_baseline_taken_while_others_work_is_none(
    monkeypatch: pytest.MonkeyPatch, busy_s: float, reason: str | None
) -> None:
    ends = iter([Snapshot(0, busy_s=0.0, own_s=0.0), Snapshot(5_000_000_000, busy_s=busy_s, own_s=0.0)])

    class Sampled:
        n_cpus = 2

        def read(self) -> Snapshot:
            return next(ends)

    meter = FakeMeter({"cpu": [0, 100]}, method="estimate:fake")
    monkeypatch.setattr(trial, "_instruments", lambda: (meter, Sampled()))
    found = trial.idle(fake(), lambda row: None, seconds=0.0, threads=1)
    (reading,) = found["energy"]
    assert (reading["before"], reading["after"], reading["reason"]) == (0, 100, reason)
    assert found["record"]["codes"] == ([] if reason is None else [reason])


def test_a_window_asks_for_another_piece_of_the_text_each_time_and_ends_after_its_time() -> None:
    asked: list[tuple[int, ...]] = []

    class Listening(FakeBackend):
        def generate(self, request: GenerateRequest) -> Any:
            asked.append(request.prompt)
            return super().generate(request)

    backend = Listening()
    backend.load(EngineSpec("fake", "", "d", "f16"))
    pool = list(range(2, 200))
    found = trial.spend(backend, lambda row: None, pool, [0], 9, 5, 3, seconds=0.02, threads=1)
    assert found["requests"] == len(asked) > 1 and found["prompt_tokens"] == 9 * len(asked)
    assert found["output_tokens"] == 3 * len(asked) and "short_output" not in found["record"]["codes"]
    assert asked[0] == (0, *range(7, 15))
    first = asked[: len(pool) - 7]
    assert len(set(first)) == len(first)  # every piece once before any again
    once = trial.spend(backend, lambda row: None, pool, [0], 9, 5, 3, seconds=0.0, threads=1)
    assert once["requests"] == 1


def test_the_noise_floor_compares_the_prompt_path_with_single_tokens_in_bounded_pieces(tmp_path: Path) -> None:
    """On the fake engine, logits of several tokens at once differ from single ones by ``rounding``."""
    rows: list[dict[str, Any]] = []
    tokens, path = list(range(2, 42)), tmp_path / "logits.npy"
    scoring.floor(fake(rounding=0.1), rows.append, tokens, str(path))
    assert [(row["key"], row["kind"], len(row["payload"]["kl"])) for row in rows] == [
        ("000000", "floor", 32), ("000032", "floor", 8),
    ]  # fmt: skip
    assert all(0 < x < 0.05 for row in rows for x in row["payload"]["kl"])
    assert all(0 < x < 1 for row in rows for x in row["payload"]["largest"])
    again: list[dict[str, Any]] = []
    scoring.floor(fake(rounding=0.1), again.append, tokens, str(path), done=["000000"])
    assert again == rows[1:]
    same: list[dict[str, Any]] = []
    scoring.floor(fake(), same.append, tokens, str(path))
    assert {x for row in same for x in row["payload"]["largest"]} == {0.0}
