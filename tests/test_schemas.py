"""The published JSON Schemas are in step with the code and say what the code says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from harness.cli import places
from harness.errors import HarnessError
from harness.load import load
from harness.schemas import SCHEMAS, check_results, results_schema, text_of, variants_schema
from harness.yaml_tree import read

STARTER = Path(__file__).parent.parent / "variants.yaml"
METRIC = {"value": 125.0, "low": 120.0, "high": 130.0, "n": 30, "unit": "tokens/s", "better": "higher", "reasons": []}


def results(**metric: Any) -> dict[str, Any]:
    return {
        "schema_version": 1, "run_id": "r1", "created": "2026-01-01T00:00:00Z", "harness_version": "0.1.0",
        "preset": "quick", "status": "complete", "machine": {"fingerprint": "abc", "cores": 2}, "conditions": {},
        "suites": {"mmlu": {"label": "MMLU"}},
        "variants": [
            {
                "name": "f16", "reference": True, "id": "ff", "status": "ok", "failures": [],
                "settings": {"weights": "f16"}, "model_file": "m.gguf", "model_digest": "aa", "deploy": "run it",
                "metrics": {"decode_tps": {**METRIC, **metric}},
            }
        ],
        "fronts": [{"objectives": ["mmlu_acc", "decode_tps"], "members": ["f16"], "p_front": {"f16": 1.0}}],
    }  # fmt: skip


@pytest.mark.parametrize("name", SCHEMAS)
def test_files_are_in_step_with_the_code(name):
    published = places.variants_schema().parent / name
    assert published.read_text(encoding="utf-8") == text_of(name), "run: python -m harness.schemas"
    Draft202012Validator.check_schema(SCHEMAS[name]())


def faults(schema: dict[str, Any], value: Any) -> list[str]:
    return [error.message for error in Draft202012Validator(schema).iter_errors(value)]


def test_the_starter_file_fits_its_schema_and_names_it():
    tree = read(STARTER.read_text(encoding="utf-8"))
    assert faults(variants_schema(), tree.value) == []
    first = STARTER.read_text(encoding="utf-8").splitlines()[0]
    assert first == "# yaml-language-server: $schema=harness/schema/variants.schema.json"
    assert (STARTER.parent / "harness/schema/variants.schema.json").is_file()


GOOD = {"version": 1, "model": "demo", "reference": "f16"}


@pytest.mark.parametrize(
    "change",
    [
        {"speed": 1}, {"version": 2}, {"settings": {"n_gpu_layer": 1}}, {"settings": {"threads": "many"}},
        {"matrix": {"weights": []}}, {"matrix": {"weights": ["f17"]}}, {"matrix": {"weights": None}},
        {"suites": {"speed": None}}, {"speculate": {"a": {"kind": "magic"}}}, {"variants": [{"weights": "f16"}]},
    ],
)  # fmt: skip
def test_the_schema_refuses_what_the_loader_refuses(change):
    assert faults(variants_schema(), {**GOOD, **change})


@pytest.mark.parametrize(
    "change",
    [
        {"x-anchors": {"any": 1}},
        {"matrix": {"weights": ["f16"], "exclude": [{"weights": "f16"}, {"weights": ["q4_0", "f16"]}]}},
        {"settings": {"threads": "auto", "flash_attention": True}},
        {"suites": {"speed": {}, "mmlu": {"per_subject": "all"}}},
    ],
)
def test_the_schema_accepts_what_the_loader_accepts(change, write_config):
    assert faults(variants_schema(), {**GOOD, **change}) == []


def test_the_loader_reads_the_starter_file():
    assert load(STARTER).reference == "f16"


def test_results_fit_both_the_schema_and_the_model():
    assert faults(results_schema(), results()) == []
    assert check_results(results()).variants[0].metrics["decode_tps"].value == 125.0


@pytest.mark.parametrize(
    "metric",
    [
        {"value": None, "reasons": []},
        {"value": "fast"},
        {"better": "bigger"},
        {"n": -1},
        {"extra": 1},
    ],
)
def test_a_missing_value_needs_a_reason_and_figures_are_closed(metric):
    assert faults(results_schema(), results(**metric))
    with pytest.raises(HarnessError, match=r"results\.json: variants\.0\.metrics\.decode_tps"):
        check_results(results(**metric))


def test_a_missing_value_with_a_known_reason_is_fine_and_nan_never_is():
    missing = {"value": None, "low": None, "high": None, "n": 0, "reasons": ["not_measured"]}
    assert faults(results_schema(), results(**missing)) == []
    assert check_results(results(**missing)).variants[0].metrics["decode_tps"].reasons == ("not_measured",)
    with pytest.raises(HarnessError, match="unknown reason codes"):
        check_results(results(value=None, reasons=["because"]))
    with pytest.raises(HarnessError, match="finite"):
        check_results(results(value=float("nan")))
