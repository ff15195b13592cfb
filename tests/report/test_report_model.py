"""What the page says: verdict, notes, table, views, in ordinary and in odd runs."""

from __future__ import annotations

from typing import Any

from harness.report.model import ReportModel, build
from harness.report.tables import Row


def row(model: ReportModel, name: str) -> Row:
    return next(row for row in model.table.rows if row.name == name)


def notes(model: ReportModel) -> dict[str, str]:
    return {note.code: note.text for note in model.verdict.notes}


def test_the_first_screen(results: Any, series: Any) -> None:
    verdict = build(results, series).verdict
    assert verdict.headline == "Deploy q8_0"
    assert verdict.reason.startswith("125 ± 2 decode tokens/s, 1.33x the reference (f16), and top-1")
    assert verdict.quality == (
        "MMLU cannot tell these variants apart here, so quality = top-1 agreement. "
        "Margin allowed: 5 points of top-1 agreement."
    )
    assert verdict.deploy == "llama-server --model models/smollm2-135m-q8_0.gguf --threads 2 --ctx-size 4096"
    tiles = {tile.label: (tile.cell.text, tile.cell.spread, tile.unit, tile.beside) for tile in verdict.tiles}
    assert tiles == {
        "decode tokens/s": ("125", "± 2", "tokens/s", "1.33x of f16: 94.2 tokens/s"),
        "top-1 agreement": ("98.5", "± 0.6", "%", "f16: 100%"),
        "TTFT": ("181", "± 5", "ms", "f16: 214 ms"),
        "peak memory": ("305", "", "MB", "f16: 432 MB"),
    }
    assert verdict.conditions == (
        "AMD EPYC 9R14, 2 cores, 7.7 GiB RAM", "SmolLM2-135M-Instruct", "llama-cpp-python 0.3.36", "preset quick",
        "contended: 2 of 216 trials",
    )  # fmt: skip


def test_the_warnings_that_matter_are_all_there_urgent_first(results: Any, series: Any) -> None:
    results["status"] = "partial"
    model = build(results, series)
    assert [note.code for note in model.verdict.notes if note.urgent] == ["partial", "failed"]
    assert model.verdict.notes[0].urgent
    said = notes(model)
    assert said["failed"] == "q8_0+draft, fidelity: the worker died: out of memory."
    assert said["restored"].startswith("F16 was restored from the shipped Q4_1 file")
    assert said["sample_not_mmlu"].startswith("MMLU-format sample (not MMLU): ")
    assert "at_chance" in said
    assert said["estimated_energy"] == ("No RAPL counter can be read on this virtual machine. An estimate never ranks.")
    assert said["contended"] == "Other load took the CPU during 2 of 216 trials; 2 were repeated."


def test_much_contention_is_urgent_and_a_quiet_run_says_quiet(results: Any, series: Any) -> None:
    results["conditions"]["quiet"]["contended_trials"] = 12
    urgent = {note.code for note in build(results, series).verdict.notes if note.urgent}
    assert "contended" in urgent
    results["conditions"]["quiet"]["contended_trials"] = 0
    verdict = build(results, series).verdict
    assert verdict.conditions[-1] == "quiet: 216 trials"
    assert "contended" not in {note.code for note in verdict.notes}


def test_the_runs_own_words_replace_ours(results: Any, series: Any) -> None:
    results["conditions"]["notes"] = [{"code": "restored", "text": "made from Q4_1"}, {"code": "swap", "text": "on"}]
    model = build(results, series)
    assert notes(model)["restored"] == "made from Q4_1."
    assert [note.label for note in model.verdict.notes if note.code == "swap"] == ["Swap"]


def test_many_failures_are_counted(results: Any, series: Any) -> None:
    for variant in results["variants"]:
        variant["failures"] = [{"suite": "mmlu", "reason": "hang"}]
    model = build(results, series)
    assert notes(model)["failed"] == "9 cells failed; the reasons are under Conditions."
    assert len(model.conditions.failures) == 9


def test_the_table_is_sorted_by_the_objective_and_says_each_fate(results: Any, series: Any) -> None:
    model = build(results, series)
    assert [row.name for row in model.table.rows][:4] == ["q2_k", "q4_0", "q8_0", "q4_k_m"]
    fates = {row.name: (row.state, row.verdict, row.odds) for row in model.table.rows}
    assert fates["q8_0"] == ("chosen", "Deploy", "front in 100% of resamples")
    assert fates["q4_0"] == ("front", "on the front", "front in 100% of resamples")
    assert fates["q4_k_m"] == ("dominated", "dominated by q8_0", "front in 4% of resamples")
    assert fates["f16+draft"] == ("dominated", "dominated by f16", "front in 0% of resamples")
    assert fates["q8_0+draft"] == ("out", "left out", "")
    assert row(model, "q4_0").why == "top-1 agreement 91.2%, below 95%"
    assert row(model, "q8_0+draft").why == "the cell that gives this figure failed"


def test_lower_objectives_sort_upwards_and_missing_ones_last(results: Any, series: Any) -> None:
    results["decision"]["objective"] = "ttft_s"
    names = [row.name for row in build(results, series).table.rows]
    assert names[0] == "q4_0"
    assert names[-1] == "q2_k"


def test_a_code_that_holds_for_a_whole_column_is_said_in_its_heading(results: Any, series: Any) -> None:
    model = build(results, series)
    heads = {column.label: [chip.label for chip in column.chips] for column in model.table.columns}
    assert heads["energy"] == ["est."]
    assert heads["MMLU-format sample (not MMLU)"] == ["sample", "cannot tell"]
    energy = row(model, "f16").cells[7]
    assert (energy.text, energy.spread, energy.muted, energy.chips) == ("0.32", "± 0.13", True, ())


def test_estimated_energy_is_told_not_plotted(results: Any, series: Any) -> None:
    view = build(results, series).views[2]
    assert view.wide is None
    assert view.instead.startswith("No RAPL counter can be read on this virtual machine. Energy per token is an")
    assert "never ranks" in view.instead


def test_measured_energy_is_plotted(results: Any, series: Any) -> None:
    for variant in results["variants"]:
        variant["metrics"]["energy_j_per_token"]["reasons"] = []
    results["conditions"]["energy"]["method"] = "rapl"
    view = build(results, series).views[2]
    assert view.wide is not None
    assert len(view.wide.dots) == 8  # q8_0+draft has no top-1 agreement


def test_what_the_front_leaves_out_is_not_drawn_but_listed(results: Any, series: Any) -> None:
    front = build(results, series).front
    assert front.wide is not None
    assert "q8_0+draft" not in {dot.mark.name for dot in front.wide.dots}
    assert front.left_out == (("q8_0+draft", "the cell that gives this figure failed"),)
    assert front.tied == ("f16, f16+lookup",)
    q8 = next(dot.mark for dot in front.wide.dots if dot.mark.name == "q8_0")
    assert (q8.chosen, q8.front, q8.reference) == (True, True, False)
    assert q8.title.endswith("on the front in 100% of resamples")


def test_a_coded_figure_is_on_no_view(results: Any, series: Any) -> None:
    results["variants"][2]["metrics"]["decode_tps"]["reasons"] = ["contended"]
    front = build(results, series).front
    assert front.wide is not None
    assert "q4_0" not in {dot.mark.name for dot in front.wide.dots}


def test_the_reference_agrees_with_itself_even_where_nothing_is_stored(results: Any, series: Any) -> None:
    del results["variants"][0]["metrics"]["top1_agreement"]
    model = build(results, series)
    assert row(model, "f16").cells[6].text == "100"
    assert model.front.wide is not None
    assert "f16" in {dot.mark.name for dot in model.front.wide.dots}


def test_no_choice(results: Any, series: Any) -> None:
    results["decision"] |= {"choice": None, "reason": "No variant qualifies: none is shown to have TTFT <= 5 ms."}
    verdict = build(results, series).verdict
    assert verdict.headline == "No variant qualifies"
    assert verdict.reason == "None is shown to have TTFT <= 5 ms."
    assert (verdict.tiles, verdict.deploy) == ((), "")


def test_a_front_without_members(results: Any, series: Any) -> None:
    everyone = [{"name": v["name"], "reasons": ["not_measured"]} for v in results["variants"]]
    results["fronts"] = [
        {"objectives": ["top1_agreement", "decode_tps"], "members": [], "p_front": {}, "left_out": everyone, "tied": []}
    ]
    front = build(results, series).front
    assert (front.wide, front.summary) == (None, "No variant is on this front.")
    assert front.instead == "No variant has both figures, so nothing is drawn."
    assert len(front.left_out) == 9


def test_one_variant_only(results: Any, series: Any) -> None:
    results["variants"] = results["variants"][:1]
    results["fronts"] = [
        {"objectives": ["top1_agreement", "decode_tps"], "members": ["f16"], "p_front": {}, "left_out": [], "tied": []}
    ]
    results["decision"] |= {"choice": "f16", "losers": [], "reason": "Deploy f16, the reference: 94.2 decode tokens/s."}
    model = build(results, {})
    assert model.verdict.reason == "The reference: 94.2 decode tokens/s."
    assert [tile.beside for tile in model.verdict.tiles] == ["", "", "", ""]
    assert model.front.wide is not None
    assert model.front.wide.line == ""
    assert model.speculation is None


def test_a_suite_that_was_not_run(results: Any, series: Any) -> None:
    for variant in results["variants"]:
        for key in ("mmlu_acc", "mmlu_delta", "mmlu_flips"):
            del variant["metrics"][key]
    del results["suites"]["mmlu"]
    model = build(results, series)
    assert [figure.id for figure in model.quality.suites] == ["fig-long_context", "fig-code_syntax"]
    cell = row(model, "q8_0").cells[5]
    assert (cell.text, cell.missing, [chip.label for chip in cell.chips]) == ("—", True, ["not run"])
    assert cell.title == "MMLU accuracy: the suite that gives this figure was not run"


def test_speculation_is_told_without_embarrassment(results: Any, series: Any) -> None:
    del series["speculation"]  # without the paired cells, the speeds themselves are compared
    told = build(results, series).speculation
    assert told is not None
    assert told.words == (
        "Speculation loses here: q8_0+lookup decodes at 0.88x of q8_0; f16+lookup decodes at 0.93x of f16; "
        "q8_0+draft decodes at 0.49x of q8_0; f16+draft decodes at 0.53x of f16."
    )
    for variant in results["variants"]:
        if "+" in variant["name"]:
            variant["metrics"]["decode_tps"]["value"] = 300.0
    told = build(results, series).speculation
    assert told is not None
    assert told.words.startswith("Speculation pays here: ")


def test_claims_carry_their_figures(results: Any, series: Any) -> None:
    first, second, third, fourth = build(results, series).claims
    assert first.measured == (("q4_0", "1.81 ± 0.04x"), ("q4_k_m", "1.26 ± 0.04x"))
    assert [claim.tone for claim in (first, second, third, fourth)] == ["yes", "no", "open", "open"]
    assert fourth.measured == ()


def test_settings_that_all_share_are_said_once(results: Any, series: Any) -> None:
    conditions = build(results, series).conditions
    assert dict(conditions.shared) == {
        "backend": "llama_cpp", "ctx": "4096", "flash_attention": "no", "kv": "f16", "threads": "2"
    }  # fmt: skip
    assert conditions.setting_names == ("speculate", "speculation", "weights")
    assert conditions.settings[5] == ("f16+lookup", "lookup", "—", "f16")
    assert conditions.settings[6] == ("f16+draft", "draft", "kind draft_model, tokens 4", "f16")


def test_flips_and_samples_are_cut_at_twenty_and_counted(results: Any, series: Any) -> None:
    quality = build(results, series).quality
    assert (len(quality.flips), quality.flips_total) == (20, 34)
    assert (quality.flips[3].gold, quality.flips[3].before, quality.flips[3].after) == (
        "C Earth",
        "C Earth",
        "A Mercury",
    )


def test_a_flip_without_its_question_still_names_the_answers(results: Any, series: Any) -> None:
    series["flips"] = [{"variant": "q2_k", "subject": "law", "doc_id": 7, "gold": 1, "reference_pred": 1, "pred": None}]
    (flip,) = build(results, series).quality.flips
    assert (flip.item, flip.gold, flip.before, flip.after, flip.margin) == ("7", "B", "B", "—", "—")


def test_a_flip_at_a_near_tie_says_so(results: Any, series: Any) -> None:
    base = {"variant": "q2_k", "subject": "law", "doc_id": 7, "gold": 1, "reference_pred": 1, "pred": 0}
    series["flips"] = [
        {**base, "margin": 0.8, "reference_margin": 0.05, "near_tie": True},
        {**base, "margin": 0.8, "reference_margin": 1.5, "near_tie": False},
    ]
    assert [flip.margin for flip in build(results, series).quality.flips] == ["0.050 nats, near tie", "0.80 nats"]


def test_noise_floors_stand_beside_the_scores(results: Any, series: Any) -> None:
    metrics = results["variants"][1]["metrics"]
    metrics["kl_mean"] |= {"value": 0.0039, "conditions": {"floor": 0.015, "within_noise": True}}
    metrics["top1_agreement"]["conditions"] = {"floor": 0.962}
    metrics["mmlu_flips"] |= {"value": 0.12, "conditions": {"floor": 0.35, "near_ties": 5, "flipped": 27}}
    quality = build(results, series).quality
    assert quality.fidelity is not None and quality.noisy
    heads = [column.label for column in quality.fidelity.columns]
    cells = dict(zip(heads, next(r for r in quality.fidelity.rows if r.name == "q8_0").cells, strict=True))
    assert cells["KL to reference"].noise == ("noise floor 0.0150",)
    assert [chip.label for chip in cells["KL to reference"].chips] == ["within noise"]
    assert cells["top-1 agreement"].noise == ("noise floor 96.2",)
    assert cells["top-1 agreement"].chips == ()
    assert cells["MMLU flips"].noise == ("near ties: 5 of 27",)
    assert "floor 0.350; near ties 5" in cells["MMLU flips"].title


def test_without_noise_floors_nothing_is_said_of_them(results: Any, series: Any) -> None:
    quality = build(results, series).quality
    assert quality.fidelity is not None and not quality.noisy
    assert "log-probability noise floor" not in [column.label for column in quality.fidelity.columns]


def test_a_speculation_fault_is_urgent_and_on_the_first_screen(results: Any, series: Any) -> None:
    assert "lossy_speculation" not in notes(build(results, series))
    results["variants"][6]["metrics"]["audit_identical"] = {"value": 0.5, "reasons": ["lossy_speculation"]}
    verdict = build(results, series).verdict
    assert verdict.notes[0].label == "FAULT"
    assert verdict.notes[0].urgent
    assert verdict.notes[0].text == (
        "f16+draft: speculation changed the text by more than rounding can; do not deploy. See Speculation."
    )


def test_only_programs_that_do_not_parse_are_listed(results: Any, series: Any) -> None:
    quality = build(results, series).quality
    assert [(sample.variant, sample.verdict) for sample in quality.samples] == [("q2_k", "invalid")]
    assert quality.samples_total == 1


def test_a_reference_at_chance_is_said_whatever_the_suite(results: Any, series: Any) -> None:
    results["suites"]["mmlu"]["separates"] = True
    results["suites"]["long_context"]["at_chance"] = True
    assert notes(build(results, series))["at_chance"] == (
        "Long context: planted facts: the reference does not beat guessing, so it decides nothing."
    )


def test_gpus_are_named(results: Any, series: Any) -> None:
    results["machine"]["gpus"] = [{"name": "H200", "driver": "570"}]
    model = build(results, series)
    assert model.verdict.conditions[0] == "AMD EPYC 9R14, 2 cores, 7.7 GiB RAM, H200"
    assert dict(model.conditions.about)["GPUs"] == "H200"


def test_code_cut_by_the_cap_is_no_bad_syntax(results: Any, series: Any) -> None:
    series["code_by_language"] = {"f16": {"cpp": {"parsed": 2, "total": 4, "truncated": 1}}}
    grid = build(results, series).quality.code
    assert grid is not None
    assert [column.label for column in grid.columns] == ["C++"]
    assert (grid.rows[0].cells[0].text, grid.rows[0].cells[0].spread) == ("2/3", "+1 cut")


def test_streams_share_one_time_axis(results: Any, series: Any) -> None:
    series["streams"] = {
        "f16": {"sent_s": 0, "events": [[0.5, 1], [1.0, 3]], "prompt_tokens": 8},
        "q8_0": {"sent_s": 0, "events": [[0.25, 1], [0.5, 1]], "prompt_tokens": 8},
    }
    streams = build(results, series).streams
    assert streams is not None
    assert streams.seconds == 1.02
    fast, slow = streams.rows
    assert (fast.name, fast.caption, fast.path) == ("q8_0", "2 tokens in 0.50 s", "M245.1 24v-8M490.2 24v-8")
    assert slow.caption == "4 tokens in 1.00 s, up to 3 at once"
    assert slow.path == "M490.2 24v-8M980.4 24v-16"
    assert slow.times == "0.500:1 1.000:3"
