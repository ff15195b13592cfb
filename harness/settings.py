"""The parts of a configuration: engine settings, speculation, the matrix. Knows no file and no variant names."""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeVar

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, Strict

# Weight types that llama.cpp's quantiser can write, with their bits per weight (llama.cpp's own table,
# tools/quantize/README.md); used for estimates only.
WEIGHT_BITS: dict[str, float] = {
    "f32": 32.0,
    "f16": 16.0,
    "bf16": 16.0,
    "q8_0": 8.5,
    "q6_k": 6.56,
    "q5_k_m": 5.7,
    "q5_k_s": 5.57,
    "q5_0": 5.5,
    "q5_1": 6.0,
    "q4_k_m": 4.89,
    "q4_k_s": 4.67,
    "q4_0": 4.5,
    "q4_1": 5.0,
    "q3_k_l": 4.3,
    "q3_k_m": 4.0,
    "q3_k_s": 3.64,
    "q2_k": 3.16,
    "iq4_nl": 4.68,
    "iq4_xs": 4.46,
}
# Types that llama.cpp accepts for the key-value cache, with bits per value.
KV_BITS: dict[str, float] = {
    "f32": 32.0,
    "f16": 16.0,
    "bf16": 16.0,
    "q8_0": 8.5,
    "q5_1": 6.0,
    "q5_0": 5.5,
    "q4_1": 5.0,
    "q4_0": 4.5,
    "iq4_nl": 4.5,
}
UNQUANTISED = ("f32", "f16", "bf16")


def needs_flash(kv: str) -> bool:
    """Whether a cache of this precision needs flash attention."""
    return kv not in UNQUANTISED


def _lower(value: Any) -> Any:
    return value.lower() if isinstance(value, str) else value


def _as_list(value: Any) -> Any:
    return value if isinstance(value, list | tuple) else [value]


def _distinct(values: tuple[Any, ...]) -> tuple[Any, ...]:
    if not values:
        raise ValueError("an empty list; expected at least one value")
    for index, value in enumerate(values):
        if value in values[:index]:
            raise ValueError(f"{value!r} appears twice; each value once")
    return values


# YAML lists arrive as Python lists; the values inside stay strict.
Lax = Strict(False)

Weights = Annotated[
    Literal[
        "f32", "f16", "bf16", "q8_0", "q6_k", "q5_k_m", "q5_k_s", "q5_0", "q5_1", "q4_k_m",
        "q4_k_s", "q4_0", "q4_1", "q3_k_l", "q3_k_m", "q3_k_s", "q2_k", "iq4_nl", "iq4_xs",
    ],
    BeforeValidator(_lower),
]  # fmt: skip
KvType = Annotated[
    Literal["f32", "f16", "bf16", "q8_0", "q5_1", "q5_0", "q4_1", "q4_0", "iq4_nl"], BeforeValidator(_lower)
]
BackendName = Literal["llama_cpp", "fake"]
Threads = Literal["auto"] | Annotated[int, Field(ge=1, le=4096)]
GpuLayers = Literal["auto"] | Annotated[int, Field(ge=0, le=100_000)]
OnOffAuto = Literal["auto"] | bool
Batch = Annotated[int, Field(ge=1, le=65_536)]
Ctx = Annotated[int, Field(ge=64, le=16_777_216)]
Count = Annotated[int, Field(ge=1, le=10_000_000)]
Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._+-]*$", max_length=80)]


class Model(BaseModel):
    """Base of everything read from a file: frozen, strict types, no unknown keys, no inf or nan."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)


class VariantSettings(Model):
    """Every setting of one variant. ``speculate`` names an entry of the top-level ``speculate`` map, or is 'none'."""

    backend: BackendName = "llama_cpp"
    weights: Weights = "f16"
    kv: KvType = "f16"
    speculate: str = "none"
    flash_attention: OnOffAuto = Field("auto", description="auto: on exactly where a quantised KV cache needs it")
    threads: Threads = Field("auto", description="auto: the CPU cores this process may use")
    batch: Batch = 512
    ubatch: Batch = Field(512, description="at most batch; a larger one counts as batch")
    ctx: Ctx = 4096
    gpu_layers: GpuLayers = Field("auto", description="auto: all layers where a GPU build finds a GPU, else none")
    chat_template: bool = Field(
        False,
        description="put MMLU, code and greedy prompts into the model's chat template, for every variant alike",
    )


_ADAPT = "draft length follows acceptance: 2 more where all drafts were accepted, else 1 fewer, at most tokens"


class PromptLookup(Model):
    """Draft tokens copied from after the last place where the latest n-gram occurred."""

    kind: Literal["prompt_lookup"]
    ngram: Annotated[int, Field(ge=1, le=16)] = 3
    tokens: Annotated[int, Field(ge=1, le=64)] = 8
    adapt: bool = Field(False, description=_ADAPT)


class DraftModel(Model):
    """Draft tokens from a smaller or coarser model: the same model at other ``weights``, or another GGUF file."""

    kind: Literal["draft_model"]
    weights: Weights | None = None
    model: str | None = Field(None, min_length=1, description="path of another GGUF file with the same vocabulary")
    tokens: Annotated[int, Field(ge=1, le=64)] = 4
    adapt: bool = Field(False, description=_ADAPT)


Speculation = Annotated[PromptLookup | DraftModel, Field(discriminator="kind")]


_T = TypeVar("_T")
Axis = Annotated[tuple[_T, ...], Lax, AfterValidator(_distinct), Field(json_schema_extra={"minItems": 1})]
OneOrMore = Annotated[tuple[_T, ...], BeforeValidator(_as_list), Lax, AfterValidator(_distinct)]


class Exclude(Model):
    """Combinations to leave out: all that have one of these values on every axis named here."""

    weights: OneOrMore[Weights] | None = None
    kv: OneOrMore[KvType] | None = None
    speculate: OneOrMore[str] | None = None
    threads: OneOrMore[Threads] | None = None
    batch: OneOrMore[Batch] | None = None
    ubatch: OneOrMore[Batch] | None = None
    ctx: OneOrMore[Ctx] | None = None
    flash_attention: OneOrMore[OnOffAuto] | None = None
    gpu_layers: OneOrMore[GpuLayers] | None = None
    backend: OneOrMore[BackendName] | None = None


class Matrix(Model):
    """Axes whose cross product makes variants."""

    weights: Axis[Weights] | None = None
    kv: Axis[KvType] | None = None
    speculate: Axis[str] | None = None
    threads: Axis[Threads] | None = None
    batch: Axis[Batch] | None = None
    ubatch: Axis[Batch] | None = None
    ctx: Axis[Ctx] | None = None
    flash_attention: Axis[OnOffAuto] | None = None
    gpu_layers: Axis[GpuLayers] | None = None
    backend: Axis[BackendName] | None = None
    exclude: Annotated[tuple[Exclude, ...], Lax] = ()


AXES = tuple(name for name in Matrix.model_fields if name != "exclude")


class SingleVariant(Model):
    """One variant beside the matrix: a name and the settings in which it differs from ``settings``."""

    name: Name
    weights: Weights | None = None
    kv: KvType | None = None
    speculate: str | None = None
    threads: Threads | None = None
    batch: Batch | None = None
    ubatch: Batch | None = None
    ctx: Ctx | None = None
    flash_attention: OnOffAuto | None = None
    gpu_layers: GpuLayers | None = None
    backend: BackendName | None = None
