from __future__ import annotations

import importlib
from collections import defaultdict

import numpy as np
import pytest


@pytest.fixture
def module():
    return lambda name: importlib.import_module(f"benchmarks.{name}")


def test_rates_of_equal_work_are_pooled_by_their_times(module):
    assert module("decoding").pooled([1.0, 3.0]) == 1.5  # two tokens in 1 + 1/3 seconds


def test_figures_pair_the_rounds_of_both_sides(module):
    rows = defaultdict(list)
    rows["decode_f16", "ours"], rows["decode_f16", "peer"] = [49.0, 98.0], [50.0, 100.0]
    rows["ttft_over_parts_f16", "ours"], rows["ttft_over_parts_f16", "peer"] = [1.0], [0.5]
    found = module("decoding").figures(rows)
    assert found["decode_f16"]["value"] == pytest.approx(0.98) and found["decode_f16"]["n"] == 2
    assert (found["decode_f16"]["ours"], found["decode_f16"]["peer"]) == (73.5, 75.0)
    assert (found["ttft_over_parts_f16"]["value"], found["ttft_over_parts_f16"]["unit"]) == (2.0, "s")


def test_each_goal_falls_on_the_figures_it_is_meant_for(module):
    names = ["decode_f16", "decode_at_2048_f16", "prefill_f16", "ttft_over_parts_f16", "stamping_us", "peer_libraries"]
    goals, limits = module("decoding").bounds(names)
    assert goals == {"decode_f16": 0.98, "decode_at_2048_f16": 0.98, "prefill_f16": 0.97}
    assert limits == {"ttft_over_parts_f16": 1.02, "stamping_us": 5.0}


def test_a_quantised_cache_is_only_tabulated_with_flash_attention(module):
    depths = module("decoding_depths")
    found = depths.combinations(["f16"], ["f16", "q8_0"], ["on", "off"])
    assert [(each.kv, each.flash_attention) for each in found] == [("f16", True), ("f16", False), ("q8_0", True)]


class Cells:
    """A context that only keeps which positions it holds and how many tokens each decode had."""

    capacity = 16

    def __init__(self):
        self.token, self.pos = np.zeros(16, np.int32), np.zeros(16, np.int32)
        self.want = np.zeros(16, np.int8)
        self.held, self.sizes = [], []

    def put(self, start, tokens, pos):
        self.pos[start : start + len(tokens)] = np.arange(pos, pos + len(tokens))
        self.want[start : start + len(tokens)] = 0
        return start + len(tokens)

    def decode(self, n):
        assert self.want[:n].sum() <= 1
        self.held += self.pos[:n].tolist()
        self.sizes.append(n)
        assert self.held == list(range(len(self.held)))

    def row(self, index):
        assert self.want[index]
        return np.array([0.0, 1.0], np.float32)

    def clear(self):
        self.held = []

    def cut(self, seq, start):
        self.held = [pos for pos in self.held if pos < start]


def test_a_context_grows_to_each_depth_without_what_was_decoded_between(module):
    cells = Cells()
    found = module("decoding_depths").grow(cells, [1] * 50, [40, 20], 3)
    assert list(found) == [20, 40] and cells.held == list(range(40))
    assert cells.sizes == [12, 8, 1, 1, 1, 12, 8, 1, 1, 1]
    assert found[20][0] < found[40][0] and all(rate > 0 for _, rate in found.values())


def test_the_cost_of_stamping_is_measured_without_an_engine(module):
    parts = module("decoding_parts")
    assert len(list(parts.Canned(7).generate(None))) == 8
    assert isinstance(parts.stamping_us(50, 3), float)


def test_wrapping_the_loop_times_each_step_and_is_undone(module):
    from harness.backends.llama_cpp import generate

    class Context(Cells):
        def __init__(self):
            super().__init__()
            self._decode = lambda: None

        def decode(self, n):
            self._decode()

    class Backend:
        _generating = Context()

    backend, greedy = Backend(), generate.greedy
    context = backend._generating
    token, decode = context.token, context._decode
    with module("decoding_parts").Shares(backend) as shares:
        n = context.put(0, [1], 0)
        context.token[0], context.pos[0], context.want[0] = 1, 5, 1
        context.decode(n)
        generate.greedy(context.row(0))
    assert set(shares.seconds) == {"llama_decode", "reading the row", "filling the batch", "argmax"}
    assert (context.token is token, context._decode is decode, generate.greedy is greedy) == (True, True, True)
    assert "row" not in vars(context) and (token[0], context.pos[0]) == (1, 5)
