"""Verdicts on good, faulty, cut and empty completions."""

from __future__ import annotations

from pathlib import Path

import pytest
from ruamel.yaml import YAML

from harness.stats.interval import wilson
from harness.suites.code_syntax import Prompt, by_language, closed, figures, judge, prompts, samples, verdict

P = {prompt.id: prompt for prompt in prompts()}
CASES = YAML(typ="safe").load(Path(__file__).with_name("code_cases.yaml"))
GOOD = {name: "\n" + body for name, body in CASES["good"].items()}
FAULTY = {name: ["\n" + body for body in bodies] for name, bodies in CASES["faulty"].items()}
EMPTY = [
    "",
    "\n \n",
    "This function returns the value that you asked for.\n",
    "Sure! Here is the function you asked for:\n\nIt works well, as you can see.",
]
TAILS = ["", "\nAnd this } is how it works, more or less.\n", "\n```\n\nNote that (it is simple.\n"]


@pytest.mark.parametrize(("name", "output"), GOOD.items())
@pytest.mark.parametrize("tail", TAILS)
def test_good_code_parses_whatever_follows(name: str, output: str, tail: str):
    for finish in ("stop", "length"):
        found = verdict(P[name], output + tail, finish)
        assert (found.status, found.extracted, found.error) == ("parsed", True, None)


@pytest.mark.parametrize(("name", "output"), [(name, output) for name, outputs in FAULTY.items() for output in outputs])
def test_faulty_code_is_invalid_and_cut_code_is_truncated(name: str, output: str):
    stopped, cut = verdict(P[name], output, "stop"), verdict(P[name], output, "length")
    assert (stopped.status, stopped.extracted) == ("invalid", True)
    assert (cut.status, cut.extracted) == ("truncated", True)
    assert stopped.error and stopped.line is not None
    assert 1 <= stopped.line <= (P[name].text + output).count("\n") + 1


@pytest.mark.parametrize("name", [prompt.id for prompt in prompts(8)])
def test_no_code_is_empty(name: str):
    comment = "    # to do\n" if P[name].language == "python" else "    // to do\n    /* later */\n}\n"
    for output in [*EMPTY, comment, "}\n" if P[name].language != "python" else "\n"]:
        found = verdict(P[name], output, "stop")
        assert (found.status, found.extracted) == ("empty", False), output
    assert verdict(P[name], "", "length").status == "empty"
    assert verdict(P[name], comment, "length").status == "truncated"


def test_repeated_signature_parses_in_every_language():
    for name in ("py-digit-sum", "js-chunk", "ts-clamp", "c-count-bits", "cpp-mean", "go-reverse", "rs-factorial"):
        assert verdict(P[name], P[name].text + GOOD[name], "stop").status == "parsed"
        head = "def digit_sum(number):\n" if name.startswith("py") else P[name].text.rstrip().split("\n")[-1] + "\n"
        assert verdict(P[name], head + GOOD[name], "stop").status == "parsed", name
        assert verdict(P[name], f"```\n{head}{GOOD[name]}```\n", "stop").status == "parsed", name


def test_first_line_indentation_counts():
    prompt = Prompt("p", "python", "f", "def f(x):\n", ())
    assert verdict(prompt, "    return x+1", "stop").status == "parsed"
    assert verdict(prompt, "return x+1", "stop").status == "invalid"


def test_open_parenthesis_at_the_cap_is_truncated():
    assert verdict(P["py-digit-sum"], "    return sum(int(d) for d in", "length").status == "truncated"
    assert verdict(P["py-digit-sum"], "    return sum(int(d) for d in", "stop").status == "invalid"


def test_position_of_the_fault():
    assert verdict(P["c-count-bits"], "\n    int n = 0;\n    return n +;\n}\n", "stop").line == 4
    assert verdict(P["py-running-max"], "\n    a = 1\n    b = = 2\n", "stop").line == 7


@pytest.mark.parametrize(
    "body",
    [
        "    return " + "(" * 5000 + "1" + ")" * 5000,
        "    return " + "-" * 30000 + "1",
        "    return a" + ".a" * 20000,
        "    return " + "1+" * 25000 + "1",
        "    return " + "[" * 3000,
        "    return '\0'",
        "    x = 1" * 20000,
        "    return " + "9" * 5000,
        "    return " + "lambda: " * 3000 + "1",
    ],
    ids=["parentheses", "minus", "attributes", "sum", "brackets", "nul", "too-long", "digits", "lambda"],
)
def test_monsters_end_in_a_verdict(body: str):
    assert verdict(P["py-digit-sum"], body, "stop").status in ("invalid", "parsed")


def test_oversized_output_is_refused_quickly():
    found = verdict(P["c-count-bits"], "}" * 70_000 + "x", "stop")
    assert found.status == "invalid" and "65536" in (found.error or "")


def test_nothing_is_executed(capsys: pytest.CaptureFixture[str]):
    assert verdict(P["py-digit-sum"], "    return 1\n\nprint('ran')\nraise SystemExit\n", "stop").status == "parsed"
    assert capsys.readouterr().out == ""


def test_warnings_of_odd_code_stay_silent(recwarn: pytest.WarningsRecorder):
    assert verdict(P["py-digit-sum"], "    return number is 1 or '\\d'\n", "stop").status == "parsed"
    assert len(recwarn) == 0


def row(name: str, output: str, finish: str = "stop") -> dict[str, object]:
    return {"prompt": name, "language": P[name].language, "output": output, "finish_reason": finish, "n_tokens": 9}


def test_rates():
    rows = [
        row("c-count-bits", GOOD["c-count-bits"]),
        row("c-index-of", "\n    return (;\n}\n"),
        row("rs-factorial", "    (1..", "length"),
        row("go-reverse", ""),
    ]
    found = figures(rows)
    assert found["code_parse_rate"].value == pytest.approx(1 / 3) and found["code_parse_rate"].n == 3
    assert (found["code_parse_rate"].low, found["code_parse_rate"].high) == (wilson(1, 3).low, wilson(1, 3).high)
    assert found["code_extract_rate"].value == 0.75 and found["code_truncated_rate"].value == 0.25
    judged = judge(rows)
    assert by_language(judged)["rust"] == {"parsed": 0, "total": 1, "truncated": 1}
    assert by_language(judged)["c"] == {"parsed": 1, "total": 2, "truncated": 0}
    shown = samples(judged, "f16")
    assert [sample["verdict"] for sample in shown] == ["parsed", "invalid", "truncated", "empty"]
    assert shown[0]["error"] is None and "(line 5)" in shown[1]["error"]


def test_rates_without_data_are_missing():
    assert figures([])["code_parse_rate"].reasons == ("not_measured",)
    cut = figures([row("rs-factorial", "    (1..", "length")])
    assert cut["code_parse_rate"].reasons == ("undefined",) and cut["code_truncated_rate"].value == 1.0
    broken = figures([row("rs-factorial", "", "nonfinite"), row("c-count-bits", GOOD["c-count-bits"])])
    assert broken["code_parse_rate"].value == 1.0 and broken["code_parse_rate"].reasons == ("nonfinite",)


@pytest.mark.parametrize("name", GOOD)
def test_a_generation_may_end_once_the_function_is_closed(name: str):
    output = GOOD[name]
    enough = [cut for cut in range(len(output.rstrip())) if closed(P[name], output[:cut])]
    assert enough == [], "not before its last brace or, in Python, before a line without indent follows"
    assert closed(P[name], output + "\nprose")
    assert closed(P[name], output) == (P[name].language != "python")
