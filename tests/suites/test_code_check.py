"""Verdicts on good, faulty, cut and empty completions."""

from __future__ import annotations

import pytest

from harness.stats.interval import wilson
from harness.suites.code_syntax import Prompt, by_language, figures, judge, prompts, samples, verdict

P = {prompt.id: prompt for prompt in prompts()}
GOOD = {
    "py-digit-sum": "    return sum(int(digit) for digit in str(number))\n",
    "py-longest-word": "    words = sentence.split()\n    return max(words, key=len) if words else ''\n",
    "js-count-vowels": "  return (text.match(/[aeiou}]/gi) || []).length;\n}\n",
    "js-chunk": "  const out = [];\n  for (let i = 0; i < items.length; i += size) out.push(items.slice(i, i + size));\n  return out;\n}\n",
    "js-invert": "  return Object.fromEntries(Object.entries(object).map(([k, v]) => [v, k]));\n}\n",
    "js-retry": "  let last;\n  for (let i = 0; i < times; i++) {\n    try { return await action(); } catch (e) { last = e; }\n  }\n  throw last;\n}\n",
    "ts-clamp": "  return Math.min(Math.max(value, low), high);\n}\n",
    "ts-unique": "  const seen: Set<T> = new Set(items);\n  return [...seen];\n}\n",
    "ts-total": "  return lines.reduce((sum: number, line) => sum + line.price * line.count, 0);\n}\n",
    "java-palindrome": '        String s = "}{";\n        return new StringBuilder(text).reverse().toString().equals(text);\n    }\n}\n',
    "java-gcd": "        while (b != 0) { int t = b; b = a % b; a = t; }\n        return a;\n    }\n}\n",
    "c-count-bits": "    int n = 0;\n    for (; x; x >>= 1) n += x & 1;\n    return n;\n}\n",
    "c-index-of": "    for (size_t i = 0; i < length; i++) {\n        if (items[i] == wanted) return (int)i; // }\n    }\n    return -1;\n}\n",
    "cpp-mean": "    if (values.empty()) return 0;\n    double s = 0;\n    for (const auto& v : values) s += v;\n    return s / values.size();\n}\n",
    "cpp-most-common": "    std::map<std::string, int> n;\n    for (auto& w : words) ++n[w];\n    auto best = n.begin();\n    return best->first;\n}\n",
    "go-reverse": "\trunes := []rune(text)\n\tfor i, j := 0, len(runes)-1; i < j; i, j = i+1, j-1 {\n\t\trunes[i], runes[j] = runes[j], runes[i]\n\t}\n\treturn string(runes)\n}\n",
    "go-average": '\tif len(values) == 0 {\n\t\treturn 0, errors.New("none")\n\t}\n\tsum := 0.0\n\tfor _, v := range values {\n\t\tsum += v\n\t}\n\treturn sum / float64(len(values)), nil\n}\n',
    "rs-factorial": "    (1..=n).product()\n}\n",
    "rs-largest": "    let mut best: Option<i32> = None;\n    for &v in values { if best.map_or(true, |b| v > b) { best = Some(v); } }\n    best\n}\n",
    "rs-title-case": "    let mut chars = word.chars();\n    match chars.next() {\n        None => String::new(),\n        Some(c) => c.to_uppercase().collect::<String>() + chars.as_str(),\n    }\n}\n",
}
FAULTY = {
    "py-digit-sum": ["    return sum(\n", "    retrun number\n", "  x = 1\n    return x\n", "    print number\n", "    return number +\n",
                     "    x := 1\n    return x\n", "    del f()\n", "    break\n", "\treturn 1\n        return 2\n", "    if number\n        return 1\n",
                     "    return f(a=1, 2)\n", "    return '\n", "    def g(a, a):\n        return a\n    return g\n", "    for d in str(number):\nreturn 1\n"],
    "js-count-vowels": ["  return text.match(;\n}\n", "  let = 5;;\n  return = 1\n}\n", "  for (let i = 0 i < 3; i++) {}\n}\n", "  if (x {\n  }\n}\n", "  return text;\n"],
    "ts-clamp": ["  const x: = 3;\n  return x;\n}\n", "  return Math.min(value, ;\n}\n", "  return [value;\n}\n", "  let y: number number = 1;\n}\n"],
    "java-gcd": ["        int x = ;\n        return a;\n    }\n}\n", "        return a\n    }\n}\n", "        return a;\n    }\n", "        for (int i = 0; i < a; i++ {\n        }\n    }\n}\n"],
    "c-count-bits": ["    return x +;\n}\n", "    int n = 0\n    return n;\n}\n", "    while (x { x >>= 1; }\n}\n", "    return n;\n", '    char *s = "abc;\n    return 0;\n}\n'],
    "cpp-mean": ["    for (double v : ) { }\n    return 0;\n}\n", "    return values.;\n}\n", "    std::vector<double v;\n    return 0\n}\n", "    return (1;\n}\n"],
    "go-reverse": ["\tr := \n\treturn text\n}\n", "\tfor i := 0; i < {\n\t}\n}\n", "\tvar x int = = 3\n}\n", "\treturn text\n"],
    "rs-factorial": ["    let x = ;\n    x\n}\n", "    match n { 0 => 1, n => n * }\n}\n", "    if n == 0 { 1 } else { n\n}\n", "    for i in { }\n    fn\n}\n"],
}
EMPTY = ["", "\n \n", "This function returns the value that you asked for.\n", "Sure! Here is the function you asked for:\n\nIt works well, as you can see."]


@pytest.mark.parametrize(("name", "output"), GOOD.items())
@pytest.mark.parametrize("tail", ["", "\nAnd this } is how it works, more or less.\n", "\n```\n\nNote that (it is simple.\n"])
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
        head = P[name].text.rstrip().splitlines()[-1] + "\n" if P[name].language != "python" else "def digit_sum(number):\n"
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
    assert verdict(P["c-count-bits"], "    int n = 0;\n    return n +;\n}\n", "stop").line == 4
    assert verdict(P["py-running-max"], "    a = 1\n    b = = 2\n", "stop").line == 4


@pytest.mark.parametrize(
    "body",
    ["    return " + "(" * 5000 + "1" + ")" * 5000, "    return " + "-" * 30000 + "1", "    return a" + ".a" * 20000, "    return " + "1+" * 25000 + "1",
     "    return " + "[" * 3000, "    return '\0'", "    x = 1" * 20000, "    return " + "9" * 5000, "    return " + "lambda: " * 3000 + "1"],
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
    rows = [row("c-count-bits", GOOD["c-count-bits"]), row("c-index-of", "    return (;\n}\n"), row("rs-factorial", "    (1..", "length"), row("go-reverse", "")]
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
