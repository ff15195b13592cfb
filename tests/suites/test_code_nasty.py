"""Nasty outputs and what they are. Extraction takes wrapping away and never mends code: what a compiler refuses stays
refused."""

from __future__ import annotations

import pytest

from harness.suites.code_syntax import Prompt, verdict

PROMPT = Prompt("p", "python", "f", 'def f(x):\n    """Add one."""\n', ("\ndef ", "\nprint("))
JS = Prompt("j", "javascript", "f", "function f(x) {\n", ("\nfunction ",))
BODY = "    return x + 1\n"
WHOLE = "def f(x):\n    return x + 1\n"
CASES = [
    # name, output, how it ended, verdict
    ("CRLF", f"```python\r\n{WHOLE}```\r\n".replace("\r\n", "\n").replace("\n", "\r\n"), "stop", "parsed"),
    ("CRLF without fence", BODY.replace("\n", "\r\n"), "stop", "parsed"),
    ("BOM before a program", "\ufeff" + WHOLE, "stop", "parsed"),
    ("BOM before a fence", f"\ufeff```python\n{WHOLE}```\n", "stop", "parsed"),
    ("BOM in a fence", f"```python\n\ufeff{WHOLE}```\n", "stop", "parsed"),
    ("zero-width space before a fence", f"\u200b```python\n{WHOLE}```\n", "stop", "parsed"),
    ("zero-width space in a name", "    return x\u200by + 1\n", "stop", "invalid"),
    ("zero-width space in a string", "    return 'a\u200bb'\n", "stop", "parsed"),
    ("no-break space as indent", "\u00a0\u00a0\u00a0\u00a0return x\n", "stop", "invalid"),
    ("curly quotes", "    return \u201cx\u201d\n", "stop", "invalid"),
    ("HTML-escaped", "    if x &lt; 1:\n        return 1\n", "stop", "invalid"),
    ("diff in a fence", f"```diff\n-def f(x):\n-    pass\n+{WHOLE}```\n", "stop", "invalid"),
    ("transcript", "```python\n>>> def f(x):\n...     return x + 1\n```\n", "stop", "invalid"),
    ("transcript after the function", f"{BODY}\n>>> f(1)\n2\n", "stop", "parsed"),
    ("Markdown in the docstring", 'def f(x):\n    """A\n\n    # B\n    * a\n    """\n    return x\n', "stop", "parsed"),
    ("fence in a string", '    return "```python"\n', "stop", "parsed"),
    ("only a comment", "    # to do\n", "stop", "empty"),
    ("only a docstring", '    """More words."""\n', "stop", "empty"),
    ("empty", "", "stop", "empty"),
    ("empty fence", "```python\n```\n", "stop", "empty"),
    ("white space", " \n\t\n", "stop", "empty"),
    ("prompt repeated, nothing else", PROMPT.text, "stop", "empty"),
    ("prompt repeated twice, then the body", PROMPT.text + PROMPT.text + BODY, "stop", "parsed"),
    ("stopped in a token", "    return x + 1 if x els", "length", "truncated"),
    ("stopped in a string", "    return 'abc", "length", "truncated"),
    ("unclosed fence at the cap", "```python\ndef f(x):\n    return (x +", "length", "truncated"),
    ("tabs under a docstring with spaces", "\treturn x + 1\n", "stop", "invalid"),
    ("tabs and spaces mixed", "    if x:\n\treturn 1\n", "stop", "invalid"),
    ("form feed", "    y = x\n\x0c\n    return y\n", "stop", "parsed"),
    ("wrong language's tag", f"```js\n{WHOLE}```\n", "stop", "parsed"),
    ("indented fence", f"  ```python\n{WHOLE}  ```\n", "stop", "parsed"),
    ("refusal", "I am sorry, but I cannot help with that request.\n", "stop", "empty"),
]  # fmt: skip


@pytest.mark.parametrize(("output", "finish", "status"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_python(output: str, finish: str, status: str) -> None:
    assert verdict(PROMPT, output, finish).status == status


@pytest.mark.parametrize(
    ("output", "status"),
    [
        ("  return x + 1;\r\n}\r\n", "parsed"),
        ("\ufefffunction f(x) { return x + 1; }\n", "parsed"),
        ("  return `\n\\`\\`\\`\n`;\n}\n", "parsed"),
        ("  if (x &lt; 1) { return &quot;a&quot;; }\n}\n", "invalid"),
        ("  // to do\n}\n", "empty"),
        ("  return '}';\n", "invalid"),
    ],
    ids=["CRLF", "BOM", "fence in a template", "HTML-escaped", "only a comment", "brace in a string"],
)
def test_javascript(output: str, status: str) -> None:
    assert verdict(JS, output, "stop").status == status
