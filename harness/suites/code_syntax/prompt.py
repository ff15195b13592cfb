"""The function prompts, in an order whose every prefix is balanced over the languages."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import zip_longest

from harness.suites.data import suite_yaml


@dataclass(frozen=True, slots=True)
class Prompt:
    """One function to complete.

    Attributes:
        id: Unique.
        language: A key of the suite's languages.
        entry: Name of the function.
        text: What the model continues; it ends where the body begins.
        stops: Texts that end the generation, each only possible after the function's block.
        closing: What the file still needs behind the function's block, such as the brace of a class.
    """

    id: str
    language: str
    entry: str
    text: str
    stops: tuple[str, ...]
    closing: str = ""


def prompts(limit: int | None = None) -> tuple[Prompt, ...]:
    """The first ``limit`` prompts, one of each language in turn; all of them without a limit."""
    data = suite_yaml("code_syntax")
    by_language: dict[str, list[Prompt]] = {language: [] for language in data["languages"]}
    for item in data["prompts"]:
        language = item["language"]
        stops = tuple(data["languages"][language]["stops"])
        by_language[language].append(Prompt(item["id"], language, item["entry"], item["prompt"], stops))
    turns = (prompt for turn in zip_longest(*by_language.values()) for prompt in turn if prompt is not None)
    return tuple(turns)[:limit]
