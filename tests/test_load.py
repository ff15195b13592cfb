"""Reading variants.yaml: every fault is named with its line, and nothing that YAML readers differ on slips through."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.config import expand
from harness.errors import ConfigError
from harness.load import load
from harness.yaml_tree import MAX_DEPTH, Refused, read

HEAD = "version: 1\nmodel: demo\nreference: f16\n"
GOOD = HEAD + "matrix:\n  weights: [f16, q8_0]\n"

AMBIGUOUS = """\
defaults: &d {threads: 4}
variants: [{<<: *d, name: int4, quant: no, n_ctx: 4e3}]
sampler: off
timeout: 12:30
seed: 0123
min_window_s: 1.0e3
max_tokens: 128
max_tokens: 256
"""


def message(path: Path) -> str:
    with pytest.raises(ConfigError) as caught:
        load(path)
    assert caught.value.exit_code == 2
    return str(caught.value)


def test_what_yaml_versions_read_differently_is_seven_findings_and_merge_keys_work():
    tree = read(AMBIGUOUS)
    places = [(place, line) for place, line, _ in tree.findings]
    assert places == [
        (("variants", 0, "quant"), 2),
        (("variants", 0, "n_ctx"), 2),
        (("sampler",), 3),
        (("timeout",), 4),
        (("seed",), 5),
        (("min_window_s",), 6),
        (("max_tokens",), 8),
    ]
    assert tree.value["variants"][0]["threads"] == 4
    assert tree.lines[("variants", 0, "threads")] == 1


def test_all_seven_reach_the_user_with_file_and_line(write_config):
    lines = message(write_config(AMBIGUOUS)).splitlines()
    ambiguous = [line for line in lines if "ambiguous" in line or "duplicate" in line]
    assert len(ambiguous) == 7
    assert ":8: max_tokens: duplicate key 'max_tokens', first given on line 7" in ambiguous[-1]
    assert all(line.startswith(str(write_config(AMBIGUOUS))) for line in lines)


@pytest.mark.parametrize(
    "text", ["yes", "No", "ON", "0x1F", "0o17", "1_000", ".inf", "-.inf", ".nan", "2024-01-31", "1e-5"]
)
def test_ambiguous_plain_values_are_findings_and_quoted_ones_are_text(text):
    assert len(read(f"a: {text}\n").findings) == 1
    quoted = read(f"a: '{text}'\n")
    assert (quoted.value, quoted.findings) == ({"a": text}, [])


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("true", True),
        ("False", False),
        ("0", 0),
        ("-12", -12),
        ("1.5", 1.5),
        ("1.0e+3", 1000.0),
        ("y", "y"),
        ("q4_0", "q4_0"),
    ],
)
def test_clear_plain_values(text, value):
    tree = read(f"a: {text}\n")
    assert (tree.value, tree.findings) == ({"a": value}, [])
    assert type(tree.value["a"]) is type(value)


def test_a_merged_key_never_replaces_an_own_one_and_keeps_its_own_line():
    tree = read("base: &b\n  x: 1\n  y: 2\nuse:\n  <<: *b\n  x: 9\n")
    assert tree.value["use"] == {"x": 9, "y": 2}
    assert (tree.lines[("use", "x")], tree.lines[("use", "y")]) == (6, 3)


def test_findings_inside_an_inline_merge_are_not_lost():
    assert [line for _, line, _ in read("a:\n  <<: {b: off}\n").findings] == [2]


def test_an_earlier_map_of_a_merge_list_wins():
    assert read("a: &a {k: 1}\nb: &b {k: 2}\nc: {<<: [*a, *b]}\n").value["c"] == {"k": 1}


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("a: [1\nb: 2\n", 2),
        ("a: !!python/object:os.system x\n", 1),
        ("a: 1\n---\nb: 2\n", 2),
        ("a: &a [*a]\n", 1),
        ("a: *nowhere\n", 1),
        ("a: '" + "[" * 3 + "\n", 2),
        ("a: " + "[" * (MAX_DEPTH + 2) + "]" * (MAX_DEPTH + 2) + "\n", 1),
    ],
)
def test_what_cannot_be_read_is_refused_with_its_line(text, line):
    with pytest.raises(Refused) as caught:
        read(text)
    assert caught.value.line == line
    assert "\n" not in caught.value.message


def test_an_alias_bomb_is_refused_before_it_grows():
    layers = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    layers += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 12)]
    with pytest.raises(Refused, match="aliases expand to more than"):
        read("\n".join(layers) + "\n")


@pytest.mark.parametrize("link", ["[*a{}]", "{{<<: *a{}}}"])
def test_a_long_chain_of_aliases_is_refused_without_exhausting_the_stack(link):
    layers = ["a0: &a0 {x: 1}"] + [f"a{n}: &a{n} " + link.format(n - 1) for n in range(1, 3000)]
    with pytest.raises(Refused, match="deeper than"):
        read("\n".join(layers) + "\n")


@pytest.mark.parametrize("text", ["1" * 200_000, "1_" * 100_000, "1:" * 100_000 + "x", "1" * 200_000 + "e"])
def test_a_very_long_value_is_text(text):
    """Tried as a number, it would keep the patterns busy for hours."""
    assert read(f"a: '{text}'\nb: {text}\n").value == {"a": text, "b": text}


@given(st.text(max_size=200))
def test_any_text_is_read_or_refused_in_one_line(text):
    try:
        tree = read(text)
    except Refused as refusal:
        assert refusal.line >= 1
        assert "\n" not in refusal.message
    else:
        assert all(line >= 1 for _, line, _ in tree.findings)


def test_unknown_keys_are_rejected_with_a_suggestion(write_config):
    path = write_config(GOOD + "settings:\n  n_gpu_layer: 99\n")
    assert message(path) == (
        f"{path}:7: settings.n_gpu_layer: unknown key; known: backend, batch, chat_template, ctx, flash_attention, "
        "gpu_layers, kv, speculate, threads, ubatch, weights. Did you mean 'gpu_layers'?"
    )


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (GOOD + "settings: {kv: q8}\n", ":6: settings.kv: unknown 'q8'; known: "),
        (GOOD + "settings: {threads: true}\n", ":6: settings.threads: found true; expected 'auto' or a whole number"),
        (GOOD + "settings: {threads: 2.0}\n", ":6: settings.threads: found 2.0; expected 'auto' or a whole number"),
        (GOOD + "settings: {ctx: '4096'}\n", ":6: settings.ctx: found text '4096'; expected a whole number"),
        (GOOD + "settings:\n  chat_template: 1\n", ":7: settings.chat_template: found 1; expected true or false"),
        (GOOD + "suites:\n  speed:\n", ":7: suites.speed: no value; give one, or remove the key"),
        (GOOD + "suites:\n  sped: {}\n", "Did you mean 'speed'?"),
        (GOOD + "suites: {long_context: {depths: [2048, 512]}}\n", ":6: suites.long_context.depths: expected asc"),
        (HEAD + "matrix:\n  weights: [f16, q4_9]\n", ":5: matrix.weights[1]: unknown 'q4_9'; known: "),
        (HEAD + "matrix:\n  weights: []\n", ":5: matrix.weights: an empty list; expected at least one value"),
        (HEAD + "matrix:\n  weights: [f16, F16]\n", ":5: matrix.weights: 'f16' appears twice"),
        (GOOD.replace("version: 1", "version: 2"), ":1: version: found 2; expected 1"),
        (GOOD.replace("demo", "http://host/v1"), ":2: model: unknown 'http://host/v1'; expected demo, path"),
        (GOOD.replace("demo", "hf:owner"), ":2: model: unknown 'hf:owner'"),
        ("model: demo\nreference: f16\nmatrix: {weights: [f16]}\n", "version: missing; add 'version: ...'"),
        (GOOD + "speculate:\n  fast: {kind: prompt_lokup}\n", ":7: speculate.fast: unknown kind 'prompt_lokup'; "),
        (GOOD + "speculate:\n  fast: {tokens: 4}\n", ":7: speculate.fast: no kind; expected kind: "),
        (GOOD + "variants:\n  - {weights: q4_0}\n", ":7: variants[0].name: missing"),
        (GOOD + "variants:\n  - {name: 'a b', weights: q4_0}\n", ":7: variants[0].name: found 'a b'; expected letters"),
        (GOOD + "energy: {meter: watt}\n", ":6: energy.meter: unknown 'watt'; known: auto, command, none, nvml"),
        (GOOD + "energy:\n  command: ./meter\n", ":7: energy.command: found text './meter'; expected a list"),
        (GOOD + "energy: {seconds: 0}\n", ":6: energy.seconds: found 0"),
        (GOOD + "energy: {watts: 5}\n", ":6: energy.watts: unknown key; known: command, meter, scope, seconds"),
        (GOOD + "precision: {decode_tps: 2%}\n", ":6: precision: unknown key here; it belongs under suites.speed;"),
        (GOOD + "weights: f16\n", ":6: weights: unknown key here; it belongs under matrix or under settings; move "),
        (GOOD + "settings: {model: demo}\n", ":6: settings.model: unknown key here; it belongs at the top level; "),
        ("- a\n- b\n", "holds a list; expected a map of settings"),
        ("# nothing\n", "is empty; expected a map of settings"),
        ("", "is empty; expected a map of settings"),
    ],
)  # fmt: skip
def test_faults_are_one_line_with_place_found_and_expected(write_config, text, expected):
    path = write_config(text)
    found = message(path)
    assert found.startswith(str(path))
    assert expected in found
    assert "\n" not in found


def test_all_faults_are_reported_in_the_order_of_the_file(write_config):
    text = "version: 3\nmodel: demo\nreference: f16\nmatrix: {weights: [f16, qq]}\nsettings: {thread: 2}\n"
    lines = message(write_config(text)).splitlines()
    assert [line.split(": ")[1] for line in lines] == ["version", "matrix.weights[1]", "settings.thread"]


def test_files_that_are_no_configuration(tmp_path):
    assert "no such file" in message(tmp_path / "none.yaml")
    assert "harness init" in message(tmp_path / "none.yaml")
    assert "is a folder" in message(tmp_path)
    cases = {
        "binary": (b"GGUF\0\0\1", "is a binary file"),
        "latin": ("a: 1\nb: caf\xe9\n".encode("latin-1"), ":2: not UTF-8 text"),
        "large": (b"#" * 1_000_001, "expected at most 1000000"),
        "control": (b"a: \x07\n", "not valid YAML"),
    }
    for name, (data, expected) in cases.items():
        file = tmp_path / name
        file.write_bytes(data)
        assert expected in message(file)
        assert "\n" not in message(file)


def test_a_byte_order_mark_and_windows_line_ends_are_fine(tmp_path):
    file = tmp_path / "v.yaml"
    file.write_bytes(b"\xef\xbb\xbf" + GOOD.replace("\n", "\r\n").encode())
    assert [variant.name for variant in expand(load(file))] == ["f16", "q8_0"]


def test_top_level_x_keys_hold_anchors(write_config):
    config = load(write_config("x-common: &c {threads: 4}\n" + GOOD + "settings: {<<: *c, ctx: 2048}\n"))
    assert (config.settings.threads, config.settings.ctx) == (4, 2048)


def test_paths_are_relative_to_the_file(tmp_path, monkeypatch):
    folder = tmp_path / "project"
    (folder / "mmlu").mkdir(parents=True)
    (folder / "m.gguf").write_bytes(b"GGUF")
    (folder / "v.yaml").write_text(GOOD.replace("demo", "m.gguf") + "suites: {mmlu: {data: mmlu}}\n")
    monkeypatch.chdir(tmp_path)
    config = load("project/v.yaml")
    assert config.model == str(folder / "m.gguf")
    assert config.suites.mmlu is not None
    assert config.suites.mmlu.data == str(folder / "mmlu")


def test_missing_model_files_are_named_with_their_line(write_config, tmp_path):
    text = GOOD.replace("demo", "no.gguf") + "speculate: {d: {kind: draft_model, model: small.gguf}}\n"
    found = message(write_config(text)).splitlines()
    assert f":2: model: no such file: {tmp_path / 'no.gguf'}" in found[0]
    assert f":6: speculate.d.model: no such file: {tmp_path / 'small.gguf'}" in found[1]


def test_the_starter_file_is_the_nine_default_variants():
    config = load(Path(__file__).parent.parent / "variants.yaml")
    assert [variant.name for variant in expand(config)] == [
        *("f16", "q8_0", "q4_0", "q4_k_m", "q2_k"),
        *("f16+lookup", "q8_0+lookup", "f16+draft", "q8_0+draft"),
    ]


@pytest.mark.parametrize("value", ['"a\\0.gguf"', "'~no-such-user/a.gguf'", "a" * 5000 + ".gguf"], ids=str.__len__)
def test_a_path_that_no_system_takes_is_a_finding(write_config, value):
    text = GOOD.replace("demo", value) + f"speculate: {{d: {{kind: draft_model, model: {value}}}}}\n"
    found = message(write_config(text)).splitlines()
    assert [line.split(": ")[1] for line in found] == ["model", "speculate.d.model"]
    assert all("is no usable path" in line for line in found)


def test_half_a_surrogate_in_a_path_is_a_finding(write_config):
    assert ":2: model: 'a\\ud800.gguf' is no usable path" in message(
        write_config(GOOD.replace("demo", '"a\\ud800.gguf"'))
    )


@pytest.mark.parametrize("escape", ["\\U00110000", "\\UFFFFFFFF"])
def test_an_escape_that_is_no_character_is_refused_on_its_line(escape):
    with pytest.raises(Refused, match="no character") as caught:
        read(f'a: 1\nb: "{escape}"\n')
    assert caught.value.line in (1, 2)


def test_a_control_character_is_refused_on_its_line():
    with pytest.raises(Refused, match="a control character") as caught:
        read("a: 1\nb: 2\nc: \x07\n")
    assert caught.value.line == 3


@pytest.mark.parametrize(("version", "shown"), [("1.0", "1.0"), ("true", "true"), ("'1'", "'1'")])
def test_only_the_number_1_is_version_1(write_config, version, shown):
    found = message(write_config(GOOD.replace("version: 1", f"version: {version}")))
    assert found.endswith(f":1: version: found {shown}; expected 1")


def test_a_sweep_of_no_suite_is_refused(write_config):
    assert ":6: suites: no suite; expected at least one" in message(write_config(GOOD + "suites: {}\n"))


def test_findings_stay_one_line_each_and_obey_no_terminal(write_config):
    text = GOOD + '"a\\nb\\e[31m": 1\nsettings: {kv: ' + "x" * 5000 + "}\n"
    found = message(write_config(text)).splitlines()
    assert len(found) == 2
    assert "a\\nb\\x1b[31m: unknown key" in found[0]
    assert len(found[1]) < 1300 and "known: " in found[1]


def test_what_a_speculation_may_be_called_is_said(write_config):
    found = message(write_config(GOOD + "speculate: {Draft: {kind: prompt_lookup}}\n"))
    assert "found 'Draft'; expected lower-case letters" in found
    assert "found text 'x'; expected a map" in message(write_config(GOOD + "speculate: {d: x}\n"))
