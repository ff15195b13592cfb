"""Cells and their identities, suite sizes from presets, and estimates."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from harness.backends.base import EngineSpec, Speculate
from harness.config import Config, Variant, expand
from harness.costs import (
    DEMO,
    Footprint,
    Machine,
    cell_s,
    default_machine,
    disk_bytes,
    longest_scored,
    size_of_file,
    suite_tokens,
    variant_cost,
)
from harness.errors import ConfigError, InputError
from harness.plan import Cell, canonical_json, cell_id, cells, model_note, scoring_identity, spec_identity, warnings
from harness.presets import PRESETS, resolve, without_energy
from harness.suite_plans import FidelityPlan, MmluPlan, SpeedPlan, SuitePlan
from harness.suite_settings import BY_DEFAULT

DRAFT = Speculate("draft_model", tokens=4, draft_path="/models/draft.gguf", draft_digest="d1")
SPEC = EngineSpec(backend="llama_cpp", model_path="/models/m.gguf", model_digest="aa", weights="q4_0", speculate=DRAFT)


def config(**parts: Any) -> Config:
    base = {"version": 1, "model": "demo", "reference": "f16", "matrix": {"weights": ["f16", "q8_0"]}}
    return Config.model_validate({**base, **parts})


# --- identities


def test_three_configurations_that_look_alike_have_three_identities():
    """Another batch, another draft model, and the same path with other bytes are each a run of their own."""
    batch = replace(SPEC, batch=256)
    draft = replace(SPEC, speculate=replace(DRAFT, draft_digest="d2"))
    bytes_ = replace(SPEC, model_digest="bb")
    identities = {spec_identity(spec) for spec in (SPEC, batch, draft, bytes_)}
    assert len(identities) == 4


@pytest.mark.parametrize(
    "change",
    [
        {"backend": "fake"}, {"model_digest": "bb"}, {"weights": "q4_1"}, {"kv": "q8_0"}, {"flash_attention": True},
        {"threads": 2}, {"batch": 256}, {"ubatch": 256}, {"ctx": 2048}, {"gpu_layers": 1}, {"chat_template": True},
        {"speculate": Speculate()}, {"speculate": Speculate("prompt_lookup")}, {"speculate": replace(DRAFT, tokens=5)},
        {"speculate": replace(DRAFT, ngram=4)}, {"speculate": replace(DRAFT, adapt=True)}, {"extra": {"a": 1}},
    ],
)  # fmt: skip
def test_every_setting_is_in_the_identity(change):
    assert spec_identity(replace(SPEC, **change)) != spec_identity(SPEC)


def test_every_field_of_a_spec_but_its_path_was_tried_above():
    """A setting added later must be added to the test above, too."""
    tried = {"backend", "model_digest", "weights", "kv", "flash_attention", "threads", "batch", "ubatch", "ctx"}
    tried |= {"gpu_layers", "chat_template", "speculate", "extra", "model_path"}
    assert set(EngineSpec.__dataclass_fields__) == tried


def test_paths_are_not_in_the_identity():
    moved = replace(SPEC, model_path="/elsewhere/x.gguf", speculate=replace(DRAFT, draft_path="/tmp/d.gguf"))
    assert spec_identity(moved) == spec_identity(SPEC)
    assert scoring_identity(moved) == scoring_identity(SPEC)


def test_scoring_does_not_depend_on_speculation_and_depends_on_the_rest():
    assert scoring_identity(replace(SPEC, speculate=Speculate())) == scoring_identity(SPEC)
    assert scoring_identity(replace(SPEC, batch=256)) != scoring_identity(SPEC)
    assert scoring_identity(SPEC) != spec_identity(replace(SPEC, speculate=Speculate()))


def test_identities_are_the_same_on_every_machine_and_day():
    plain = EngineSpec(backend="fake", model_path="m", model_digest="aa", weights="f16")
    assert spec_identity(plain) == spec_identity(replace(plain, extra=MappingProxyType({})))
    text = (
        '{"schema":1,"spec":{"backend":"fake","batch":512,"chat_template":false,"ctx":4096,"extra":{},'
        '"flash_attention":false,"gpu_layers":0,"kv":"f16","model_digest":"aa",'
        '"speculate":{"adapt":false,"draft_digest":null,"kind":"none","ngram":3,"tokens":8},'
        '"threads":1,"ubatch":512,"weights":"f16"}}'
    )
    assert spec_identity(plain) == hashlib.sha256(text.encode()).hexdigest()


def test_an_identity_without_a_digest_is_refused():
    with pytest.raises(ValueError, match="digest of the model"):
        spec_identity(replace(SPEC, model_digest=""))
    with pytest.raises(ValueError, match="digest of the draft"):
        scoring_identity(replace(SPEC, speculate=replace(DRAFT, draft_digest=None)))


def test_a_cell_is_identified_by_variant_suite_and_settings():
    base = cell_id("v", "mmlu.docs", {"per_subject": 4, "data_digest": "x"})
    assert base == cell_id("v", "mmlu.docs", {"data_digest": "x", "per_subject": 4})
    others = {
        cell_id("w", "mmlu.docs", {"per_subject": 4, "data_digest": "x"}),
        cell_id("v", "speed.trials", {"per_subject": 4, "data_digest": "x"}),
        cell_id("v", "mmlu.docs", {"per_subject": 5, "data_digest": "x"}),
        cell_id("v", "mmlu.docs", {"per_subject": 4, "data_digest": "y"}),
    }
    assert base not in others
    assert len(others) == 4


@pytest.mark.parametrize(
    ("value", "error"), [(float("nan"), ValueError), ({1: "a"}, TypeError), ({"a": {2}}, TypeError)]
)
def test_canonical_json_refuses_what_has_no_single_text(value, error):
    with pytest.raises(error):
        canonical_json(value)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=10,
)


@given(st.dictionaries(st.text(), JSON, max_size=5))
def test_canonical_json_is_ascii_keeps_the_value_and_ignores_the_order_of_keys(value):
    text = canonical_json(value)
    assert text.isascii()
    assert json.loads(text) == value
    assert canonical_json(dict(reversed(value.items()))) == text


# --- cells

SPECULATE = {"lookup": {"kind": "prompt_lookup"}}


def speculating() -> tuple[tuple[Variant, ...], SuitePlan]:
    chosen = config(matrix={"weights": ["q8_0", "f16"], "speculate": ["none", "lookup"]}, speculate=SPECULATE)
    return expand(chosen), resolve(chosen, "smoke")


def spec_of(variant: Variant) -> EngineSpec:
    lookup = Speculate("prompt_lookup") if variant.speculation else Speculate()
    weights = variant.settings.weights
    return EngineSpec(
        backend="fake", model_path="m", model_digest=f"digest-{weights}", weights=weights, speculate=lookup
    )


def test_cells_start_with_the_reference_and_share_scoring():
    variants, suites = speculating()
    found = cells(variants, suites)
    assert found[0] == Cell("f16", "mmlu", "docs", None, None)
    assert list(dict.fromkeys(cell.variant for cell in found)) == ["f16", "q8_0", "q8_0+lookup", "f16+lookup"]
    shared = {(c.suite, c.part): c.shared_with for c in found if c.variant == "q8_0+lookup"}
    assert shared == {
        ("mmlu", "docs"): "q8_0",
        ("long_context", "probes"): "q8_0",
        ("long_context", "continuation"): None,
        ("code_syntax", "programs"): None,
        ("speed", "trials"): None,
        ("speed", "energy"): None,
        ("fidelity", "kl"): "q8_0",
        ("fidelity", "floor"): "q8_0",
        ("fidelity", "greedy"): None,
        ("fidelity", "audit"): None,
    }
    assert {c.variant for c in found if c.part == "audit"} == {"q8_0+lookup", "f16+lookup"}


def test_shared_cells_have_one_id_and_all_others_their_own():
    variants, suites = speculating()
    found = cells(variants, suites, {v.name: spec_of(v) for v in variants}, {"mmlu": "data"})
    ids = {(c.variant, c.suite, c.part): c.id for c in found}
    assert None not in ids.values()
    for cell in found:
        if cell.shared_with is not None:
            assert cell.id == ids[(cell.shared_with, cell.suite, cell.part)]
    assert len(set(ids.values())) == sum(cell.shared_with is None for cell in found)


def test_other_data_and_another_reference_are_other_cells():
    variants, suites = speculating()
    specs = {v.name: spec_of(v) for v in variants}

    def ids(digest: str, reference_digest: str) -> dict[tuple[str, str], str | None]:
        changed = {**specs, "f16": replace(specs["f16"], model_digest=reference_digest)}
        found = cells(variants, suites, changed, {"mmlu": digest})
        return {(c.suite, c.part): c.id for c in found if c.variant == "q8_0"}

    base = ids("a", "r1")
    assert {key for key, ident in ids("b", "r1").items() if ident != base[key]} == {("mmlu", "docs")}
    assert {key for key, ident in ids("a", "r2").items() if ident != base[key]} == {("fidelity", "kl")}


def test_where_the_data_lies_does_not_matter():
    variants, _ = speculating()
    specs = {v.name: spec_of(v) for v in variants}
    plans = [SuitePlan("quick", mmlu=MmluPlan("letters", 4, 5, folder, 0)) for folder in ("/a", "/b")]
    first, second = (cells(variants, plan, specs, {"mmlu": "digest"}) for plan in plans)
    assert first == second


def test_more_threads_than_cores_and_the_restored_reference_are_named():
    chosen = config(matrix={"threads": [2, 64]}, reference="f16+t2")
    found = warnings(chosen, expand(chosen), cores=4)
    assert found[0].startswith("f16+t64: threads 64 on 4 available cores")
    assert len(found) == 1
    assert "restored" in str(model_note(chosen))


# --- presets


def test_sizes_come_from_the_preset_and_stated_ones_win():
    chosen = config(suites={"mmlu": {"form": "letters"}, "speed": {"rounds": 3}})
    plan = resolve(chosen, "quick")
    assert plan.mmlu == MmluPlan("letters", per_subject=4, shots=5, data=None, seed=0)
    assert plan.speed == SpeedPlan(
        prompt_tokens=(32, 96, 256),
        output_tokens=33,
        rounds=3,
        seed=0,
        depths=(512, 1024),
        depth_rounds=3,
        most_rounds=3,
        energy_windows=3,
    )
    assert [name for name, _ in plan.items()] == ["mmlu", "speed"]
    assert resolve(chosen, "smoke").mmlu == MmluPlan("letters", 1, 5, None, 0)


@pytest.mark.parametrize(
    ("stated", "rounds", "most"),
    [
        ({}, 15, 30),
        ({"rounds": 4}, 4, 4),
        ({"most_rounds": 40}, 15, 40),
        ({"rounds": 4, "most_rounds": 9}, 4, 9),
    ],
)
def test_rounds_stated_alone_are_exactly_those(stated: dict[str, int], rounds: int, most: int):
    plan = resolve(config(suites={"speed": stated}), "quick").speed
    assert plan is not None and (plan.rounds, plan.most_rounds) == (rounds, most)


@pytest.mark.parametrize(
    "wrong", [{"rounds": 801}, {"most_rounds": 801}, {"depth_rounds": 801}, {"prompt_tokens": [3, 64]}]
)
def test_rounds_without_prompts_and_prompts_too_short_are_refused_before_anything_is_measured(wrong: dict[str, Any]):
    with pytest.raises(ValueError, match=next(iter(wrong))):
        config(suites={"speed": wrong})


def test_a_limit_below_the_rounds_is_a_fault():
    with pytest.raises(ConfigError, match="most_rounds: 3 is below rounds, which is 15"):
        resolve(config(suites={"speed": {"most_rounds": 3}}), "quick")


def test_precision_is_a_share_or_a_percentage():
    plan = resolve(config(suites={"speed": {"precision": {"decode_tps": "2%", "ttft_s": 0.05}}}), "quick").speed
    assert plan is not None and plan.precision == {"decode_tps": 0.02, "ttft_s": 0.05}
    default = resolve(config(suites={"speed": {}}), "quick").speed
    assert default is not None and default.precision == {"decode_tps": 0.03}
    for wrong in ({"decode_tps": "0%"}, {"decode_tps": "2 percent"}, {"decode_tps": 2}, {"e2e_s": 0.1}):
        with pytest.raises(ValueError, match="precision"):
            config(suites={"speed": {"precision": wrong}})


def test_all_means_no_limit_and_the_continuation_form_takes_no_examples():
    plan = resolve(config(suites={"mmlu": {"per_subject": "all"}}), "smoke")
    assert plan.mmlu == MmluPlan("continuation", per_subject=None, shots=0, data=None, seed=0)
    assert resolve(config(suites={"mmlu": {"shots": 2}}), "full").mmlu == MmluPlan("continuation", None, 2, None, 0)


@pytest.mark.parametrize("preset", PRESETS)
def test_every_preset_resolves_every_suite_in_the_default_context(preset):
    plan = resolve(config(), preset)
    assert [name for name, _ in plan.items()] == list(BY_DEFAULT)
    for suite in BY_DEFAULT:
        assert json.loads(json.dumps(plan.settings_of(suite))) == plan.settings_of(suite)


def test_a_chosen_suite_runs_alone_and_unknown_names_are_refused():
    assert [name for name, _ in resolve(config(), "quick", ("speed",)).items()] == ["speed"]
    with pytest.raises(InputError, match=r"--suite: unknown 'sped'.*Did you mean 'speed'"):
        resolve(config(), "quick", ("sped",))
    with pytest.raises(InputError, match="--suite: unknown 'mmlu'; known: speed"):
        resolve(config(suites={"speed": {}}), "quick", ("mmlu",))
    with pytest.raises(InputError, match=r"--preset: unknown 'quik'.*Did you mean 'quick'"):
        resolve(config(), "quik")


def test_a_context_that_is_too_small_is_named_before_anything_runs():
    with pytest.raises(ConfigError) as caught:
        resolve(
            config(settings={"ctx": 1024}, suites={"long_context": {"continuation_from": 1900}, "speed": {}}), "quick"
        )
    lines = str(caught.value).splitlines()
    assert "long_context: depth 2048 and a probe need 2304 tokens; the smallest ctx is 1024" in lines[0]
    assert "long_context: continuation to 1948 need" in lines[1]
    assert len(lines) == 2


def test_the_smallest_context_of_any_variant_counts():
    chosen = config(variants=[{"name": "tiny", "ctx": 64}], suites={"speed": {}})
    with pytest.raises(ConfigError, match="the smallest ctx is 64"):
        resolve(chosen, "smoke")


def test_depths_of_a_preset_give_way_to_a_small_context_and_stated_ones_are_refused():
    def depths(preset: str, **parts: Any) -> tuple[int, ...]:
        plan = resolve(config(**parts), preset).speed
        assert plan is not None
        return plan.depths

    speed = {"suites": {"speed": {}}}
    assert depths("full", **speed) == (512, 1024, 2048, 3584)
    assert depths("full", **speed, settings={"ctx": 8208}) == (512, 1024, 2048, 3584, 8192)
    assert depths("full", **speed, settings={"ctx": 8207})[-1] == 3584
    assert depths("quick", **speed, settings={"ctx": 1039}) == (512,)
    assert depths("smoke", **speed) == depths("quick", suites={"speed": {"depths": []}}) == ()
    stated = config(settings={"ctx": 1024}, suites={"speed": {"depths": [512, 1024]}})
    with pytest.raises(ConfigError, match="speed: depth 1024 and 16 tokens need 1040 tokens; the smallest ctx is 1024"):
        resolve(stated, "quick")
    for wrong in ([8], [512, 256]):
        with pytest.raises(ValidationError):
            config(suites={"speed": {"depths": wrong}})


def test_depths_are_for_variants_that_do_not_speculate_and_only_where_there_are_any():
    variants, _ = speculating()
    for depths, names in (((16,), ["f16", "q8_0"]), ((), [])):
        suites = SuitePlan("quick", speed=SpeedPlan((100,), 10, 1, 0, depths, 2))
        assert [cell.variant for cell in cells(variants, suites) if cell.part == "depth"] == names


# --- estimates


def test_tokens_of_a_suite_are_counted():
    assert suite_tokens(SpeedPlan((100, 200), 10, 5, 0), "trials") == (10 * 150, 10 * 10)
    assert suite_tokens(SpeedPlan((100, 200), 10, 5, 0, (50, 300), 3), "depth") == (3 * 300, 3 * 2 * 16)
    assert suite_tokens(MmluPlan("continuation", 1, 0, None, 0), "docs") == (57 * (90 + 32), 0)
    assert suite_tokens(MmluPlan("letters", None, 5, None, 0), "docs") == (14_042 * (540 + 32), 0)
    fidelity = FidelityPlan(tokens=100, floor_tokens=20, greedy_prompts=3, greedy_tokens=10, seed=0)
    assert suite_tokens(fidelity, "floor") == (3 * 20, 20)
    assert suite_tokens(fidelity, "greedy") == (3 * 64, 3 * 10)
    assert suite_tokens(fidelity, "audit") == (3 * 3 * 64, 3 * 3 * 10)


def test_estimates_follow_from_bytes_and_tokens():
    (f16, _), _ = expand(config()), None
    machine = Machine(bandwidth_bytes_per_s=1e9, operations_per_s=2e9, operations_decode_per_s=4e9)
    size = replace(DEMO, n_params=1e9, kv_bytes_per_token=1000.0)
    suites = SuitePlan("quick", speed=SpeedPlan((100,), 10, 1, 0))
    # 2 trials: 200 prompt tokens of 1 s, 20 steps of 2 s reading and 0.5 s computing; a quarter more for sentinels and
    # repeats, 8 warm-ups of 12 tokens, 1.5 s to start.
    expected = 1.25 * (200 + 20 * 2.5) + 8 * 12 * 2.5 + 1.5
    assert cell_s(Cell("f16", "speed", "trials", None), f16, suites, size, machine) == pytest.approx(expected)
    assert cell_s(Cell("f16", "speed", "trials", None, "other"), f16, suites, size, machine) == 0.0
    often = SuitePlan("quick", speed=SpeedPlan((100,), 10, 5, 0))  # three launches: after two rounds each
    expected = 5 * 1.25 * (200 + 20 * 2.5) + 3 * (8 * 12 * 2.5 + 1.5)
    assert cell_s(Cell("f16", "speed", "trials", None), f16, often, size, machine) == pytest.approx(expected)
    # 2 GB of weights, 4096 x 1000 bytes of cache, 9 heads and a mask for 512 tokens at once, 100 MB of process.
    assert variant_cost(f16, size).memory_bytes == pytest.approx(2e9 + 4_096_000 + 4 * 512 * 10 * 4096 + 100e6)


def test_memory_is_told_item_by_item():
    """A batch of 8 tokens; 100 cells to generate and 40 to score; 3 heads and a mask; 1000 tokens of vocabulary."""
    plain = Footprint(5e6, 0, 10, 0, 3, 1000, 100, 40, 8, flash_attention=False)
    attention, logits, compared = 4 * 8 * 4, 4 * 8 * 1000, 8 * 128 * 1000
    assert plain.items() == {
        "model": 5e6,
        "key-value cache": 1000,
        "cache for scoring": 400,
        "buffers": attention * 100 + 2 * logits + compared,  # the logits are more than 40 cells' attention
        "process": 100e6,
    }
    assert plain.total == sum(plain.items().values())
    wide = replace(plain, scoring_cells=1000, flash_attention=True)
    assert wide.items()["buffers"] == 4 * 8 * 100 + max(4 * 8 * 1000, logits) + logits + compared
    drafting = replace(plain, draft_bytes=1e6, draft_kv_bytes=2, scoring_cells=0)
    assert drafting.items() == {
        "model": 5e6, "draft model": 1e6, "key-value cache": 1200, "buffers": 2 * attention * 100, "process": 100e6,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("parts", "longest"),
    [
        ({"speed": {}}, 0),
        ({"mmlu": {}}, 1100),
        ({"mmlu": {"form": "letters"}}, 3800),
        ({"long_context": {"depths": [3000]}}, 3256),
        ({"fidelity": {"tokens": 700}}, 700),
        ({"fidelity": {"tokens": 100_000}}, 3500),
        ({"mmlu": {"form": "letters"}, "fidelity": {"tokens": 100_000}}, 3800),
    ],
)
def test_the_longest_text_that_is_scored_follows_from_the_suites(parts, longest):
    plan = resolve(config(suites=parts), "smoke")
    assert longest_scored(plan, 4096) == longest
    assert longest_scored(plan, 2000) == min(longest, 2000)


def test_a_precision_is_stored_once_and_drafts_count():
    chosen = config(
        matrix={"weights": ["f16", "q8_0"], "speculate": ["none", "d"]},
        speculate={"d": {"kind": "draft_model", "weights": "q4_0"}},
    )
    size = replace(DEMO, n_params=8e6, source_bytes=1000)
    assert disk_bytes(expand(chosen), size) == pytest.approx(16e6 + 8.5e6 + 4.5e6 + 1000)


def test_the_size_of_a_file_is_read_from_its_name():
    assert size_of_file(2_000_000, "x-F16.gguf").n_params == 1_000_000
    assert size_of_file(489_000, "x-Q4_K_M.gguf").n_params == pytest.approx(800_000)
    assert size_of_file(2_000_000, "unnamed.gguf").n_params == 1_000_000


def test_more_cores_are_assumed_faster_up_to_a_bandwidth():
    assert default_machine(2, None, None).bandwidth_bytes_per_s == 30e9
    assert default_machine(64, None, None).bandwidth_bytes_per_s == 60e9


def test_energy_windows_are_planned_where_energy_is_counted_and_cost_their_time():
    speed = SpeedPlan((100,), 10, 1, 0, energy_windows=3)
    variants = expand(config(suites={"speed": {}}))
    counted = SuitePlan("quick", speed=speed)
    found = [cell for cell in cells(variants, counted) if cell.part == "energy"]
    assert [cell.variant for cell in found] == [variant.name for variant in variants]
    assert not [cell for cell in cells(variants, without_energy(counted)) if cell.part == "energy"]
    assert without_energy(SuitePlan("quick")) == SuitePlan("quick")
    machine = Machine(1e9, 1e9, 1e9)
    # Three kinds of three windows of 5 s, and the start.
    assert cell_s(found[0], variants[0], counted, DEMO, machine) == pytest.approx(1.5 + 45)
