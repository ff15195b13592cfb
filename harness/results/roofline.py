"""Each variant's bandwidth ceiling and how much of it decoding reaches, at its trials' depths and by depth."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from harness.metrics import depth as by_depth
from harness.metrics.roofline import Drafting, Traffic, bytes_per_token, ceiling_tps, mbu, traffic_of
from harness.presets import DEPTH_TOKENS
from harness.record import Figure, missing
from harness.results.model import RunData, VariantRun

Json = dict[str, Any]


def roofline(run: RunData, variant: VariantRun, found: Mapping[str, Figure]) -> dict[str, Figure]:
    """``ceiling_tps`` and ``mbu`` at the mean depth of the timed tokens; nothing where the variant was not timed.

    With speculation the ceiling is the one at the acceptance that was measured:
    ``bandwidth x a / (target's pass + k x draft's pass)``, a tokens a pass and k drafted for it.
    """
    trials = variant.rows("speed", "trials")
    if not trials or not variant.rows("engine", "load"):
        return {}
    depths = [row["prompt_tokens"] + (row["record"]["output_tokens"] or 0) / 2 for row in trials]
    ceiling = _ceiling(run, variant, depths)
    return {"ceiling_tps": ceiling, "mbu": mbu(found["decode_tps"], ceiling)}


def depth_series(run: RunData, variant: VariantRun) -> list[Json]:
    """One ``{"depth", "ceiling_tps", "mbu"}`` a depth at which decoding was timed; empty where there is no ceiling."""
    if not variant.rows("engine", "load"):
        return []
    rows = []
    for point in by_depth.series(variant.rows("speed", "depth")):
        speed, ceiling = point["decode_tps"], _ceiling(run, variant, [point["depth"] + DEPTH_TOKENS / 2])
        figure = Figure(speed["value"], speed["low"], speed["high"], speed["n"], tuple(speed["reasons"]))
        share = mbu(figure, ceiling)
        if ceiling.value is not None and share.value is not None:
            rows.append({"depth": point["depth"], "ceiling_tps": ceiling.value, "mbu": _plain(share)})
    return rows


def probe_of(run: RunData, variant: VariantRun) -> Json | None:
    """The bandwidth probe that fits a variant: of the GPU that holds all its layers, else with its own threads.

    None where that one was not measured. Runs of before have one probe, with every usable CPU.
    """
    by_threads = run.facts.get("bandwidths") or {}
    info = variant.rows("engine", "load")[0]["info"]
    on_gpu = info.get("placement", {}).get("gpu_layers", 0)
    if on_gpu:
        gpu = by_threads.get("gpu")
        return gpu if gpu and gpu.get("best") and on_gpu >= info.get("n_layers", 0) else None
    found: Json | None = by_threads.get(str(variant.spec["threads"])) or run.facts.get("bandwidth")
    return found


def _ceiling(run: RunData, variant: VariantRun, depths: list[float]) -> Figure:
    """The ceiling at the mean of what is read at these depths."""
    probe, drafting = probe_of(run, variant), None
    if not probe or not probe.get("best"):
        return missing("not_measured")
    info = variant.rows("engine", "load")[0]["info"]
    target = _traffic(info)
    if variant.speculates:
        drafting = _drafting(variant, info, depths)
        if drafting is None:
            return missing("not_measured")
    kv_bytes = _mean([target.kv_bytes(depth) for depth in depths])
    needed = bytes_per_token(target.weight_bytes + kv_bytes, drafting)
    if needed <= 0:
        return missing("undefined")
    conditions = {
        "bandwidth_bytes_per_s": probe["best"],
        "bytes_per_token": needed,
        "weight_bytes": target.weight_bytes,
        "kv_bytes": kv_bytes,
        "depth": _mean(depths),
        "threads": probe.get("threads"),
        "device": probe.get("device", "cpu"),
        "array_enough": probe.get("enough"),
    }
    if drafting is not None:
        conditions |= {
            "tokens_per_pass": drafting.tokens_per_pass,
            "drafted_per_pass": drafting.drafted_per_pass,
            "draft_bytes": drafting.draft_bytes,
        }
    return Figure(ceiling_tps(probe["best"], needed), n=probe.get("n") or 1, conditions=conditions)


def _traffic(info: Mapping[str, Any]) -> Traffic:
    """What the engine said it reads; runs of before give two sums instead of groups of layers."""
    plain = info.get("placement", {}).get("reads")
    if plain:
        return traffic_of(plain)
    return Traffic(info["active_bytes_per_token"], ((info["kv_bytes_per_token"], None),))


def _drafting(variant: VariantRun, info: Mapping[str, Any], depths: list[float]) -> Drafting | None:
    """What speculation did over all trials; None where the engine did not count it.

    A pass gives one token of its own and those accepted, so passes are tokens after the first less the accepted.
    """
    records = [row["record"] for row in variant.rows("speed", "trials")]
    counted = [r for r in records if r.get("accepted") is not None and r.get("drafted") is not None]
    tokens = sum((r["output_tokens"] or 0) - 1 for r in counted if r["output_tokens"])
    passes = tokens - sum(r["accepted"] for r in counted)
    if not counted or passes <= 0:
        return None
    draft_bytes = 0.0
    if variant.spec["speculate"]["kind"] == "draft_model":
        plain = info.get("placement", {}).get("draft_reads")
        if not plain:
            return None
        draft_bytes = _mean([traffic_of(plain).at(depth) for depth in depths])
    return Drafting(tokens / passes, sum(r["drafted"] for r in counted) / passes, draft_bytes)


def _mean(values: list[float]) -> float:
    return math.fsum(values) / len(values)


def _plain(figure: Figure) -> Json:
    short = replace(figure, conditions={})
    return {key: getattr(short, key) for key in ("value", "low", "high", "n")} | {"reasons": list(short.reasons)}
