"""The grammar is true to its ledger, and every probe is answerable from the text before its cut."""

from __future__ import annotations

import re
from itertools import accumulate

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.errors import InputError
from harness.suites.data import suite_file, suite_yaml
from harness.suites.long_context import Kind, Text, generate
from harness.suites.long_context.world import FAMILY_OF, HOPS, World

DEPTHS = [400, 512, 1024]


def count(text: str) -> int:
    return len(re.findall(r"\w+|[^\w\s]", text))


@pytest.fixture(scope="module", params=["story", "document"])
def text(request: pytest.FixtureRequest) -> Text:
    return generate(request.param, 3, 1100, count, DEPTHS)


def test_same_seed_same_text_and_other_seed_another():
    again = [generate("story", 5, 300, count, [300]) for _ in range(2)]
    assert again[0] == again[1]
    assert generate("story", 6, 300, count, [300]).text != again[0].text


def test_longer_text_begins_with_the_shorter_one():
    short, long = generate("document", 2, 300, count, []), generate("document", 2, 900, count, [])
    assert long.text.startswith(short.text)
    assert 300 <= count(short.text) < 400 and 900 <= count(long.text) < 1000


def test_cut_is_the_last_sentence_end_within_the_depth(text: Text):
    for depth in DEPTHS:
        cut = text.cut(depth)
        following = text.ends[text.ends.index(cut) + 1]
        assert count(text.text[:cut]) <= depth < count(text.text[:following])
        assert text.text[cut - 1] in '."' or text.text[:cut].endswith("?")
        assert text.text[cut].isspace()


def test_segments_join_to_the_text_and_split_at_the_cuts(text: Text):
    assert "".join(text.segments()) == text.text
    ends = list(accumulate(map(len, text.segments())))
    assert ends[:-1] == [text.cut(depth) for depth in DEPTHS]


def test_probes_ask_only_what_was_told(text: Text):
    for depth, probes in text.probes.items():
        seen = text.text[: text.cut(depth)]
        for probe in probes:
            thing = probe.fact.split(":")[1].replace("-", " ")
            assert thing in seen
            assert len(set(probe.options)) == len(probe.options) == 4
            for option in probe.options:
                assert option[0] == " " and option[1] != " "
                assert option[1:] in seen, f"{probe.id}: {option} does not occur before the cut"
            assert max(map(len, probe.options)) <= 12
            assert not probe.stem[-1].isspace()


def test_ids_are_unique_and_ledger_facts_are_asked_two_ways(text: Text):
    probes = [probe for some in text.probes.values() for probe in some]
    assert len({probe.id for probe in probes}) == len(probes)
    for depth, some in text.probes.items():
        ledger = [probe for probe in some if probe.family == "ledger"]
        assert ledger, depth
        for first, second in zip(ledger[::2], ledger[1::2], strict=True):
            assert (first.fact, first.options, first.gold) == (second.fact, second.options, second.gold)
            assert (first.asked, second.asked) == (0, 1) and first.stem != second.stem


def test_enough_probes_of_every_family_from_1024_tokens_on(text: Text):
    families = [probe.family for probe in text.probes[1024]]
    assert (families.count("ledger"), families.count("multikey")) == (16, 4)
    assert families.count("tracking") >= 2


def test_gold_is_the_state_at_the_depth_not_the_last_one():
    text = generate("story", 3, 4000, count, [1000, 4000])
    early, late = ({probe.fact: probe.options[probe.gold] for probe in text.probes[depth]} for depth in (1000, 4000))
    world = replay("story", 3, len(text.ends))
    facts = {fact.id: fact for fact in world.facts}
    for depth, golds in ((1000, early), (4000, late)):
        seen = text.ends.index(text.cut(depth)) + 1
        for name, gold in golds.items():
            assert gold == " " + [value for at, value in facts[name].history if at < seen][-1]


@pytest.mark.parametrize("kind", ["story", "document"])
def test_text_contradicts_no_planted_fact(kind: Kind):
    """After each plain statement of a place, the ledger says the same."""
    text = generate(kind, 4, 6000, count, [])
    world = replay(kind, 4, len(text.ends))
    places = {fact.obj: fact for fact in world.facts if fact.topic == "place"}
    checked = 0
    for index, (start, end) in enumerate(zip((0, *text.ends), text.ends, strict=False)):
        for thing, place in re.findall(r"[Tt]he ([a-z]+ [a-z]+) is in the ([a-z]+)", text.text[start:end]):
            assert places[thing].values_at(index + 1)[-1] == place
            checked += 1
    assert checked >= 10


def replay(kind: str, seed: int, sentences: int) -> World:
    world = World(kind, seed, suite_yaml("long_context"))
    world.opening()
    while world.sentences < sentences:
        world.sentence()
    return world


@settings(max_examples=15, deadline=None)
@given(st.integers(0, 10_000), st.sampled_from(["story", "document"]))
def test_chains_pass_from_hand_to_hand_once(seed: int, kind: str):
    world = replay(kind, seed, 250)
    chains = [fact for fact in world.facts if FAMILY_OF[fact.topic] == "tracking"]
    holders = [value for fact in chains for _, value in fact.history]
    assert len(holders) == len(set(holders)), "one person carries one thing, so 'what she had' has one meaning"
    assert max(len(fact.history) for fact in chains) == HOPS + 1
    assert not set(holders) & set(world.villagers)
    assert all(a != b for fact in world.facts for (_, a), (_, b) in zip(fact.history, fact.history[1:], strict=False))


def test_very_long_text_does_not_run_dry():
    assert count(generate("story", 1, 12_000, count, []).text) >= 12_000


@pytest.mark.parametrize(("depths", "word"), [([2000], "between"), ([0], "between"), ([3], "no sentence")])
def test_impossible_depth_is_an_input_error(depths: list[int], word: str):
    with pytest.raises(InputError, match=word):
        generate("story", 1, 300, count, depths)


def test_unknown_kind_is_an_input_error():
    with pytest.raises(InputError, match="poem"):
        generate("poem", 1, 300, count, [])  # type: ignore[arg-type]


def test_missing_data_file_says_what_to_do():
    with pytest.raises(InputError, match="reinstall"):
        suite_file("long_context/nothing.yaml")
    assert suite_file("long_context/SOURCE.md").is_file()
