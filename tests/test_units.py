from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.errors import InputError
from harness.units import parse_quantity, plus_minus, quantity, si, significant


@pytest.mark.parametrize(
    ("value", "unit", "low", "high", "text"),
    [
        (128.37, "tokens/s", 125.2, 131.5, "128 ± 3 tokens/s"),
        (1234.0, "tokens/s", 1094.0, 1374.0, "1230 ± 140 tokens/s"),
        (128.37, "tokens/s", None, None, "128 tokens/s"),
        (0.0853, "s", 0.0821, 0.0885, "85 ± 3 ms"),
        (2.5, "s", 2.3, 2.7, "2.5 ± 0.2 s"),
        (2.5e-5, "s", None, None, "25.0 µs"),
        (0.971, "ratio", 0.965, 0.977, "97.1 ± 0.6%"),
        (0.0, "ratio", 0.0, 0.004, "0.0% (0.0 to 0.4%)"),
        (1.0, "ratio", 1.0, 1.0, "100%"),
        (2.15e9, "bytes", None, None, "2.15 GB"),
        (512.0, "bytes", None, None, "512 B"),
        (0.0, "bytes", None, None, "0 B"),
        (1.38, "x", 1.33, 1.43, "1.38 ± 0.05x"),
        (0.42, "J/token", 0.40, 0.44, "0.42 ± 0.02 J/token"),
        (0.025, "J/token", None, None, "25.0 mJ/token"),
        (12.3, "±%", 10.0, 15.9, "±12% (10% to 16%)"),
        (5.0, "±%", None, None, "±5.00%"),
        (0.0123, "nats", 0.0119, 0.0127, "0.0123 ± 0.0004 nats"),
        (None, "s", None, None, "not measured"),
        (-0.012, "ratio", -0.031, 0.007, "-1.2 ± 1.9%"),
    ],
)
def test_quantity(value: float | None, unit: str, low: float | None, high: float | None, text: str) -> None:
    assert quantity(value, unit, low, high) == text


def test_si() -> None:
    assert [si(v, "B") for v in (0, 999, 1000, 999_999, 2.15e9, 3e12)] == [
        "0 B",
        "999 B",
        "1 kB",
        "1 MB",
        "2.15 GB",
        "3 TB",
    ]


def test_a_rounded_zero_has_no_sign() -> None:
    assert quantity(-0.0001, "ratio", -0.03, 0.03) == "0 ± 3%"


@given(st.floats(1e-5, 1e9), st.floats(1e-5, 10.0))
def test_rounding_stays_within_the_interval(value: float, relative: float) -> None:
    half = value * relative
    number, interval = plus_minus(value, value - half, value + half)
    assert abs(float(number) - value) <= half / 2
    assert float(interval.removeprefix("± ")) == pytest.approx(half, rel=0.2)


@given(st.floats(1e-9, 1e12))
def test_significant_digits(value: float) -> None:
    assert float(significant(value)) == pytest.approx(value, rel=0.0051)
    assert "e" not in significant(value)


@pytest.mark.parametrize(
    ("text", "unit", "value"),
    [
        ("200ms", "s", 0.2),
        ("0.2", "s", 0.2),
        ("1 min", "s", 60.0),
        ("2GB", "bytes", 2e9),
        ("1.5 GiB", "bytes", 1.5 * 2**30),
        ("95%", "ratio", 0.95),
        ("0.95", "ratio", 0.95),
        ("1pt", "ratio", 0.01),
        ("58%", "ratio", 0.58),
        ("10%", "±%", 10.0),
        ("120 tok/s", "tokens/s", 120.0),
        ("1e3", "tokens/s", 1000.0),
        ("500mJ", "J/token", 0.5),
        ("1.5x", "x", 1.5),
        ("-1", "nats", -1.0),
    ],
)
def test_parse(text: str, unit: str, value: float) -> None:
    assert parse_quantity(text, unit, "--require") == value


@pytest.mark.parametrize(
    ("text", "unit"), [("fast", "s"), ("", "s"), ("2GB", "s"), ("95%", "s"), ("nan", "s"), ("1e999", "s")]
)
def test_parse_rejects_in_one_line(text: str, unit: str) -> None:
    with pytest.raises(InputError) as caught:
        parse_quantity(text, unit, "--require ttft_s")
    assert str(caught.value).startswith("--require ttft_s: found ") and "\n" not in str(caught.value)
    assert "expected" in str(caught.value)


def test_a_wide_interval_does_not_round_the_value_away() -> None:
    assert plus_minus(75.0, 55.0, 95.0) == ("75", "± 20")
    assert plus_minus(40.0, 0.5, 1700.0) == ("40", "(0 to 1700)")


def test_the_noise_of_arithmetic_is_no_interval() -> None:
    assert plus_minus(248.740356, 248.74035599999997, 248.74035600000005) == ("249", "")
