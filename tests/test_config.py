"""Variants from a matrix: names, exclusions, limits and the faults between settings."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from harness.config import MAX_VARIANTS, Config, Source, expand, select
from harness.errors import ConfigError, InputError
from harness.settings import KV_BITS, WEIGHT_BITS, PromptLookup, VariantSettings
from harness.suite_settings import BY_DEFAULT, SUITES

SPECULATE = {"lookup": {"kind": "prompt_lookup"}, "draft": {"kind": "draft_model", "weights": "q4_0"}}


def config(**parts: Any) -> Config:
    return Config.model_validate({"version": 1, "model": "demo", "reference": "f16", **parts})


def names(**parts: Any) -> list[str]:
    return [variant.name for variant in expand(config(**parts))]


def fault(**parts: Any) -> str:
    with pytest.raises(ConfigError) as caught:
        expand(config(**parts))
    return str(caught.value)


def test_names_show_what_differs_from_the_defaults():
    matrix = {"weights": ["f16", "q4_0"], "kv": ["f16", "q8_0"], "threads": [4], "batch": [512, 256]}
    assert names(reference="f16+t4", matrix=matrix) == [
        *("f16+t4", "q4_0+t4", "f16+kv-q8_0+t4", "q4_0+kv-q8_0+t4"),
        *("f16+t4+b256", "q4_0+t4+b256", "f16+kv-q8_0+t4+b256", "q4_0+kv-q8_0+t4+b256"),
    ]


def test_names_of_the_remaining_axes():
    matrix = {
        "ubatch": [64], "ctx": [8192], "gpu_layers": [20], "flash_attention": [True, False], "backend": ["fake"],
    }  # fmt: skip
    assert names(reference="f16+ub64+ctx8192+fa+gpu20+fake", matrix=matrix) == [
        "f16+ub64+ctx8192+fa+gpu20+fake",
        "f16+ub64+ctx8192+no-fa+gpu20+fake",
    ]


def test_auto_has_a_name_where_it_is_not_the_default():
    matrix = {"threads": ["auto", 2]}
    assert names(matrix=matrix, settings={"threads": 2}, reference="f16") == ["f16+t-auto", "f16"]


def test_weights_may_be_written_in_capitals():
    assert names(matrix={"weights": ["F16", "Q4_K_M"]}) == ["f16", "q4_k_m"]


def test_a_variant_carries_all_settings_its_axes_and_its_speculation():
    plain, fast = expand(config(matrix={"speculate": ["none", "lookup"]}, speculate=SPECULATE, settings={"ctx": 2048}))
    assert (plain.reference, fast.reference) == (True, False)
    assert fast.settings == VariantSettings(ctx=2048, speculate="lookup")
    assert fast.axes == {"speculate": "lookup"}
    assert (plain.speculation, fast.speculation) == (None, PromptLookup(kind="prompt_lookup", ngram=3, tokens=8))


def test_exclusions_need_every_axis_they_name():
    matrix = {
        "weights": ["f16", "q8_0", "q4_0"],
        "speculate": ["none", "lookup", "draft"],
        "exclude": [{"weights": ["q4_0"], "speculate": ["lookup", "draft"]}, {"weights": "q8_0", "speculate": "draft"}],
    }
    assert names(matrix=matrix, speculate=SPECULATE) == [
        *("f16", "q8_0", "q4_0", "f16+lookup", "q8_0+lookup", "f16+draft"),
    ]


def test_single_variants_stand_beside_the_matrix():
    variants = expand(
        config(matrix={"weights": ["f16"]}, variants=[{"name": "small", "weights": "q4_0", "kv": "q8_0"}])
    )
    assert [variant.name for variant in variants] == ["f16", "small"]
    assert variants[1].settings == VariantSettings(weights="q4_0", kv="q8_0")
    assert variants[1].axes == {"weights": "q4_0", "kv": "q8_0"}


def test_single_variants_alone_are_enough():
    assert names(reference="a", variants=[{"name": "a"}, {"name": "b", "weights": "q2_k"}]) == ["a", "b"]


@pytest.mark.parametrize(
    ("parts", "expected"),
    [
        ({}, "no variants; give a matrix with at least one axis, or variants"),
        ({"matrix": {"weights": ["q8_0", "q4_0"]}}, "reference: unknown variant 'f16'; known: q4_0, q8_0"),
        (
            {"matrix": {"weights": ["f16"]}, "variants": [{"name": "f16", "kv": "q8_0"}]},
            "variants[0]: name 'f16' is used twice",
        ),
        (
            {"matrix": {"weights": ["f16", "q4_0"]}, "variants": [{"name": "four", "weights": "q4_0"}]},
            "variants[0]: 'four' has the same settings as 'q4_0'",
        ),
        (
            {
                "matrix": {"speculate": ["none", "a", "b"]},
                "speculate": {"a": {"kind": "prompt_lookup"}, "b": {"kind": "prompt_lookup", "tokens": 8}},
            },
            "'f16+b' has the same settings as 'f16+a'",
        ),
        (
            {"matrix": {"weights": ["f16", "q8_0"], "exclude": [{"weights": "q4_0"}]}},
            "matrix.exclude[0]: matches no combination",
        ),
        ({"matrix": {"weights": ["f16"], "exclude": [{"kv": "q8_0"}]}}, "matrix.exclude[0]: matches no combination"),
        ({"matrix": {"weights": ["f16"], "exclude": [{}]}}, "matrix.exclude[0]: matches no combination"),
        ({"matrix": {"weights": ["f16"], "exclude": [{"weights": "f16"}]}}, "matrix.exclude: leaves no variant"),
        (
            {"matrix": {"speculate": ["none", "lokup"]}, "speculate": SPECULATE},
            "matrix.speculate[1]: unknown 'lokup'; known: draft, lookup, none. Did you mean 'lookup'?",
        ),
        ({"matrix": {"weights": ["f16"]}, "settings": {"speculate": "draft"}}, "settings.speculate: unknown 'draft'"),
        (
            {"matrix": {"kv": ["f16", "q8_0"]}, "settings": {"flash_attention": False}},
            "matrix: variant f16+kv-q8_0: kv q8_0 needs flash attention, which is false",
        ),
        (
            {"matrix": {"ubatch": [512, 1024]}},
            "'f16+ub1024' has the same settings as 'f16'",
        ),
        (
            {"matrix": {"weights": ["f16"]}, "speculate": {"d": {"kind": "draft_model"}}},
            "speculate.d: neither weights nor model; expected one",
        ),
        (
            {
                "matrix": {"weights": ["f16"]},
                "speculate": {"d": {"kind": "draft_model", "weights": "q4_0", "model": "x.gguf"}},
            },
            "speculate.d: both weights and model; expected one",
        ),
        ({"matrix": {"weights": ["f16"]}, "speculate": {"none": {"kind": "prompt_lookup"}}}, "'none' is reserved"),
        (
            {"matrix": {"weights": ["f16"]}, "energy": {"meter": "command"}},
            "energy.meter: command, but no command is given; add command: [program, argument, ...]",
        ),
        (
            {"matrix": {"weights": ["f16"]}, "energy": {"command": ["./meter"]}},
            "energy.command: without effect, as meter is auto; set meter: command",
        ),
        (
            {"matrix": {"weights": ["f16"]}, "energy": {"meter": "rapl", "scope": "wall"}},
            "energy.scope: without effect, as meter is rapl; set meter: command",
        ),
    ],
)
def test_faults_between_settings(parts, expected):
    assert expected in fault(**parts)


def test_faults_name_the_line_of_the_nearest_known_place():
    lines = {(): 1, ("matrix",): 4, ("matrix", "speculate"): 5}
    loaded = config(matrix={"speculate": ["none", "x"]}).with_source(Source("v.yaml", lines))
    with pytest.raises(ConfigError, match=r"^v\.yaml:5: matrix\.speculate\[1\]: unknown 'x'; known: none$"):
        expand(loaded)


def test_a_quantised_cache_goes_with_flash_attention_on_or_auto():
    matrix = {"kv": ["q8_0"], "flash_attention": ["auto", True]}
    assert names(matrix=matrix, reference="f16+kv-q8_0") == ["f16+kv-q8_0", "f16+kv-q8_0+fa"]


def test_ubatch_is_at_most_batch_as_in_llama_cpp():
    variants = expand(config(matrix={"batch": [512, 256]}))
    assert [(v.name, v.settings.batch, v.settings.ubatch) for v in variants] == [
        ("f16", 512, 512),
        ("f16+b256", 256, 256),
    ]


def test_combinations_are_counted_before_any_is_made():
    matrix = {axis: list(range(1, 1001)) for axis in ("threads", "batch", "gpu_layers")}
    matrix["ctx"] = list(range(64, 1064))
    assert f"1000000000000 variants; at most {MAX_VARIANTS}" in fault(matrix=matrix)
    assert len(expand(config(matrix={"threads": list(range(1, 1001))}, reference="f16+t1"))) == 1000
    assert "1001 variants" in fault(matrix={"threads": list(range(1, 1001))}, variants=[{"name": "f16"}])


@pytest.mark.parametrize(
    "parts",
    [
        {"speed": 1},
        {"settings": {"n_gpu_layer": 1}},
        {"settings": {"threads": 0}},
        {"settings": {"threads": True}},
        {"settings": {"ctx": "4096"}},
        {"matrix": {"chat_template": [True, False]}},
        {"matrix": {"weights": "f16"}},
        {"suites": {"mmlu": {"shots": 6}}},
        {"suites": {"speed": {"output_tokens": 1}}},
    ],
)
def test_types_are_strict_and_keys_are_known(parts):
    with pytest.raises(ValidationError):
        config(**parts)


def test_values_are_frozen():
    with pytest.raises(ValidationError):
        config(matrix={"weights": ["f16"]}).settings.ctx = 1


def test_all_suites_run_unless_some_are_listed():
    assert all(getattr(config(matrix={"weights": ["f16"]}).suites, suite) is not None for suite in BY_DEFAULT)
    assert config(matrix={"weights": ["f16"]}).suites.lm_eval is None
    listed = config(matrix={"weights": ["f16"]}, suites={"speed": {}}).suites
    assert [suite for suite in SUITES if getattr(listed, suite) is not None] == ["speed"]


def test_selecting_keeps_the_reference_and_the_order():
    variants = expand(config(matrix={"weights": ["f16", "q8_0", "q4_0"]}))
    assert [variant.name for variant in select(variants, ["q4_0"])] == ["f16", "q4_0"]
    assert select(variants, []) == variants
    with pytest.raises(InputError, match=r"--variant: unknown 'q4'; known: f16, q4_0, q8_0\. Did you mean 'q4_0'\?"):
        select(variants, ["q4"])


WEIGHTS, KV = sorted(WEIGHT_BITS), sorted(KV_BITS)


@given(
    st.lists(st.sampled_from(WEIGHTS), min_size=1, max_size=5, unique=True),
    st.lists(st.sampled_from(KV), min_size=1, max_size=4, unique=True),
    st.lists(st.sampled_from(["none", "lookup", "draft"]), min_size=1, unique=True),
    st.lists(st.integers(1, 64), min_size=1, max_size=3, unique=True),
)
def test_every_combination_is_one_variant_with_its_own_name(weights, kv, speculate, threads):
    matrix = {"weights": weights, "kv": kv, "speculate": speculate, "threads": threads}
    first = config(matrix=matrix, speculate=SPECULATE)
    try:
        variants = expand(first)
    except ConfigError as error:
        # The only thing that may be wrong is the reference; take one that exists.
        reference = str(error).split("known: ")[1].split(", ")[0].split(". Did")[0]
        variants = expand(config(matrix=matrix, speculate=SPECULATE, reference=reference))
    assert len({variant.name for variant in variants}) == len(variants)
    made = {(v.settings.weights, v.settings.kv, v.settings.speculate, v.settings.threads) for v in variants}
    assert made == set(itertools.product(weights, kv, speculate, threads))
    assert sum(variant.reference for variant in variants) == 1
