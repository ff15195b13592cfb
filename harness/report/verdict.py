"""What the page says first: which variant, why, how to start it, and what to beware of."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from harness.decide.view import speculation_faults
from harness.metrics.catalog import METRICS
from harness.report.facts import gpu_names
from harness.report.tables import Wording, tile
from harness.report.text import Cell, Json, label, plural, quantity, sentence

_TITLES = {
    "partial": "Partial run",
    "smoke": "Smoke run",
    "restored": "Restored F16",
    "sample_not_mmlu": "Sample, not MMLU",
    "at_chance": "Cannot tell",
    "failed": "Failed",
    "lossy_speculation": "FAULT",
    "estimated_energy": "Energy estimated",
    "no_counter": "Energy not measured",
    "contended": "Contended",
}
_URGENT = frozenset({"partial", "failed", "smoke", "lossy_speculation"})
_FEW = 4  # more failures than this are counted, not listed
_MUCH = 0.05  # share of contended trials from which the warning is urgent


@dataclass(frozen=True, slots=True)
class Note:
    """A short labelled warning; ``urgent`` ones may change the decision."""

    code: str
    label: str
    text: str
    urgent: bool


@dataclass(frozen=True, slots=True)
class Tile:
    """One headline figure of the chosen variant."""

    label: str
    cell: Cell
    unit: str
    beside: str


@dataclass(frozen=True, slots=True)
class Verdict:
    """The first screen.

    Attributes:
        choice: The variant, or None if none qualifies.
        headline: "Deploy q4_0".
        reason: Why, with figures.
        quality: What stands for quality here and why.
        wish: What was asked for.
        deploy: The command, or an empty string.
        tiles: Its headline figures.
        conditions: Machine, model, preset, quiet: one phrase each.
        notes: Warnings, urgent ones first.
    """

    choice: str | None
    headline: str
    reason: str
    quality: str
    wish: str
    deploy: str
    tiles: tuple[Tile, ...]
    conditions: tuple[str, ...]
    notes: tuple[Note, ...]


def verdict(results: Json, variants: Sequence[Json], words: Wording) -> Verdict:
    """The first screen of a run."""
    decision = results.get("decision") or {}
    choice = decision.get("choice")
    chosen = next((v for v in variants if v["name"] == choice), None)
    reference = next((v for v in variants if v.get("reference")), None)
    quality_key = decision.get("quality_key") or "top1_agreement"
    keys = dict.fromkeys(("decode_tps", quality_key, "ttft_s", "peak_rss_bytes"))
    tiles = [Tile(words.names.get(k) or label(k), *tile(k, chosen, reference)) for k in keys] if chosen else []
    return Verdict(
        choice=choice,
        headline=_headline(choice, results.get("preset")),
        reason=_reason(decision.get("reason") or "No decision is recorded for this run.", choice),
        quality=_quality(decision, quality_key),
        wish=decision.get("wish") or "",
        deploy=(chosen or {}).get("deploy") or "",
        tiles=tuple(tiles),
        conditions=tuple(_conditions(results)),
        notes=_notes(results, variants),
    )


def _headline(choice: str | None, preset: str | None) -> str:
    """A smoke run proposes; it is too small to say more."""
    if choice is None:
        return "No variant qualifies"
    return f"Provisional: {choice}" if preset == "smoke" else f"Deploy {choice}"


def _reason(text: str, choice: str | None) -> str:
    """The reason without the words that the heading already says."""
    for lead in (f"Deploy {choice}: ", f"Deploy {choice}, ", "No variant qualifies: ", "No choice: "):
        if text.startswith(lead):
            text = text.removeprefix(lead)
            return text[:1].upper() + text[1:]
    return text


def _quality(decision: Json, key: str) -> str:
    why = sentence(decision.get("quality_why"))
    if not decision.get("quality_key") or decision.get("margin") is None:
        return why
    known = METRICS.get(key)
    points = known is not None and known.unit == "ratio"
    margin = f"{decision['margin'] * 100:g} points" if points else quantity(key, decision["margin"])
    return f"{why} Margin allowed: {margin} of {label(key)}.".strip()


def _conditions(results: Json) -> Iterator[str]:
    machine, conditions = results.get("machine") or {}, results.get("conditions") or {}
    hardware = [machine.get("cpu"), plural(machine["cores"], "core") if machine.get("cores") else None]
    if machine.get("ram_bytes"):
        hardware.append(f"{machine['ram_bytes'] / 2**30:.1f} GiB RAM")
    yield ", ".join(str(part) for part in [*hardware, *gpu_names(machine)] if part)
    model, engine = conditions.get("model") or {}, conditions.get("engine") or {}
    yield str(model.get("name") or "model not named")
    if engine.get("name"):
        yield f"{engine['name']} {engine.get('version') or ''}".strip()
    yield f"preset {results.get('preset')}"
    quiet = conditions.get("quiet") or {}
    trials, contended = quiet.get("trials"), quiet.get("contended_trials")
    if trials:
        counted = plural(trials, "trial")
        yield f"contended: {contended} of {counted}" if contended else f"quiet: {counted}"


def _found(results: Json, variants: Sequence[Json]) -> Iterator[tuple[str, str]]:
    conditions = results.get("conditions") or {}
    if results.get("status") == "partial":
        yield "partial", "Not every cell is done. Resume the run before you rely on this page."
    if results.get("preset") == "smoke":
        yield "smoke", "It shows that everything works. It is too small to choose by: run --preset quick or standard."
    if changed := speculation_faults(variants):
        yield "lossy_speculation", f"{changed} See Speculation."
    failed = [f"{v['name']}, {f['suite']}: {f['reason']}" for v in variants for f in v.get("failures") or ()]
    if len(failed) > _FEW:
        failed = [f"{len(failed)} cells failed; the reasons are under Conditions"]
    yield from (("failed", text) for text in failed)
    quiet = conditions.get("quiet") or {}
    if quiet.get("contended_trials"):
        share = f"{quiet['contended_trials']} of {plural(quiet.get('trials') or 0, 'trial')}"
        yield "contended", f"Other load took the CPU during {share}; {quiet.get('repeated_trials') or 0} were repeated."
    model = conditions.get("model") or {}
    if model.get("restored"):
        yield "restored", model.get("note") or "The reference was restored from a quantised file; it is no original."
    for name, suite in sorted((results.get("suites") or {}).items()):
        if suite.get("is_sample"):
            yield "sample_not_mmlu", f"{suite.get('label') or name}: its scores compare variants of this run only."
        if suite.get("at_chance"):
            yield (
                "at_chance",
                f"{suite.get('label') or name}: the reference does not beat guessing, so it decides nothing",
            )
        elif name == "mmlu" and suite.get("separates") is False:
            yield (
                "at_chance",
                f"{suite.get('label') or name}: {suite.get('why') or 'it does not separate the variants'}",
            )
    energy = conditions.get("energy") or {}
    method = str(energy.get("method") or "none")
    if method.startswith("estimate"):
        yield "estimated_energy", f"{sentence(energy.get('why') or 'No counter can be read')} An estimate never ranks."
    elif method == "none" and energy:
        yield "no_counter", str(energy.get("why") or "No energy counter can be read on this machine.")


def _notes(results: Json, variants: Sequence[Json]) -> tuple[Note, ...]:
    """Warnings, urgent first; where the run itself words one, its words replace ours."""
    given: list[Any] = list((results.get("conditions") or {}).get("notes") or ())
    own = {str(note["code"]) for note in given}
    pairs = [(code, text) for code, text in _found(results, variants) if code not in own]
    pairs += [(str(note["code"]), str(note["text"])) for note in given]
    quiet = (results.get("conditions") or {}).get("quiet") or {}
    much = (quiet.get("contended_trials") or 0) > _MUCH * (quiet.get("trials") or 0)
    urgent = _URGENT | ({"contended"} if much else set())
    notes = [Note(code, _TITLES.get(code, code.replace("_", " ").capitalize()), sentence(text), code in urgent)
             for code, text in dict.fromkeys(pairs)]  # fmt: skip
    return tuple(sorted(notes, key=lambda note: not note.urgent))
