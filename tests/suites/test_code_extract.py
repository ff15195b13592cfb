"""What counts as the code of an output."""

from __future__ import annotations

import pytest

from harness.suites.code_syntax import Prompt, extract, prompts
from harness.suites.code_syntax.extraction import blocks

PY = Prompt("p", "python", "f", 'def f(x):\n    """Add one."""\n', ("\ndef ", "\nprint("))
JS = Prompt("j", "javascript", "f", "// Wrap the answer in ``` fences.\nfunction f(x) {\n", ("\nfunction ",))
NEXT = "\n    return x + 1\n"
BODY = "    return x + 1\n"
WHOLE = "def f(x):\n    return x + 1\n"


@pytest.mark.parametrize(
    ("output", "expected"),
    [
        # fences
        (f"{WHOLE}```\n", WHOLE),  # bare code, then its closing fence: `def` is no tag
        (f"{BODY}```\n\nThis adds one.\n", BODY),
        (f"{BODY}```\n\nUse it so:\n```python\nprint(f(1))\n```\n", BODY),
        (f"```bash\npip install thing\n```\n```python\n{WHOLE}```\n", WHOLE),
        (f"```python\nimport os\n```\nand\n```python\n{WHOLE}```\n", WHOLE),  # two blocks: the one with the function
        (f"```python\n{WHOLE}```\n```python\nprint(f(1))\n```\n", WHOLE),
        (f"Here it is:\n```python\n{WHOLE}", WHOLE),  # unclosed
        (f"Here is the function you want:\n```\n{WHOLE}", WHOLE),
        (f"~~~\n{WHOLE}~~~\n", WHOLE),
        (f"~~~python\n{WHOLE}~~~\n", WHOLE),
        (f"~~~python\n{WHOLE}```\n~~~\n", WHOLE + "```\n"),  # another kind of fence does not close
        (f"````python\n{WHOLE}```\n````\n", WHOLE + "```\n"),  # nor does a shorter one
        ("```def f(x):\n    return x + 1\n```\n", WHOLE),
        (f"```Python\n{WHOLE}```\n", WHOLE),
        (f"```py\n{WHOLE}```", WHOLE),
        (f'```python title="a.py"\n{WHOLE}```', WHOLE),
        (f"```{{.python}}\n{WHOLE}```", WHOLE),
        (f"``` python\n{WHOLE}```", WHOLE),
        (f"```\n{BODY}```\n", BODY),  # one block without a tag holds the body
        (f"```text\nno\n```\n```\n{WHOLE}```\n", WHOLE),
        (f"```js\nvar a;\n```\n{BODY}", f"```js\nvar a;\n```\n{BODY}"),  # no fitting block: the whole text
        (f"```python\r\n{WHOLE}```\r\n", WHOLE),
        # white space, stops and echoes
        (BODY, BODY),
        ("    return x+1", "    return x+1"),
        ("\n\n    return x+1", "\n\n    return x+1"),
        (f"{BODY}\nprint(f(1))\n", BODY),
        (f"{BODY}\ndef g(y):\n    return y\n", BODY),
        (f"{BODY}\nclass A: pass\n", f"{BODY}\nclass A: pass\n"),  # not a stop text of this prompt
        (PY.text + BODY, NEXT),
        ("\n" + PY.text + BODY, NEXT),
        (f"```python\n{PY.text}{BODY}```\n", NEXT),
        (PY.text + f"{BODY}```\nDone and dusted, I think.\n", NEXT),
        (WHOLE + "\nprint(f(1))\n", WHOLE + "\nprint(f(1))\n"),  # a whole program keeps all its functions
        (f"Sure, here is the code you need:\n\n{WHOLE}", WHOLE),
        ("", ""),
    ],
)
def test_python(output: str, expected: str):
    assert extract(PY, output) == expected


def test_fence_word_in_the_prompt_does_not_matter():
    body = "  return x + 1;\n}\n"
    assert extract(JS, f"```js\nfunction f(x) {{\n{body}```\n") == f"function f(x) {{\n{body}"
    assert extract(JS, JS.text + body) == "\n" + body
    assert extract(JS, f"```javascript\n{JS.text}{body}```") == "\n" + body


def test_a_line_separator_inside_a_string_survives():
    body = '    return "\u2028```"\n'
    assert extract(PY, body) == body


def test_blocks_keep_order_and_tags():
    found = blocks("```bash\nls\n```\ntext here between them\n~~~Py\nx\n~~~\n```\ny\n")
    assert [(block.tag, block.text) for block in found] == [("bash", "ls\n"), ("py", "x\n"), ("", "y\n")]


@pytest.mark.parametrize("limit", [8, 16, 24, 32])
def test_every_prefix_is_balanced_over_the_languages(limit: int):
    languages = [prompt.language for prompt in prompts(limit)]
    assert len(set(languages)) == 8
    assert {languages.count(language) for language in languages} == {limit // 8}


def test_prompts_are_open_ended_and_unique():
    every = prompts()
    assert len({prompt.id for prompt in every}) == len(every) == 32
    for prompt in every:
        assert prompt.text == prompt.text.rstrip() and prompt.entry in prompt.text
        assert prompt.language == "python" or prompt.text.endswith("{")
        assert prompt.stops and all(stop.startswith("\n") and stop[1] not in " \t\n}" for stop in prompt.stops)
