"""Code syntax: functions completed in eight languages; does the program parse."""

from __future__ import annotations

from harness.suites.code_syntax.check import Verdict, closed, completed, verdict
from harness.suites.code_syntax.extraction import extract
from harness.suites.code_syntax.prompt import Prompt, prompts
from harness.suites.code_syntax.score import by_language, figures, judge, samples

__all__ = [
    "Prompt",
    "Verdict",
    "by_language",
    "closed",
    "completed",
    "extract",
    "figures",
    "judge",
    "prompts",
    "samples",
    "verdict",
]
