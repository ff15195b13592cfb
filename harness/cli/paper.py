"""What ``plan --hardware`` answers: each variant's bandwidth ceiling on hardware that is not here."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.backends.llama_cpp.gguf import Header, read_header
from harness.backends.llama_cpp.traffic import as_if, kv_bytes_per_token, traffic
from harness.cli.planned import megabytes, print_whole
from harness.config import Config, Variant, expand, select
from harness.costs import DEMO, size_of_file
from harness.errors import InputError, did_you_mean
from harness.hardware import Hardware, choose, table
from harness.load import load
from harness.metrics.roofline import Traffic
from harness.models import at_hand
from harness.paper import Need, described, rows
from harness.settings import KV_BITS, WEIGHT_BITS, DraftModel

if TYPE_CHECKING:
    from rich.table import Table

CTX = 4096
_COUNTS = {"": 1.0, "k": 1e3, "m": 1e6, "b": 1e9, "t": 1e12}
_IDEAL = "tensor parallel, ideal: bandwidth and memory of all devices together, exchange between them left out"


def of_config(config_path: Path, only: tuple[str, ...], hardware: Sequence[str]) -> dict[str, Any]:
    """The answer for the variants of a configuration.

    Raises:
        InputError: A fault in the configuration, an unknown device or variant, or a model that is not here.
    """
    devices = choose(hardware)
    config = load(config_path)
    needs = [_need(config, variant) for variant in select(expand(config), only)]
    return _answer(str(config.model), needs, devices)


def of_params(params: str, weights: str, ctx: int, hardware: Sequence[str]) -> dict[str, Any]:
    """The answer for a model of which only the number of parameters is known.

    Args:
        params: "70e9" or "70B".
        weights: Precisions, with commas between them.
        ctx: Tokens of the cache, of which the size is guessed from the parameters.
        hardware: As in ``of_config``.
    """
    devices, n_params = choose(hardware), _count(params)
    chosen = list(dict.fromkeys(part.strip().lower() for part in weights.split(",")))
    for name in chosen:
        if name not in WEIGHT_BITS:
            raise InputError(f"--weights: unknown {name!r}; {did_you_mean(name, WEIGHT_BITS)}")
    size = size_of_file(round(n_params * 2), "")
    needs = []
    for name in chosen:
        held = n_params * WEIGHT_BITS[name] / 8
        reads = Traffic(held, ((size.kv_bytes_per_token, None),))
        label = f"{params} {name}"
        needs.append(Need(label, reads, held, size.kv_bytes_per_token, ctx, "the KV cache, from the parameters"))
    return _answer(f"{n_params:,.0f} parameters, all of them read for every token", needs, devices)


def listing() -> dict[str, Any]:
    """The table of hardware as plain JSON."""
    return {"hardware": [described(one) for one in table().values()]}


def _answer(what: str, needs: Sequence[Need], devices: Sequence[Hardware]) -> dict[str, Any]:
    notes = [
        "ceilings of one stream from theoretical peaks: real decoding stays below; `mbu` of a run tells how far",
        "the memory needed is weights and a full KV cache; buffers and the system come on top",
    ]
    if any(one.count > 1 for one in devices):
        notes.append(_IDEAL)
    if any(need.speculates for need in needs):
        notes.append("what speculation gives hangs on how much is accepted, which a run measures")
    return {
        "model": what,
        "hardware": [described(one) for one in devices],
        "variants": rows(needs, devices),
        "notes": notes,
    }


def _count(text: str) -> float:
    """Parameters as typed. Raises InputError where it is no count."""
    head, suffix = (text[:-1], text[-1].lower()) if text[-1:].lower() in "kmbt" and text else (text, "")
    try:
        value = float(head) * _COUNTS[suffix]
    except ValueError:
        value = math.nan
    if not 1 <= value <= 1e15:
        raise InputError(
            f"--model-params: found {text!r}; expected a number of parameters; write for example 70e9 or 70B"
        )
    return value


def _need(config: Config, variant: Variant) -> Need:
    try:
        return _needs(config, variant)
    except (TypeError, ValueError) as error:
        raise InputError(
            f"{config.model}: its header's counts are no numbers ({error}); expected a model that llama.cpp loads"
        ) from error


def _needs(config: Config, variant: Variant) -> Need:
    settings, draft = variant.settings, variant.speculation
    header, estimated = _header(config.model, settings.weights)
    if header is None:
        reads, held, kv = _guess(config.model, settings.weights, settings.kv)
    else:
        reads, held, kv = traffic(header, settings.kv), _bytes(header), float(kv_bytes_per_token(header, settings.kv))
    if isinstance(draft, DraftModel):
        more, its_kv = _draft(config.model, draft, settings.kv)
        held, kv = held + more, kv + its_kv
    return Need(variant.name, reads, held, kv, settings.ctx, estimated, draft is not None)


def _header(model: str, weights: str) -> tuple[Header | None, str]:
    """The header of a model's file in a precision, and what of it is an estimate."""
    source, made = at_hand(model, weights)
    if made is not None:
        return read_header(made), ""
    if source is not None:
        return as_if(read_header(source), WEIGHT_BITS[weights]), f"weights, from {WEIGHT_BITS[weights]:g} bits each"
    if model.startswith("hf:"):
        raise InputError(
            f"model: {model} is not here and its size is not known; expected a file; "
            "fetch it with `harness models add`, and give its path, or give --model-params instead"
        )
    return None, f"weights, from {WEIGHT_BITS[weights]:g} bits each"


def _guess(model: str, weights: str, kv: str) -> tuple[Traffic, float, float]:
    """The default model before it is fetched: its shape is known."""
    assert model == "demo"
    held = DEMO.n_params * WEIGHT_BITS[weights] / 8
    per_token = DEMO.kv_bytes_per_token * KV_BITS[kv] / 16
    return Traffic(held, ((per_token, None),)), held, per_token


def _draft(model: str, draft: DraftModel, kv: str) -> tuple[float, float]:
    """Bytes of a draft's weights and of its keys and values a token."""
    if draft.weights is None:
        header: Header | None = read_header(str(draft.model))
    else:
        header, _ = _header(model, draft.weights)
    if header is None:
        _, held, per_token = _guess(model, str(draft.weights), kv)
        return held, per_token
    return _bytes(header), float(kv_bytes_per_token(header, kv))


def _bytes(header: Header) -> float:
    return float(sum(tensor.n_bytes for tensor in header.tensors))


def render(answer: dict[str, Any]) -> None:
    """Print the ceilings: a row per variant and a column per device, or a row per device for a single variant."""
    from rich.console import Console

    console, variants = Console(highlight=False), answer["variants"]
    console.print(f"{answer['model']}: the most tokens/s that memory bandwidth allows", markup=False, soft_wrap=True)
    shape = _by_device if len(variants) == 1 else _by_variant
    title, grid = shape(answer)
    console.print(title, markup=False, soft_wrap=True)
    print_whole(console, grid)
    console.print()
    for one in answer["hardware"]:
        console.print(f"{one['name']}: {_device(one)}. {one['source']}", markup=False, soft_wrap=True)
    for note in answer["notes"]:
        console.print(f"note: {note}", markup=False, soft_wrap=True)
    if what := sorted({row["estimated"] for row in variants if row["estimated"]}):
        console.print(f"~ estimated: {'; '.join(what)}", markup=False, soft_wrap=True)


def _by_device(answer: dict[str, Any]) -> tuple[str, Table]:
    from rich.table import Table

    (row,) = answer["variants"]
    mark = "~" if row["estimated"] else ""
    title = f"{row['variant']}: reads {mark}{megabytes(row['bytes_per_token'])} a token, needs "
    title += f"{mark}{megabytes(row['needs_bytes'])} with a context of {row['ctx']:,}"
    grid = Table(box=None, pad_edge=False, header_style="bold")
    grid.add_column("hardware", no_wrap=True)
    for heading in ("at depth 0", f"at depth {row['ctx']:,}", "memory", "fits"):
        grid.add_column(heading, justify="right", no_wrap=True)
    for one, device in zip(row["on"], answer["hardware"], strict=True):
        both = [_rate(one[key]) for key in ("ceiling_tps", "ceiling_tps_at_ctx")]
        grid.add_row(device["name"], *both, _memory(device), "yes" if one["fits"] else "no")
    return title, grid


def _by_variant(answer: dict[str, Any]) -> tuple[str, Table]:
    from rich.table import Table

    depths = {row["ctx"] for row in answer["variants"]}
    at = f"depth {min(depths):,}" if len(depths) == 1 else "the variant's ctx"
    title = f"tokens/s at depth 0 → at {at}; needs: weights and a full KV cache"
    grid = Table(box=None, pad_edge=False, header_style="bold")
    grid.add_column("variant", no_wrap=True)
    for heading in ("bytes/token", "needs", *(one["name"] for one in answer["hardware"])):
        grid.add_column(heading, justify="right", no_wrap=True)
    for row in answer["variants"]:
        mark = "~" if row["estimated"] else ""
        sizes = [f"{mark}{megabytes(row[key])}" for key in ("bytes_per_token", "needs_bytes")]
        grid.add_row(row["variant"], *sizes, *map(_on, row["on"]))
    return title, grid


def _on(one: dict[str, Any]) -> str:
    """A ceiling at both depths, and whether the variant fits.

    >>> _on({"ceiling_tps": 23.93, "ceiling_tps_at_ctx": 22.7, "fits": False})
    '24 → 23 (too big)'
    """
    both = [one["ceiling_tps"], one["ceiling_tps_at_ctx"]]
    text = "-" if both[0] is None else " → ".join(tps(value) for value in both)
    return text if one["fits"] else f"{text} (too big)"


def _rate(value: float | None) -> str:
    return "-" if value is None else f"{tps(value)} tokens/s"


def tps(value: float) -> str:
    """Tokens/s without digits that a ceiling does not have.

    >>> tps(1021.7), tps(23.93), tps(3.14159)
    ('1,022', '24', '3.1')
    """
    return f"{value:,.0f}" if value >= 9.95 else f"{value:.1f}"


def _device(one: dict[str, Any]) -> str:
    how = ", calculated from its bus" if one["method"].startswith("calculated") else ""
    return f"{one['label']}, {_gb_s(one)} GB/s peak{how}, {_memory(one)}"


def _gb_s(one: dict[str, Any]) -> str:
    return f"{one['bandwidth_bytes_per_s'] / 1e9:,.1f}".removesuffix(".0")


def _memory(one: dict[str, Any]) -> str:
    return f"{'up to ' if one['memory_up_to'] else ''}{one['memory_bytes'] / 2**30:,.0f} GB"


def render_listing(answer: dict[str, Any]) -> None:
    """Print the table of hardware."""
    from rich.console import Console
    from rich.table import Table

    grid = Table(box=None, pad_edge=False, header_style="bold")
    for title, justify in (("name", "left"), ("hardware", "left"), ("GB/s", "right"), ("memory", "right")):
        grid.add_column(title, justify=justify, no_wrap=True)  # type: ignore[arg-type]
    grid.add_column("source", no_wrap=True)
    for one in answer["hardware"]:
        mark = " *" if one["method"].startswith("calculated") else ""
        grid.add_row(one["name"], one["label"], f"{_gb_s(one)}{mark}", _memory(one), one["source"])
    console = Console(highlight=False)
    print_whole(console, grid)
    console.print(
        "theoretical peaks of one device; * calculated from bus width and transfer rate; --json has the URLs",
        soft_wrap=True,
    )
