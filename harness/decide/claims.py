"""Common claims about quantised and speculating models, held against what a run measured. Pure.

Each claim is one row: its text, its range, a rule. A rule returns the figures, a verdict (holds, does not
hold, cannot tell) and why.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from harness.decide import claim_rules as rules
from harness.decide.evidence import Rule, Series
from harness.decide.view import Results


@dataclass(frozen=True, slots=True)
class Claim:
    """One claim.

    Attributes:
        key: Its name.
        text: What is claimed.
        range: The range the figures are held against.
        rule: From results and series to evidence.
        source: Where it comes from.
    """

    key: str
    text: str
    range: str
    rule: Rule
    source: str = "common claim"


TABLE, GUIDE = "published comparison table", "published guide"
CLAIMS: tuple[Claim, ...] = (
    Claim("int4_speed", "INT4 decodes 1.5-2x or 2-3x as fast as FP16", "1.5x to 3x", rules.int4_speed, GUIDE),
    Claim(
        "int8_between",
        "INT8 is faster than FP16 and slower than INT4",
        "between 1x and INT4",
        rules.int8_between,
        GUIDE,
    ),
    Claim(
        "int4_mmlu_70b",
        "INT4 loses 5-8% of MMLU on a 70B model",
        "5% to 8% of the score",
        rules.int4_mmlu(70, 5.0, 8.0, True),
        GUIDE,
    ),
    Claim(
        "int4_mmlu_7b",
        "INT4 loses 3.3 points of MMLU on a 7B model",
        "3.3 points or more",
        rules.int4_mmlu(7, 0.033, 1.0, False),
        TABLE,
    ),
    Claim(
        "int4_inconsistency",
        "INT4 makes long-context inconsistency rise by 12%",
        "12 points or more",
        rules.int4_change("inconsistency", 0.12),
        GUIDE,
    ),
    Claim("spec_speed", "Speculation decodes 2-3x as fast", "2x to 3x", rules.speculating(rules.spec_speed), GUIDE),
    Claim(
        "spec_quality",
        "Speculation costs no quality",
        "coherence at most 0.2 points lower",
        rules.speculating(rules.spec_quality),
        GUIDE,
    ),
    Claim("spec_code", "Speculation breaks code", "fewer programs parse", rules.speculating(rules.spec_code), GUIDE),
    Claim(
        "spec_jitter",
        "Speculation makes jitter rise (from 5% to 30%)",
        "above 0 points",
        rules.speculating(rules.spec_jitter),
        TABLE,
    ),
    Claim(
        "fastest_energy",
        "The fastest combination costs more energy per token than FP16",
        "above 1x",
        rules.fastest_energy,
        TABLE,
    ),
    Claim(
        "ttft_superlinear",
        "TTFT grows faster than linearly with prompt length",
        "exponent above 1",
        rules.slopes("ttft_by_prompt", 1.0),
        GUIDE,
    ),
    Claim("decode_flat", "Decode speed hardly depends on prompt length", "within ±10%", rules.flat, GUIDE),
    Claim("ceiling", "Decode speed cannot pass bandwidth / bytes read per token", "at most 100%", rules.ceiling, GUIDE),
    Claim(
        "ceiling_70b", "A 70B FP16 model at 3.35 TB/s cannot pass 24 tokens/s", "24 tokens/s", rules.ceiling_70b, GUIDE
    ),
    Claim("feel", "Above 300 tokens/s feels instant, 100-150 fluent, below 50 sluggish", "bands", rules.feel, GUIDE),
    Claim(
        "completion_200ms",
        "Completions stay within the 200 ms that keep a programmer's flow",
        "at most 200 ms",
        rules.completion,
        GUIDE,
    ),
    Claim(
        "agent_wait", "An agent makes 5-10 calls in sequence; its wait is the sum", "5 to 10 calls", rules.agent, GUIDE
    ),
    Claim("tokenizers", "Tokenizers make tokens/s incomparable across models", "note", rules.tokenizers, GUIDE),
    Claim("jitter_felt", "Users feel jitter, not mean speed", "note", rules.felt, GUIDE),
)


def evaluate(results: Results, series: Series | None = None) -> list[dict[str, Any]]:
    """Every claim against a run, as the ``claims`` entry of results.json.

    Args:
        results: The structure of results.json.
        series: Its plot series, for ``ttft_by_prompt`` and ``tps_by_prompt``.
    """
    rows = []
    for claim in CLAIMS:
        found = claim.rule(results, series or {})
        measured = [
            {"variant": m.variant, "unit": m.unit, "value": m.span.value, "low": m.span.low, "high": m.span.high}
            for m in found.measured
        ]
        rows.append(
            {
                "key": claim.key,
                "claim": claim.text,
                "source": claim.source,
                "range": claim.range,
                "measured": measured,
                "verdict": found.verdict,
                "why": found.why,
            }
        )
    return rows
