"""What a person feels of a variant's speed, from the measured streams. Knows no engine and no file."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from harness.metrics import estimators as est
from harness.metrics import request
from harness.metrics.agent import agent_wait
from harness.metrics.request import NS, Trial
from harness.metrics.speed import CACHED, ONLY_END, figure_of
from harness.metrics.trials import prompt_groups
from harness.record import Figure, RequestRecord, missing
from harness.stats import interval

# A short code completion, and how soon it must be there so as not to break a programmer's flow.
COMPLETION_TOKENS = 16
BUDGET_S = 0.2
CALLS = (5, 10)
# Tokens/s of readers. Silent reading takes about 250 words a minute (238 for non-fiction, 260 for fiction: Brysbaert,
# Journal of Memory and Language 109, 2019); an English word is about 1.33 tokens (three quarters of a word a token,
# OpenAI's rule of thumb). Skimming goes two to three times as fast (Rayner et al., Psychological Science in the Public
# Interest 17, 2016).
READING_TPS = 5.5
SKIMMING_TPS = 15.0


def band(tps: float) -> str:
    """How an output speed in tokens/s is called.

    >>> [band(tps) for tps in (49.9, 50, 100, 150, 151, 300)]
    ['sluggish', 'passable', 'fluent', 'fluent', 'brisk', 'instant']
    """
    if tps >= 300:
        return "instant"
    if tps > 150:
        return "brisk"
    if tps >= 100:
        return "fluent"
    return "passable" if tps >= 50 else "sluggish"


def bands(value: float, low: float | None, high: float | None) -> tuple[str, ...]:
    """The bands that an interval touches, slowest first; that of the value alone where there is no interval.

    >>> bands(140.0, 135.0, 160.0), bands(140.0, None, None), bands(140.0, 40.0, 310.0)
    (('fluent', 'brisk'), ('fluent',), ('sluggish', 'passable', 'fluent', 'brisk', 'instant'))
    """
    names = ("sluggish", "passable", "fluent", "brisk", "instant")
    first, last = (names.index(band(value if end is None else end)) for end in (low, high))
    return names[first : last + 1]


def band_text(names: Sequence[str]) -> str:
    """Bands in words.

    >>> band_text(["fluent"]), band_text(["fluent", "brisk"]), band_text(["passable", "fluent", "brisk"])
    ('fluent', 'fluent or brisk', 'passable to brisk')
    """
    return f" {'or' if len(names) == 2 else 'to'} ".join(dict.fromkeys((names[0], names[-1])))


def first_tokens_s(record: RequestRecord, tokens: int = COMPLETION_TOKENS) -> float | None:
    """Seconds from sending until so many tokens have arrived, or the whole output where that is shorter.

    Formula: ``t_k - t_send`` of the first k with ``C_k >= tokens``, else of the last. None where a count is unknown.
    """
    seen, last = 0, None
    for event in request.content_events(record):
        if event.n_tokens is None:
            return None
        seen, last = seen + event.n_tokens, event.t_ns
        if seen >= tokens:
            break
    return None if last is None else (last - record.sent_ns) * NS


def tokens_within(record: RequestRecord, seconds: float = BUDGET_S) -> float | None:
    """Tokens that arrive within ``seconds`` of sending; None where a count is unknown or nothing ever arrives."""
    events = request.content_events(record)
    early = [e.n_tokens for e in events if (e.t_ns - record.sent_ns) * NS <= seconds]
    return None if not events or None in early else float(sum(n for n in early if n is not None))


def reading_wait_s(record: RequestRecord, tps: float = READING_TPS) -> float | None:
    """How long a reader at ``tps`` tokens/s must wait after the first token so as never to wait again, seconds.

    Formula: ``max_k [(t_k - t_1) - C_(k-1) / tps]``, at least 0: the reader takes ``1 / tps`` for each token. One who
    starts at once waits exactly as long in all, in stalls. None where a count is unknown.
    """
    events = request.content_events(record)
    before, wait = 0, 0.0
    for event in events:
        if event.n_tokens is None:
            return None
        wait = max(wait, (event.t_ns - events[0].t_ns) * NS - before / tps)
        before += event.n_tokens
    return wait if events else None


def _within_budget(trials: Sequence[Trial]) -> Figure:
    """Share of requests within the budget, with an interval that is wide enough for blocks."""
    kept, seconds = est.valued(trials, first_tokens_s)
    if not seconds:
        return missing("undefined")
    found = interval.share([s <= BUDGET_S for s in seconds], [t.block for t in kept])
    return Figure(found.value, found.low, found.high, found.n)


@dataclass(frozen=True, slots=True)
class _Rule:
    compute: Callable[[Sequence[Trial]], Figure]
    allow: frozenset[str]
    conditions: Mapping[str, Any]


def _waits(tps: float, estimate: Callable[..., Figure]) -> _Rule:
    """How long a reader at ``tps`` waits, over requests."""
    return _Rule(lambda ts: estimate(ts, lambda record: reading_wait_s(record, tps)), CACHED, {"reader_tps": tps})


def _agent(calls: int, q: float) -> _Rule:
    """How long an agent of so many calls waits. The end-to-end time is valid without a stream."""
    return _Rule(agent_wait(calls, q), ONLY_END, {"calls": calls})


_COMPLETION: Mapping[str, _Rule] = {
    "completion_s": _Rule(lambda ts: est.median(ts, first_tokens_s), frozenset(), {"tokens": COMPLETION_TOKENS}),
    "completion_share": _Rule(_within_budget, frozenset(), {"tokens": COMPLETION_TOKENS, "budget_s": BUDGET_S}),
}
_IN_BUDGET = {"tokens_in_budget": _Rule(lambda ts: est.median(ts, tokens_within), frozenset(), {"budget_s": BUDGET_S})}
_FIGURES: Mapping[str, _Rule] = {
    **_COMPLETION,
    **{f"agent{calls}_s": _agent(calls, 50) for calls in CALLS},
    "reading_wait_s": _waits(READING_TPS, est.median),
}
_DETAILS: Mapping[str, _Rule] = {
    **_IN_BUDGET,
    **{f"agent{calls}_p95_s": _agent(calls, 95) for calls in CALLS},
    "reading_wait_p95_s": _waits(READING_TPS, est.p95),
    "skimming_wait_s": _waits(SKIMMING_TPS, est.median),
    "skimming_wait_p95_s": _waits(SKIMMING_TPS, est.p95),
}


def feel_figures(trials: Sequence[Trial]) -> dict[str, Figure]:
    """What a person feels of one variant, by catalogue key; blocks that took only some variants do not count."""
    return _all([trial for trial in trials if not trial.extra], _FIGURES)


def feel_details(trials: Sequence[Trial]) -> dict[str, Figure]:
    """What stands beside `feel_figures`: tokens within the budget, the 95th percentiles, and a reader who skims."""
    return _all([trial for trial in trials if not trial.extra], _DETAILS)


def completion_by_prompt(trials: Sequence[Trial]) -> list[tuple[int, dict[str, Figure]]]:
    """The figures of a code completion for each prompt length, shortest first."""
    timed = [t for t in trials if t.block >= 0 and not t.extra]
    labels, rules = prompt_groups(timed), {**_COMPLETION, **_IN_BUDGET}
    return [
        (length, _all([t for t, label in zip(timed, labels, strict=True) if label == length], rules))
        for length in sorted(set(labels))
    ]


def _all(trials: Sequence[Trial], rules: Mapping[str, _Rule]) -> dict[str, Figure]:
    return {key: _stated(figure_of(trials, rule.compute, rule.allow), rule) for key, rule in rules.items()}


def _stated(figure: Figure, rule: _Rule) -> Figure:
    """A figure with the rule's own conditions; an output shorter than a completion is waited for to its end."""
    own = dict(rule.conditions)
    if "tokens" in own and figure.conditions["output_tokens"]:
        own["tokens"] = min(own["tokens"], figure.conditions["output_tokens"][-1])
    return replace(figure, conditions={**figure.conditions, **own})
