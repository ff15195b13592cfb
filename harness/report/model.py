"""Everything the page prints, as one frozen value: results and series in, texts, tables and charts out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from harness.decide import view
from harness.report import agreement, code_pairs, cost, depth, facts, feel, figures, mmlu, quiet, tables, tasks, views
from harness.report.figures import Figure
from harness.report.look import Look, looks
from harness.report.roofline import Roofline
from harness.report.roofline import section as roofline
from harness.report.speculation import Section, section
from harness.report.tables import Grid, Wording, metric
from harness.report.text import DASH, Chip, Json, chip, quantity, unit_of, value_of
from harness.report.verdict import Verdict, verdict
from harness.report.views import Scene, View
from harness.units import significant

_LISTED = 20  # flips and code samples shown; the count of all is given


@dataclass(frozen=True, slots=True)
class Flip:
    """An item whose chosen answer changed; ``gold``, ``before`` (the reference's) and ``after`` as answers.

    ``margin`` is the smaller of the two leads over the second-best answer, and whether noise can turn it.
    """

    variant: str
    subject: str
    item: str
    question: str
    gold: str
    before: str
    after: str
    margin: str


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
class Quality:
    """The quality section: charts by suite, tables, items to look at; ``noisy``: whether noise floors are shown."""

    suites: tuple[Figure, ...]
    context: Grid | None
    code: Grid | None
    code_pairs: Grid | None
    fidelity: Grid | None
    greedy: agreement.Agreement | None
    tasks: tasks.Tasks | None
    mmlu: mmlu.Mmlu | None
    noisy: bool
    flips: tuple[Flip, ...]
    flips_total: int
    samples: tuple[Sample, ...]
    samples_total: int


@dataclass(frozen=True, slots=True)
class Conditions:
    """What the figures hold under: machine, settings, files, failures."""

    about: facts.Pairs
    suites: facts.Pairs
    shared: facts.Pairs
    setting_names: tuple[str, ...]
    settings: tuple[tuple[str, ...], ...]
    files: tuple[tuple[str, str, str, str, str], ...]
    failures: tuple[tuple[str, str, str], ...]


@dataclass(frozen=True, slots=True)
class ReportModel:
    """The page's content in its order; see the fields' own types."""

    run_id: str
    created: str
    version: str
    preset: str
    verdict: Verdict
    front: View
    table: Grid
    views: tuple[View, ...]
    latency: tuple[Figure, ...]
    streams: facts.Streams | None
    reader: feel.Feel | None
    quality: Quality
    depth: tuple[Figure, ...]
    roofline: Roofline | None
    speculation: Section | None
    claims: tuple[facts.Claim, ...]
    machine: quiet.Quiet | None
    cost: Grid | None
    conditions: Conditions
    glossary: tuple[tuple[str, str, str], ...]
    codes: facts.Pairs

    @property
    def figures(self) -> tuple[Figure, ...]:
        """Every interactive chart of the page."""
        course = (self.machine.course,) if self.machine and self.machine.course else ()
        greedy = (self.quality.greedy.chart,) if self.quality.greedy and self.quality.greedy.chart else ()
        return (*self.latency, *self.quality.suites, *greedy, *self.depth, *course)


def build(results: Json, series: Json) -> ReportModel:
    """The report's content.

    Args:
        results: The content of results.json.
        series: Series for plots, kept beside it; any part may be absent.
    """
    reference = next((v for v in results.get("variants") or () if v.get("reference")), None)
    variants = [_with_identity(v, reference) for v in results.get("variants") or ()]
    decision: Json = results.get("decision") or {}
    words = _wording(results.get("suites") or {})
    fronts: list[Json] = list(results.get("fronts") or ())
    members = fronts[0].get("members") or () if fronts else ()
    look = looks(variants, {*members, decision.get("choice")})
    scene = Scene(variants, decision, words, look)
    ordered = tables.by_objective(variants, decision.get("objective") or "decode_tps")
    order = [str(v["name"]) for v in ordered]
    speculating = [v for v in ordered if (v.get("settings") or {}).get("speculate", "none") != "none"]
    return ReportModel(
        run_id=str(results.get("run_id") or ""),
        created=str(results.get("created") or ""),
        version=str(results.get("harness_version") or ""),
        preset=str(results.get("preset") or ""),
        verdict=verdict(results, variants, words),
        front=views.headline(fronts[0] if fronts else None, scene),
        table=tables.table_1(
            variants, fronts[0] if fronts else None, decision, words, {name: one.shape for name, one in look.items()}
        ),
        views=views.further(fronts, scene, (results.get("conditions") or {}).get("energy") or {}),
        latency=_latency(series, order, variants, look),
        streams=facts.streams(series.get("streams") or {}, order),
        reader=feel.section(results, ordered),
        quality=_quality(results, series, ordered, look, words),
        depth=depth.charts(series, order, look, results.get("suites") or {}),
        roofline=roofline(results, series, ordered, look),
        speculation=section(
            series, ordered, look, _has(tables.SPECULATION, speculating, "Variants that speculate", words)
        ),
        claims=facts.claims(results.get("claims") or ()),
        machine=quiet.section(results, order),
        cost=cost.grid(results.get("cost") or (), ordered),
        conditions=_conditions(results, variants),
        glossary=facts.glossary(),
        codes=facts.codes(),
    )


def _quality(results: Json, series: Json, ordered: Sequence[Json], look: Mapping[str, Look], words: Wording) -> Quality:
    order = [str(v["name"]) for v in ordered]
    flips = list(series.get("flips") or ())
    samples = [one for one in series.get("code_samples") or () if one.get("verdict") not in ("parsed", "truncated")]
    fidelity = _has(tables.FIDELITY, ordered, "How close each variant stays to the reference", words)
    return Quality(
        suites=_suites(results.get("suites") or {}, ordered, look, words),
        context=_has(tables.LONG_CONTEXT, ordered, "Long context by part", words),
        code_pairs=code_pairs.grid(series.get("code_speculation") or ()),
        code=tables.code_grid(_in_order(series.get("code_by_language"), order)),
        fidelity=fidelity,
        greedy=agreement.section(series.get("greedy_by_length") or {}, order, look),
        tasks=tasks.section(results.get("tasks") or (), ordered),
        mmlu=mmlu.section(results.get("mmlu") or {}, (results.get("suites") or {}).get("mmlu") or {}, ordered),
        noisy=fidelity is not None and any(cell.noise for row in fidelity.rows for cell in row.cells),
        flips=tuple(_flip(flip) for flip in flips[:_LISTED]),
        flips_total=len(flips),
        samples=tuple(_sample(sample) for sample in samples[:_LISTED]),
        samples_total=len(samples),
    )


def _conditions(results: Json, variants: Sequence[Json]) -> Conditions:
    shared, setting_names, setting_rows = facts.settings(variants)
    file_keys = ("name", "id", "model_file", "model_digest", "deploy")
    files = [tuple(str(v.get(key) or "") for key in file_keys) for v in variants]
    return Conditions(
        about=facts.conditions(results),
        suites=facts.suite_settings(results),
        shared=shared,
        setting_names=setting_names,
        settings=setting_rows,
        files=tuple((name, id, file, digest, deploy) for name, id, file, digest, deploy in files),
        failures=tuple((v["name"], f["suite"], f["reason"]) for v in variants for f in v.get("failures") or ()),
    )


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
        elif suite == "mmlu" and about.get("separates") is False:
            chips[key] = Chip("cannot tell", str(about.get("why") or "does not separate the variants"))
    return Wording(names, chips)


def _in_order(by_variant: Mapping[str, Any] | None, order: Sequence[str]) -> dict[str, Any]:
    return {name: by_variant[name] for name in order if by_variant and by_variant.get(name)}


def _has(keys: Sequence[str], variants: Sequence[Json], caption: str, words: Wording) -> Grid | None:
    measured = any(value_of(metric(v, key)) is not None for v in variants for key in keys)
    return tables.grid(caption, keys, variants, words) if measured else None


def _latency(
    series: Json, order: Sequence[str], variants: Sequence[Json], look: Mapping[str, Look]
) -> tuple[Figure, ...]:
    by = {v["name"]: quantity("jitter_pct", value_of(metric(v, "jitter_pct"))) for v in variants}
    ttft = figures.About(
        "fig-ttft", "TTFT by prompt length", "From sending a request to its first token.", "ttft_s", "TTFT"
    )
    speed = figures.About(
        "fig-tps", "Decode speed by prompt length", "Tokens per second after the first.", "decode_tps", "decode"
    )
    found = (
        figures.lines(ttft, "prompt_tokens", _in_order(series.get("ttft_by_prompt"), order), look),
        figures.lines(speed, "prompt_tokens", _in_order(series.get("tps_by_prompt"), order), look),
        figures.jitter(_in_order(series.get("jitter"), order), look, by),
    )
    return tuple(figure for figure in found if figure is not None)


_SUITES = (
    ("mmlu", "mmlu_acc", "MMLU"),
    ("long_context", "coherence_1_10", "Long-context coherence"),
    ("code_syntax", "code_parse_rate", "Code that parses"),
)


def _suites(suites: Json, ordered: Sequence[Json], look: Mapping[str, Look], words: Wording) -> tuple[Figure, ...]:
    found = []
    reference = next((v for v in ordered if v.get("reference")), None)
    for name, key, title in _SUITES:
        about = suites.get(name) or {}
        kept = {str(v["name"]): metric(v, key) for v in ordered}
        # Chance is a share of items: it can stand beside no score in points, and at 0 it says nothing.
        chance = (about.get("chance") or None) if unit_of(key) == "ratio" else None
        own = metric(reference, key) if reference else None
        heading = words.names.get(key) or title
        note = str(about.get("why") or "") if name == "mmlu" else ""
        found.append(figures.suite(figures.About(f"fig-{name}", heading, note, key, "", chance), kept, look, own))
    return tuple(figure for figure in found if figure is not None)


def _flip(flip: Json) -> Flip:
    choices = [str(choice) for choice in flip.get("choices") or ()]

    def answer(index: int | None) -> str:
        if index is None or not 0 <= index < 26:
            return DASH
        letter = chr(ord("A") + index)
        return f"{letter} {choices[index]}" if index < len(choices) else letter

    return Flip(
        str(flip.get("variant")), str(flip.get("subject")), str(flip.get("doc_id", "")), str(flip.get("question", "")),
        answer(flip.get("gold")), answer(flip.get("reference_pred")), answer(flip.get("pred")), _margin(flip),
    )  # fmt: skip


def _margin(flip: Json) -> str:
    leads = [flip[key] for key in ("margin", "reference_margin") if flip.get(key) is not None]
    text = f"{significant(min(leads), 2)} nats" if leads else DASH
    return f"{text}, near tie" if flip.get("near_tie") else text


def _sample(sample: Json) -> Sample:
    texts = [str(sample.get(key) or "") for key in ("variant", "language", "prompt", "output", "verdict", "error")]
    return Sample(*texts)
