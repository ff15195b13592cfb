"""The page's back matter: token streams, claims, conditions, settings and the glossary, as texts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from harness.metrics.catalog import METRICS
from harness.record import CODES
from harness.report.front import nice_ticks
from harness.report.roofline import probe_text
from harness.report.text import DASH, Json, plural, sentence
from harness.units import quantity, significant

_VERDICTS = {"holds": "yes", "does not hold": "no", "cannot tell": "open"}


@dataclass(frozen=True, slots=True)
class Stream:
    """One request's arrivals as a strip 1000 units wide and 24 high.

    Attributes:
        name: The variant.
        path: SVG path, a stroke per arrival, higher for more tokens at once.
        times: "seconds:tokens" of each arrival, for the player.
        caption: Tokens and time in words.
    """

    name: str
    path: str
    times: str
    caption: str


@dataclass(frozen=True, slots=True)
class Streams:
    """All strips on one time axis of ``seconds``; ticks as (percent, text)."""

    seconds: float
    rows: tuple[Stream, ...]
    ticks: tuple[tuple[float, str], ...]


@dataclass(frozen=True, slots=True)
class Claim:
    """A row of the claims table; ``tone`` is "yes" | "no" | "open"."""

    claim: str
    source: str
    range: str
    measured: tuple[tuple[str, str], ...]
    verdict: str
    tone: str
    why: str


def streams(series: Mapping[str, Json], order: Sequence[str]) -> Streams | None:
    """Strips of the variants that have a stream; None if none has."""
    kept = {name: series[name] for name in order if (series.get(name) or {}).get("events")}
    if not kept:
        return None
    end = max(float(stream["events"][-1][0]) for stream in kept.values()) * 1.02 or 1.0
    rows = tuple(_stream(name, stream, end) for name, stream in kept.items())
    ticks = tuple((round(100 * t / end, 2), f"{t:g} s") for t in nice_ticks(0.0, end, 5))
    return Streams(round(end, 4), rows, ticks)


def _stream(name: str, stream: Json, end: float) -> Stream:
    events = [(float(t), int(n or 1)) for t, n in stream["events"]]
    path = "".join(f"M{1000 * t / end:.1f} 24v-{min(8 + 4 * (n - 1), 24)}" for t, n in events)
    total = sum(n for _, n in events)
    most = max(n for _, n in events)
    burst = f", up to {most} at once" if most > 1 else ""
    caption = f"{plural(total, 'token')} in {events[-1][0]:.2f} s{burst}"
    return Stream(name, path, " ".join(f"{t:.3f}:{n}" for t, n in events), caption)


def claims(rows: Sequence[Json]) -> tuple[Claim, ...]:
    """The claims table."""
    return tuple(
        Claim(
            row["claim"], row.get("source") or "", row.get("range") or DASH,
            tuple((m["variant"], _measured(m)) for m in row.get("measured") or ()),
            row["verdict"], _VERDICTS.get(row["verdict"], "open"), row.get("why") or "",
        )
        for row in rows
    )  # fmt: skip


def _measured(measured: Json) -> str:
    return quantity(measured.get("value"), str(measured.get("unit") or ""), measured.get("low"), measured.get("high"))


def gpu_names(machine: Json) -> tuple[str, ...]:
    """The GPUs of a machine by name."""
    return tuple(str(gpu.get("name")) if isinstance(gpu, Mapping) else str(gpu) for gpu in machine.get("gpus") or ())


def conditions(results: Json) -> tuple[tuple[str, str], ...]:
    """Machine, model, engine, schedule and quiet as label and text."""
    return tuple((name, text) for name, text in _conditions(results) if text)


def _conditions(results: Json) -> Iterator[tuple[str, str]]:
    machine, given = results.get("machine") or {}, results.get("conditions") or {}
    yield "Run", f"{results.get('run_id')}, {results.get('created')}, harness {results.get('harness_version')}"
    yield "Machine", ", ".join(
        str(part)
        for part in (
            machine.get("cpu"), plural(machine["cores"], "core") if machine.get("cores") else None,
            f"{machine['ram_bytes'] / 2**30:.1f} GiB RAM" if machine.get("ram_bytes") else None, machine.get("os"),
        )
        if part
    )  # fmt: skip
    yield "GPUs", ", ".join(gpu_names(machine)) or "none"
    band = machine.get("bandwidth_bytes_per_s") or {}
    if band.get("best"):
        yield "Memory bandwidth", probe_text(band)
    yield "Machine fingerprint", str(machine.get("fingerprint") or "")
    model, engine = given.get("model") or {}, given.get("engine") or {}
    restored = " Its F16 is restored from this file, not the original." if model.get("restored") else ""
    yield "Model", f"{model.get('name')} ({model.get('file')}).{restored} {model.get('note') or ''}".strip()
    yield "Model digest", str(model.get("digest") or "")
    yield "Engine", f"{engine.get('name')} {engine.get('version')}"
    schedule = given.get("schedule") or {}
    if schedule:
        rounds = plural(schedule.get("rounds") or 0, "round")
        yield "Schedule", f"{rounds}, {schedule.get('order')} order over all variants"
    energy = given.get("energy") or {}
    covered = [domain.get("scope") for domain in energy.get("domains") or ()] or energy.get("scope") or ()
    scope = ", ".join(str(s) for s in covered)
    method = f"{energy.get('method') or 'none'}{f' over {scope}' if scope else ''}"
    yield "Energy", f"{method}. {sentence(energy.get('why'))}".strip()
    yield "Other load", _quiet(given.get("quiet") or {})


def _quiet(quiet: Json) -> str:
    if not quiet:
        return ""
    names = (("psi_some_share", "CPU pressure"), ("steal_share", "steal"), ("other_share", "other processes"))
    shares = [f"{name} {100 * quiet[key]:.1f}%" for key, name in names if quiet.get(key) is not None]
    counts = f"{quiet.get('contended_trials') or 0} of {plural(quiet.get('trials') or 0, 'trial')} contended, "
    return f"{counts}{quiet.get('repeated_trials') or 0} repeated; {', '.join(shares) or 'load shares not read'}"


Pairs = tuple[tuple[str, str], ...]


def settings(variants: Sequence[Json]) -> tuple[Pairs, tuple[str, ...], tuple[tuple[str, ...], ...]]:
    """Settings that all variants share, the names of the others, and one row of those per variant."""
    keys = sorted({key for variant in variants for key in variant.get("settings") or {}})

    def text(variant: Json, key: str) -> str:
        value = (variant.get("settings") or {}).get(key)
        return DASH if value is None else _short(value)

    same = [key for key in keys if len(variants) > 1 and len({text(v, key) for v in variants}) == 1]
    differ = [key for key in keys if key not in same]
    shared = tuple((key, text(variants[0], key)) for key in same)
    rows = tuple((v["name"], *(text(v, key) for key in differ)) for v in variants)
    return shared, tuple(differ), rows


def suite_settings(results: Json) -> tuple[tuple[str, str], ...]:
    """Each suite's effective settings in one line."""
    suites = (results.get("conditions") or {}).get("suites") or {}
    return tuple(
        (name, ", ".join(f"{key} {_short(value)}" for key, value in sorted(suites[name].items())))
        for name in sorted(suites)
    )


def _short(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return significant(value)
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {_short(value[key])}" for key in sorted(value)) or DASH
    if isinstance(value, list | tuple):
        return " · ".join(str(item) for item in value)
    return str(value)


def glossary() -> tuple[tuple[str, str, str], ...]:
    """Label, unit and formula of every figure of the catalogue."""
    return tuple((metric.label, metric.unit, metric.formula) for metric in METRICS.values())


def codes() -> tuple[tuple[str, str], ...]:
    """Every reason code and its meaning."""
    return tuple(CODES.items())
