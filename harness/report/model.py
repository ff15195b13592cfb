"""Everything the page prints, as one frozen value: results and series in, texts, tables and charts out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from harness import view
from harness.report import facts, figures, tables
from harness.report.figures import Figure, Look
from harness.report.front import Mark, Plot, layout
from harness.report.tables import Grid, Wording, metric
from harness.report.text import Chip, Json, Shown, chip, higher_is_better, label, quantity, sentence, unit_of, value_of
from harness.report.verdict import Verdict, verdict

_WIDE, _NARROW, _SMALL = (1150, 480), (300, 340), (340, 300)


@dataclass(frozen=True, slots=True)
class Front:
    """A view of two figures: drawn wide and narrow, in words, and who is not on it.

    Attributes:
        title: "MMLU accuracy against TTFT".
        wide, narrow: The drawings; None if no variant has both figures.
        summary: The front in one sentence.
        left_out: Variants left out and why.
        tied: Groups that cannot be told apart.
        instead: Why nothing is drawn; empty if something is.
    """

    title: str
    wide: Plot | None
    narrow: Plot | None
    summary: str
    left_out: tuple[tuple[str, str], ...] = ()
    tied: tuple[str, ...] = ()
    instead: str = ""


@dataclass(frozen=True, slots=True)
class Flip:
    """An item whose chosen answer changed."""

    variant: str
    subject: str
    question: str
    choices: tuple[str, ...]
    gold: int
    before: int | None
    after: int | None


@dataclass(frozen=True, slots=True)
class Sample:
    """A program that does not parse."""

    variant: str
    language: str
    prompt: str
    output: str
    verdict: str
    error: str


@dataclass(frozen=True, slots=True)
class ReportModel:
    """The page's content in its order; see the fields' own types."""

    run_id: str
    created: str
    version: str
    preset: str
    verdict: Verdict
    front: Front
    table: Grid
    views: tuple[Front, ...]
    latency: tuple[Figure, ...]
    streams: facts.Streams | None
    suites: tuple[Figure, ...]
    depth: Figure | None
    context: Grid | None
    code: Grid | None
    fidelity: Grid
    flips: tuple[Flip, ...]
    flips_total: int
    samples: tuple[Sample, ...]
    speculation: Grid | None
    speculation_words: str
    claims: tuple[facts.Claim, ...]
    conditions: tuple[tuple[str, str], ...]
    suite_settings: tuple[tuple[str, str], ...]
    shared_settings: tuple[tuple[str, str], ...]
    setting_names: tuple[str, ...]
    settings: tuple[tuple[str, ...], ...]
    files: tuple[tuple[str, str, str, str, str], ...]
    failures: tuple[tuple[str, str, str], ...]
    glossary: tuple[tuple[str, str, str], ...]
    codes: tuple[tuple[str, str], ...]

    @property
    def figures(self) -> tuple[Figure, ...]:
        """Every interactive chart of the page."""
        return (*self.latency, *self.suites, *((self.depth,) if self.depth else ()))


def build(results: Json, series: Json) -> ReportModel:
    """The report's content.

    Args:
        results: The content of results.json.
        series: Series for plots, kept beside it; any part may be absent.
    """
    reference = next((v for v in results.get("variants") or () if v.get("reference")), None)
    variants = [_with_identity(v, reference) for v in results.get("variants") or ()]
    decision: Json = results.get("decision") or {}
    suites: Json = results.get("suites") or {}
    words = _wording(suites)
    look = figures.looks(variants)
    ordered = tables.by_objective(variants, decision.get("objective") or "decode_tps")
    order = [str(v["name"]) for v in ordered]
    fronts: list[Json] = list(results.get("fronts") or ())
    headline = fronts[0] if fronts else None
    shared, setting_names, setting_rows = facts.settings(variants)
    flips = list(series.get("flips") or ())
    speculating = [v for v in ordered if (v.get("settings") or {}).get("speculate", "none") != "none"]
    shapes = {name: one.shape for name, one in look.items()}
    return ReportModel(
        run_id=str(results.get("run_id") or ""),
        created=str(results.get("created") or ""),
        version=str(results.get("harness_version") or ""),
        preset=str(results.get("preset") or ""),
        verdict=verdict(results, variants, words),
        front=_front(headline, headline, variants, decision, words, look),
        table=tables.table_1(variants, headline, decision, words, shapes),
        views=_views(fronts, variants, decision, words, look, results),
        latency=_latency(series, order, variants, look),
        streams=facts.streams(series.get("streams") or {}, order),
        suites=_suites(suites, ordered, look),
        depth=_depth(series, order, look, suites),
        context=_has(tables.LONG_CONTEXT, ordered, "Long context by part", words),
        code=tables.code_grid(_in_order(series.get("code_by_language"), order)),
        fidelity=tables.grid("How close each variant stays to the reference", tables.FIDELITY, ordered, words),
        flips=tuple(_flip(f) for f in flips[:20]),
        flips_total=len(flips),
        samples=tuple(_sample(s) for s in list(series.get("code_samples") or ())[:20]),
        speculation=_has(tables.SPECULATION, speculating, "Variants that speculate", words),
        speculation_words=tables.speculation_words(ordered),
        claims=facts.claims(results.get("claims") or ()),
        conditions=facts.conditions(results),
        suite_settings=facts.suite_settings(results),
        shared_settings=shared,
        setting_names=setting_names,
        settings=setting_rows,
        files=tuple(
            (v["name"], str(v.get("id") or ""), str(v.get("model_file") or ""), str(v.get("model_digest") or ""),
             str(v.get("deploy") or "")) for v in variants
        ),
        failures=tuple((v["name"], f["suite"], f["reason"]) for v in variants for f in v.get("failures") or ()),
        glossary=facts.glossary(),
        codes=facts.codes(),
    )  # fmt: skip


def _with_identity(variant: Json, reference: Json | None) -> Json:
    """A variant with the figures that follow from comparing the reference's own scores with themselves."""
    exact = {
        key: {**view.figure(variant, key), "value": value, "reasons": ["is_reference"]}
        for key, value in view.IDENTITY.items()
        if view.figure(variant, key).get("value") is None and view.shares_scoring(variant, reference, key)
    }
    return {**variant, "metrics": {**variant["metrics"], **exact}} if exact else variant


def _wording(suites: Json) -> Wording:
    """A sample never passes for the real thing; a suite that tells nothing says so in its headings."""
    mmlu = suites.get("mmlu") or {}
    names = {"mmlu_acc": str(mmlu["label"])} if mmlu.get("label") else {}
    chips: dict[str, Chip] = {}
    for suite, key, _ in _SUITES:
        about = suites.get(suite) or {}
        if about.get("at_chance"):
            chips[key] = chip("at_chance")
        elif about.get("separates") is False:
            chips[key] = Chip("cannot tell", str(about.get("why") or "does not separate the variants"))
    return Wording(names, chips)


def _in_order(by_variant: Mapping[str, Any] | None, order: Sequence[str]) -> dict[str, Any]:
    return {name: by_variant[name] for name in order if by_variant and by_variant.get(name)}


def _has(keys: Sequence[str], variants: Sequence[Json], caption: str, words: Wording) -> Grid | None:
    measured = any(value_of(metric(v, key)) is not None for v in variants for key in keys)
    return tables.grid(caption, keys, variants, words) if measured else None


def _front(
    front: Json | None, headline: Json | None, variants: Sequence[Json], decision: Json,
    words: Wording, look: Mapping[str, Look],
) -> Front:  # fmt: skip
    """The view of one front; the first objective is drawn upwards."""
    if front is None:
        return Front("Front", None, None, "", instead="No front could be drawn: no two figures to set off.")
    y_key, x_key = front["objectives"][:2]
    away = {entry["name"] for entry in front.get("left_out") or ()}
    kept = [v for v in variants if v["name"] not in away and view.ranks(view.figure(v, x_key))]
    kept = [v for v in kept if view.ranks(view.figure(v, y_key))]
    scales = (tables.scale(x_key, kept), tables.scale(y_key, kept))
    marks = [_mark(v, (x_key, y_key), scales, front, decision, look) for v in kept]
    x_title = _axis(x_key, words, scales[0].unit, "→", "←")
    y_title = _axis(y_key, words, scales[1].unit, "↑", "↓")
    size = _WIDE if front is headline else _SMALL
    left_out = tuple((e["name"], tables.left_out_text(e.get("reasons") or ())) for e in front.get("left_out") or ())
    title = f"{words.names.get(y_key) or label(y_key)} against {label(x_key)}"
    members = ", ".join(front.get("members") or ())
    summary = f"On the front: {members}." if members else "No variant is on this front."
    return Front(
        title, layout(marks, x_title, y_title, *size), layout(marks, x_title, y_title, *_NARROW), summary, left_out,
        tuple(", ".join(group) for group in front.get("tied") or () if len(group) > 1),
        "" if marks else "No variant has both figures, so nothing is drawn.",
    )  # fmt: skip


def _axis(key: str, words: Wording, unit: str, up: str, down: str) -> str:
    arrow = up if higher_is_better(key) else down
    name = words.names.get(key) or label(key)
    return f"{name}{'' if unit in name else f', {unit}'} {arrow} better"


def _mark(
    v: Json, keys: tuple[str, str], scales: tuple[Shown, Shown], front: Json, decision: Json, look: Mapping[str, Look]
) -> Mark:
    def span(key: str, how: Shown) -> tuple[float, float | None, float | None]:
        found = view.figure(v, key)
        ends = [None if found.get(end) is None else found[end] * how.factor for end in ("low", "high")]
        return found["value"] * how.factor, ends[0], ends[1]

    (x, x_low, x_high), (y, y_low, y_high) = (span(key, how) for key, how in zip(keys, scales, strict=True))
    name = v["name"]
    share = (front.get("p_front") or {}).get(name)
    odds = f"; on the front in {share:.0%} of resamples" if share is not None else ""
    title = f"{name}: {view.shown(v, keys[0])}, {view.shown(v, keys[1])}{odds}"
    on_front, chosen = name in front["members"], name == decision.get("choice")
    shape = look[name].shape
    return Mark(name, x, y, x_low, x_high, y_low, y_high, on_front, chosen, bool(v.get("reference")), shape, title)


def _views(
    fronts: Sequence[Json], variants: Sequence[Json], decision: Json,
    words: Wording, look: Mapping[str, Look], results: Json,
) -> tuple[Front, ...]:  # fmt: skip
    """Quality against TTFT, memory and energy; a view that may not rank says why instead."""
    quality = decision.get("quality_key") or (fronts[0]["objectives"][0] if fronts else "top1_agreement")
    found = []
    for key in ("ttft_s", "peak_rss_bytes", "energy_j_per_token"):
        front = next((f for f in fronts if set(f["objectives"]) == {quality, key}), None)
        front = front or {"members": [], "p_front": {}, "left_out": []}
        view = _front({**front, "objectives": [quality, key]}, None, variants, decision, words, look)
        if view.wide is None:
            view = Front(view.title, None, None, "", view.left_out, (), _why_not(key, variants, results))
        found.append(view)
    return tuple(found)


def _why_not(key: str, variants: Sequence[Json], results: Json) -> str:
    energy = (results.get("conditions") or {}).get("energy") or {}
    if key != "energy_j_per_token" or not energy:
        return "No variant has both figures, so nothing is drawn."
    why = sentence(energy.get("why") or "No energy counter can be read on this machine")
    if str(energy.get("method")).startswith("estimate"):
        why += (
            " Energy per token is an estimate: at full load it is a constant divided by tokens/s, so a chart would only"
            " redraw the speed axis. It is shown in the table, greyed, and never ranks."
        )
    return why


def _latency(
    series: Json, order: Sequence[str], variants: Sequence[Json], look: Mapping[str, Look]
) -> tuple[Figure, ...]:
    by = {v["name"]: quantity("jitter_pct", value_of(metric(v, "jitter_pct"))) for v in variants}
    found = (
        figures.lines(
            "fig-ttft", "TTFT by prompt length", "Time from sending a request to its first token.", "ttft_s",
            "prompt_tokens", "prompt tokens", _in_order(series.get("ttft_by_prompt"), order), look, "TTFT",
        ),
        figures.lines(
            "fig-tps", "Decode speed by prompt length", "Tokens per second after the first, at each depth.",
            "decode_tps", "prompt_tokens", "prompt tokens", _in_order(series.get("tps_by_prompt"), order), look,
            "decode",
        ),
        figures.jitter(_in_order(series.get("jitter"), order), look, by),
    )  # fmt: skip
    return tuple(figure for figure in found if figure is not None)


_SUITES = (
    ("mmlu", "mmlu_acc", "MMLU"),
    ("long_context", "coherence_1_10", "Long-context coherence"),
    ("code_syntax", "code_parse_rate", "Code that parses"),
)


def _suites(suites: Json, ordered: Sequence[Json], look: Mapping[str, Look]) -> tuple[Figure, ...]:
    found = []
    reference = next((v for v in ordered if v.get("reference")), None)
    for name, key, title in _SUITES:
        about = suites.get(name) or {}
        kept = {str(v["name"]): metric(v, key) for v in ordered}
        # Chance is a share of items; only a figure that is such a share can be set against it.
        chance = about.get("chance") if unit_of(key) == "ratio" else None
        own = metric(reference, key) if reference else None
        heading = str(about.get("label") or title)
        note = str(about.get("why") or "")
        found.append(figures.suite(f"fig-{name}", heading, note, key, kept, look, chance, own))
    return tuple(figure for figure in found if figure is not None)


def _depth(series: Json, order: Sequence[str], look: Mapping[str, Look], suites: Json) -> Figure | None:
    chance = (suites.get("long_context") or {}).get("chance")
    return figures.lines(
        "fig-depth", "Recall by depth", "Share of planted facts recalled, by how far back the text reaches.",
        "ledger_acc", "depth", "depth, tokens", _in_order(series.get("depth"), order), look, "facts recalled",
        (chance, "guessing") if chance is not None else None,
    )  # fmt: skip


def _flip(flip: Json) -> Flip:
    choices = tuple(str(choice) for choice in flip.get("choices") or ())
    return Flip(
        str(flip.get("variant")), str(flip.get("subject")), str(flip.get("question")), choices,
        int(flip.get("gold", -1)), flip.get("reference_pred"), flip.get("pred"),
    )  # fmt: skip


def _sample(sample: Json) -> Sample:
    texts = [str(sample.get(key) or "") for key in ("variant", "language", "prompt", "output", "verdict", "error")]
    return Sample(*texts)
