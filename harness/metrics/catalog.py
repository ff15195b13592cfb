"""The catalogue of figures: one key, one meaning, one unit, one direction. The only place that knows them all."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Better = Literal["higher", "lower", "none"]


@dataclass(frozen=True, slots=True)
class Metric:
    """One figure.

    Attributes:
        key: Its name in results.json and on the command line.
        label: Its name in tables and charts.
        unit: SI unit or "ratio" (0-1), "%", "tokens", "points" (1-10).
        better: Which direction is better; "none" describes only.
        formula: Its definition in one line.
        tolerance: Smallest difference that matters, in the figure's unit (absolute) or as a share (relative).
        relative: Whether ``tolerance`` is a share of the value.
        group: speed | memory | energy | quality | fidelity | speculation.
    """

    key: str
    label: str
    unit: str
    better: Better
    formula: str
    group: str
    tolerance: float = 0.0
    relative: bool = False


def _energy(kind: str, label: str, formula: str) -> Metric:
    return Metric(f"energy_{kind}j_per_token", label, "J/token", "lower", formula, "energy", 0.03, True)


def _speed(key: str, label: str, unit: str, better: Better, formula: str) -> Metric:
    return Metric(key, label, unit, better, formula, "speed", 0.03, True)


_ALL = (
    _speed(
        "decode_tps",
        "decode tokens/s",
        "tokens/s",
        "higher",
        "tokens after the first event / (t_last - t_first), pooled over requests",
    ),
    _speed(
        "peak_tps",
        "peak tokens/s",
        "tokens/s",
        "higher",
        "best decode rate over >= 32-token windows of a request, median over requests",
    ),
    _speed(
        "output_tps", "end-to-end tokens/s", "tokens/s", "higher", "tokens / (t_last - t_send), pooled over requests"
    ),
    _speed(
        "prefill_tps", "prefill tokens/s", "tokens/s", "higher", "1 / slope of TTFT over >= 3 uncached prompt lengths"
    ),
    _speed("ttft_s", "TTFT", "s", "lower", "first content-bearing event - send, median over requests"),
    _speed("ttft_p95_s", "TTFT p95", "s", "lower", "95th percentile of TTFT over requests"),
    _speed("tpot_s", "TPOT", "s", "lower", "(t_last - t_first) / (N - n_1), median over requests"),
    _speed("e2e_s", "end-to-end time", "s", "lower", "last token - send, median over requests"),
    _speed(
        "chars_per_s", "characters/s", "1/s", "higher", "characters after the first event / (t_last - t_first), pooled"
    ),
    _speed("bytes_per_s", "UTF-8 bytes/s", "1/s", "higher", "bytes after the first event / (t_last - t_first), pooled"),
    Metric(
        "jitter_pct",
        "jitter (end-to-end)",
        "±%",
        "lower",
        "J80 = 100 (p90 - p10) / (2 p50) of e2e divided by its prompt's median",
        "speed",
        1.0,
    ),
    Metric("ttft_jitter_pct", "TTFT jitter", "±%", "lower", "J80 of TTFT divided by its prompt's median", "speed", 1.0),
    Metric(
        "icl_jitter_pct",
        "gap jitter",
        "±%",
        "lower",
        "J80 of inter-chunk gaps within a request, median over requests",
        "speed",
        1.0,
    ),
    Metric("icl_p95_s", "gap p95", "s", "lower", "95th percentile of inter-chunk gaps, pooled", "speed", 0.03, True),
    Metric(
        "playout_lag_s",
        "playout lag",
        "s",
        "lower",
        "longest wait of a steady reader, median over requests",
        "speed",
        0.05,
    ),
    Metric(
        "stall_s",
        "stalled time",
        "s",
        "lower",
        "seconds in gaps > max(8 x median gap, 250 ms), per request",
        "speed",
        0.05,
    ),
    Metric("tokens_per_chunk", "tokens per chunk", "tokens", "none", "tokens / content-bearing events", "speed"),
    _speed("completion_s", "short completion", "s", "lower", "first 16 tokens there - send, median over requests"),
    Metric(
        "completion_share",
        "completions within 200 ms",
        "ratio",
        "higher",
        "requests whose first 16 tokens are there within 200 ms / requests",
        "speed",
        0.01,
    ),
    _speed("agent5_s", "agent of 5 calls", "s", "lower", "sum of 5 end-to-end times in a row, median over agents"),
    _speed("agent10_s", "agent of 10 calls", "s", "lower", "sum of 10 end-to-end times in a row, median over agents"),
    Metric(
        "reading_wait_s",
        "reader's wait",
        "s",
        "lower",
        "wait after the first token so that one who reads 5.5 tokens/s never waits again, median over requests",
        "speed",
        0.05,
    ),
    Metric(
        "speedup",
        "decode speed-up",
        "x",
        "higher",
        "decode rate / reference's, geometric mean of paired blocks",
        "speed",
        0.03,
        True,
    ),
    _speed(
        "ttft_ratio",
        "TTFT against the reference",
        "x",
        "lower",
        "TTFT / reference's, geometric mean of paired blocks",
    ),
    Metric("accept_rate", "acceptance rate", "ratio", "higher", "accepted / drafted tokens", "speculation", 0.01),
    Metric(
        "accept_len",
        "tokens per verification",
        "tokens",
        "higher",
        "tokens emitted / verification steps",
        "speculation",
        0.05,
    ),
    Metric(
        "draft_share",
        "time in drafting",
        "ratio",
        "none",
        "seconds drafting / seconds drafting and verifying, pooled over requests",
        "speculation",
    ),
    Metric(
        "audit_identical",
        "same text without speculation",
        "ratio",
        "higher",
        "prompts whose greedy text is the same with and without speculation / prompts",
        "speculation",
        0.01,
    ),
    Metric(
        "ceiling_tps",
        "bandwidth ceiling",
        "tokens/s",
        "none",
        "measured bandwidth / (active weight bytes + KV bytes at that depth); with speculation "
        "bandwidth x a / (bytes of a pass + k x bytes of a draft's pass), a tokens a pass, k drafted for it",
        "speed",
    ),
    Metric("mbu", "bandwidth used (MBU)", "ratio", "none", "decode_tps / ceiling_tps", "speed"),
    _energy("", "energy per token", "joules of the generation windows / tokens out in them (gross)"),
    _energy("net_", "energy per token, net", "gross - idle watts x window / tokens"),
    _energy("prefill_", "energy per prompt token", "joules of requests for one token / their prompt tokens"),
    _energy(
        "decode_", "energy per decoded token", "(gross joules - prefill of their prompts) / tokens after each first"
    ),
    Metric(
        "energy_per_correct_j",
        "energy per correct answer",
        "J",
        "lower",
        "joules spent on MMLU / correct answers",
        "energy",
        0.03,
        True,
    ),
    Metric(
        "peak_rss_bytes",
        "peak memory",
        "bytes",
        "lower",
        "peak resident set of the engine process",
        "memory",
        0.03,
        True,
    ),
    Metric(
        "model_bytes",
        "weights",
        "bytes",
        "lower",
        "bytes of the weights the variant keeps loaded, draft included",
        "memory",
        0.01,
        True,
    ),
    Metric(
        "kv_bytes",
        "KV cache",
        "bytes",
        "lower",
        "bytes of the key-value cache at the variant's context size",
        "memory",
        0.01,
        True,
    ),
    Metric(
        "load_s",
        "load time",
        "s",
        "lower",
        "from starting to load until the engine is ready, warm file cache",
        "memory",
        0.1,
        True,
    ),
    Metric("mmlu_acc", "MMLU accuracy", "ratio", "higher", "share correct, by lm-eval's metric", "quality", 0.01),
    Metric(
        "mmlu_delta",
        "MMLU difference",
        "ratio",
        "higher",
        "mean paired difference of correctness to the reference",
        "quality",
        0.01,
    ),
    Metric(
        "mmlu_flips",
        "MMLU flips",
        "ratio",
        "lower",
        "share of items whose chosen answer differs from the reference's",
        "fidelity",
        0.01,
    ),
    Metric(
        "coherence_1_10",
        "long-context coherence",
        "points",
        "higher",
        "1 + 9 clip((S - floor) / (ceiling - floor), 0, 1)",
        "quality",
        0.2,
    ),
    Metric(
        "ledger_acc",
        "ledger probes",
        "ratio",
        "higher",
        "share of planted facts recalled in forced choice",
        "quality",
        0.01,
    ),
    Metric(
        "tracking_acc",
        "multi-key and tracking",
        "ratio",
        "higher",
        "share of multi-key and variable-tracking probes right",
        "quality",
        0.01,
    ),
    Metric(
        "inconsistency",
        "inconsistency",
        "ratio",
        "lower",
        "share of facts answered differently when asked in other words",
        "quality",
        0.01,
    ),
    Metric(
        "nondegeneration",
        "non-degeneration",
        "ratio",
        "higher",
        "1 - mean seq-rep-4 of the free continuation",
        "quality",
        0.01,
    ),
    Metric(
        "code_parse_rate",
        "code that parses",
        "ratio",
        "higher",
        "programs that parse / programs not cut by the cap",
        "quality",
        0.01,
    ),
    Metric("code_extract_rate", "code extracted", "ratio", "higher", "outputs with code / outputs", "quality", 0.01),
    Metric(
        "code_truncated_rate",
        "code cut by the cap",
        "ratio",
        "lower",
        "outputs that hit the token cap unfinished / outputs",
        "quality",
        0.01,
    ),
    Metric(
        "kl_mean",
        "KL to reference",
        "nats",
        "lower",
        "mean KL(reference || variant) per token, full vocabulary",
        "fidelity",
        0.001,
    ),
    Metric("kl_p99", "KL p99", "nats", "lower", "99th percentile of the per-token KL", "fidelity", 0.001),
    Metric(
        "top1_agreement",
        "top-1 agreement",
        "ratio",
        "higher",
        "share of positions with the reference's most likely token",
        "fidelity",
        0.01,
    ),
    Metric(
        "kl_floor",
        "KL noise floor",
        "nats",
        "none",
        "mean KL(prompt path || one token at a time) of the variant with itself, per token",
        "fidelity",
    ),
    Metric(
        "top1_floor",
        "top-1 agreement with itself",
        "ratio",
        "none",
        "share of positions with the same most likely token by the prompt path and one token at a time",
        "fidelity",
    ),
    Metric(
        "logprob_floor",
        "log-probability noise floor",
        "nats",
        "none",
        "95th percentile over positions of the largest |change of log-probability| between these, top 50 tokens",
        "fidelity",
    ),
    Metric(
        "greedy_agree_tokens",
        "greedy agreement",
        "tokens",
        "higher",
        "tokens until the greedy text leaves the reference's, mean over prompts",
        "fidelity",
        1.0,
    ),
)
METRICS: dict[str, Metric] = {metric.key: metric for metric in _ALL}
