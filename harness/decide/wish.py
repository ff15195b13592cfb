"""What a user asks of a variant: limits, and how much may be lost against the reference. Parsing and testing.

Every test looks at the bad end of the interval: a limit is met only if the figure is shown to meet it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from harness.decide.view import Results, Variant, difference, figure, reference, shares_scoring, span
from harness.errors import InputError, did_you_mean
from harness.metrics.catalog import METRICS, Metric
from harness.units import parse_quantity, quantity

_REQUIRE = re.compile(r"\s*([A-Za-z0-9_]+)\s*(<=|>=|<|>|=+)\s*(.+)$")
_MAX_LOSS = re.compile(r"\s*([A-Za-z0-9_]+)\s*=\s*(.+)$")
_OPS = {"<=": "≤", ">=": "≥", "<": "<", ">": ">"}
DEFAULT_MARGIN = 0.01
DEFAULT_AGREEMENT = 0.95
# An exact 0.58 - 0.57 is 0.010000000000000009; a loss of exactly the margin is within it.
EPSILON = 1e-12

Outcome = Literal["met", "missed", "unshown", "unknown"]


@dataclass(frozen=True, slots=True)
class Verdict:
    """Outcome of one constraint: met, shown to be missed, not shown either way, or no figure that may decide."""

    outcome: Outcome
    phrase: str


def known_metric(key: str, where: str) -> Metric:
    """The catalogue entry of a key. Raises InputError with a suggestion for an unknown one."""
    if key not in METRICS:
        raise InputError(f"{where}: unknown figure '{key}'; {did_you_mean(key, METRICS)}")
    return METRICS[key]


@dataclass(frozen=True, slots=True)
class Require:
    """A limit on one figure, in the catalogue's unit."""

    key: str
    op: str
    limit: float

    def __str__(self) -> str:
        """The limit in words: "top-1 agreement ≥ 95%"."""
        return f"{METRICS[self.key].label} {self._bound()}"

    def _bound(self) -> str:
        return f"{_OPS[self.op]} {_limit_text(self.limit, METRICS[self.key].unit)}"

    def _holds(self, value: float) -> bool:
        return {
            "<=": value <= self.limit + EPSILON,
            ">=": value >= self.limit - EPSILON,
            "<": value < self.limit,
            ">": value > self.limit,
        }[self.op]

    def test(self, variant: Variant, ref: Variant | None) -> Verdict:
        """Test a variant."""
        metric, s = METRICS[self.key], span(variant, ref, self.key)
        if s.value is None:
            return Verdict("unknown", f"its {metric.label} cannot decide: {s.why}")
        bad, good = (s.high, s.low) if self.op[0] == "<" else (s.low, s.high)
        text = quantity(s.value, metric.unit, s.low, s.high)
        if bad is None or good is None:
            return Verdict("unknown", f"its {metric.label} ({text}) has no interval to hold against {self._bound()}")
        if self._holds(bad):
            return Verdict("met", f"its {metric.label} is within the limit ({text} {self._bound()})")
        if not self._holds(good):
            return Verdict("missed", f"its {metric.label} is {text}, against a limit of {self._bound()}")
        worst = quantity(bad, metric.unit)
        return Verdict("unshown", f"its {metric.label} of {text} may be {worst}, so {self._bound()} is not shown")


@dataclass(frozen=True, slots=True)
class MaxLoss:
    """How much worse than the reference a figure may be: in its unit, or as a share of the reference's value."""

    key: str
    margin: float
    relative: bool = False

    def __str__(self) -> str:
        """The limit in words: "MMLU accuracy at most 1 point worse than the reference"."""
        return f"{METRICS[self.key].label} at most {self._amount(self.margin)} worse than the reference"

    def _amount(self, amount: float) -> str:
        if self.relative:
            return f"{100 * amount:.3g}%"
        if METRICS[self.key].unit == "ratio":
            points = f"{100 * amount:.2g}"
            return f"{points} point{'' if points == '1' else 's'}"
        return _limit_text(amount, METRICS[self.key].unit)

    def loss(self, variant: Variant, ref: Variant | None) -> tuple[float | None, float | None, float | None, str]:
        """(loss, least, most, why not) against the reference; negative where the variant is better."""
        d = difference(variant, ref, self.key, relative=self.relative)
        if METRICS[self.key].better == "lower":
            return d.value, d.low, d.high, d.why
        minus = [None if x is None else 0.0 - x for x in (d.value, d.high, d.low)]
        return minus[0], minus[1], minus[2], d.why

    def test(self, variant: Variant, ref: Variant | None) -> Verdict:
        """Test a variant for non-inferiority."""
        label, limit = METRICS[self.key].label, self._amount(self.margin)
        if shares_scoring(variant, ref, self.key):
            same = "is the reference" if variant["reference"] else "has the reference's weights, so it scores the same"
            return Verdict("met", f"it {same}")
        value, least, most, why = self.loss(variant, ref)
        if value is None:
            return Verdict("unknown", f"its loss of {label} cannot decide: {why}")
        if least is None or most is None:
            return Verdict("unknown", f"its loss of {label} ({self._amount(value)}) has no interval")
        if most <= self.margin + EPSILON:
            at_most = "it is shown to lose no" if most <= 0 else f"it loses at most {self._amount(most)} of"
            return Verdict("met", f"{at_most} {label} (limit {limit})")
        if least > self.margin:
            ends = f"{self._amount(value)} of {label}, at least {self._amount(least)}"
            return Verdict("missed", f"it loses {ends} (limit {limit})")
        measured = f"loss of {self._amount(value)}" if value > 0 else "no measured loss"
        return Verdict("unshown", f"its {label} ({measured}) may be {self._amount(most)} worse (limit {limit})")


def _limit_text(limit: float, unit: str) -> str:
    """A limit as a round number: 95%, 200 ms."""
    if unit == "ratio":
        return f"{100 * limit:.4g}%"
    if unit == "s":
        return f"{limit:.4g} s" if limit >= 1 else f"{1e3 * limit:.4g} ms"
    if unit == "bytes":
        return quantity(limit, unit)
    return f"{limit:.4g}{unit}" if unit in ("x", "%") else f"{limit:.4g}%" if unit == "±%" else f"{limit:.4g} {unit}"


def parse_require(text: str) -> Require:
    """Parse a limit such as "ttft_s<=200ms" or "top1_agreement>=95%".

    Raises:
        InputError: If the form, the figure or the unit is wrong.

    >>> parse_require("peak_rss_bytes <= 2GB")
    Require(key='peak_rss_bytes', op='<=', limit=2000000000.0)
    """
    found = _REQUIRE.match(text)
    if found is None or found[2] not in _OPS:
        raise InputError(f"--require: found '{text}'; expected KEY<=VALUE or KEY>=VALUE; write e.g. ttft_s<=200ms")
    metric = known_metric(found[1], "--require")
    return Require(metric.key, found[2], parse_quantity(found[3], metric.unit, f"--require {metric.key}"))


def parse_max_loss(text: str) -> MaxLoss:
    """Parse a margin such as "mmlu_acc=1pt", "mmlu_acc=0.01" or "decode_tps=5%".

    Points and percent of a ratio are absolute (1% of accuracy is one point); percent of anything else is a
    share of the reference's value.

    Raises:
        InputError: If the form, the figure or the amount is wrong.

    >>> parse_max_loss("mmlu_acc=1pt"), parse_max_loss("decode_tps=5%")
    (MaxLoss(key='mmlu_acc', margin=0.01, relative=False), MaxLoss(key='decode_tps', margin=0.05, relative=True))
    """
    found = _MAX_LOSS.match(text)
    if found is None:
        raise InputError(f"--max-loss: found '{text}'; expected METRIC=AMOUNT; write for example mmlu_acc=1pt")
    metric, amount = known_metric(found[1], "--max-loss"), found[2].strip()
    where = f"--max-loss {metric.key}"
    if metric.better == "none":
        raise InputError(f"{where}: it has no better direction; expected a figure that has; write e.g. mmlu_acc=1pt")
    share = amount.endswith("%") and metric.unit not in ("ratio", "±%")
    margin = parse_quantity(amount, "ratio" if share else metric.unit, where)
    if margin < 0:
        raise InputError(f"{where}: found '{amount}'; expected 0 or more; write the loss without a sign")
    return MaxLoss(metric.key, margin, share)


@dataclass(frozen=True, slots=True)
class Wish:
    """Constraints, and the figure to make as good as possible.

    Attributes:
        objective: Catalogue key.
        maximize: Its direction.
        require, max_loss: Constraints.
        quality_key: The figure that stands for quality; None where the user chose all constraints.
        margin: Its limit.
        quality_why: Why that figure.
    """

    objective: str
    maximize: bool
    require: tuple[Require, ...] = ()
    max_loss: tuple[MaxLoss, ...] = ()
    quality_key: str | None = None
    margin: float = DEFAULT_MARGIN
    quality_why: str = ""
    constraints: tuple[Require | MaxLoss, ...] = field(init=False)

    def __post_init__(self) -> None:
        """Join the constraints."""
        object.__setattr__(self, "constraints", (*self.require, *self.max_loss))

    def __str__(self) -> str:
        """The wish in words: "highest decode tokens/s with top-1 agreement ≥ 95%"."""
        best = "highest" if self.maximize else "lowest"
        limits = f" with {' and '.join(str(c) for c in self.constraints)}" if self.constraints else ""
        return f"{best} {METRICS[self.objective].label}{limits}"


def make_wish(
    require: Sequence[str] = (), max_loss: Sequence[str] = (), *, objective: str = "decode_tps", maximize: bool = True
) -> Wish:
    """A wish from command-line texts. Raises InputError."""
    metric = known_metric(objective, "--maximize" if maximize else "--minimize")
    return Wish(metric.key, maximize, tuple(map(parse_require, require)), tuple(map(parse_max_loss, max_loss)))


def default_wish(results: Results) -> Wish:
    """The wish of a user who states none: decode speed first, with quality as good as the reference's.

    Quality is MMLU accuracy, at most one point worse, where the suite beats chance, tells variants apart and
    has enough questions to show a loss of no more than a point; else top-1 agreement of at least 95%.
    """
    suite, ref = results.get("suites", {}).get("mmlu"), reference(results)
    loss = MaxLoss("mmlu_acc", DEFAULT_MARGIN)
    label = (suite or {}).get("label", "MMLU")
    if not suite or ref is None or figure(ref, "mmlu_acc").get("value") is None:
        why = "MMLU accuracy was not measured, so fidelity to the reference decides"
    elif suite.get("at_chance"):
        why = f"the reference does not beat guessing on {label}, so fidelity to it decides"
    elif not suite.get("separates"):
        why = f"{label} tells no variant from the reference, so fidelity to it decides"
    else:
        reach = _finest(results, ref, loss)
        if reach is None or reach <= DEFAULT_MARGIN:
            return Wish(
                "decode_tps",
                True,
                max_loss=(loss,),
                quality_key="mmlu_acc",
                quality_why=f"{label} beats chance and tells variants apart",
            )
        why = f"{label} is too small to show a loss within 1 point (±{100 * reach:.1f} at best), so fidelity decides"
    agreement = Require("top1_agreement", ">=", DEFAULT_AGREEMENT)
    return Wish(
        "decode_tps",
        True,
        require=(agreement,),
        quality_key="top1_agreement",
        margin=1 - DEFAULT_AGREEMENT,
        quality_why=why,
    )


def _finest(results: Results, ref: Variant, loss: MaxLoss) -> float | None:
    """The narrowest half-width of a loss among variants scored by themselves; None if there is none."""
    halves = []
    for variant in results["variants"]:
        if not shares_scoring(variant, ref, loss.key):
            value, _, most, _ = loss.loss(variant, ref)
            if value is not None and most is not None:
                halves.append(most - value)
    return min(halves, default=None)
