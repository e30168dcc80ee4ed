"""Curves and axes: smoothing, thinning, ends, ticks, and numbers as text."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from rlforge_cli.report import numbers
from rlforge_cli.report.scale import Scale, padded, tick_labels, ticks
from rlforge_cli.report.series import Series, number, pieces, read, smoothed, start_and_end, thinned

NAN = math.nan


def series(*values: float) -> Series:
    return Series(x=np.arange(len(values), dtype=float), y=np.array(values, dtype=float))


@pytest.mark.parametrize(
    ("record", "expected"),
    [
        ({"k": 1}, 1.0),
        ({"k": 0.5}, 0.5),
        ({}, None),
        ({"k": None}, None),
        ({"k": True}, None),
        ({"k": "0.5"}, None),
        ({"k": [1]}, None),
        ({"k": None, "_nonfinite": ["k"]}, NAN),
        ({"k": None, "_nonfinite": 3}, None),
        ({"k": NAN}, NAN),
        ({"k": -math.inf}, NAN),
        ({"k": 10**400}, NAN),
    ],
)
def test_number(record: dict[str, Any], expected: float | None) -> None:
    assert number(record, "k") == pytest.approx(expected, nan_ok=True) if expected is not None else True
    assert (number(record, "k") is None) == (expected is None)


def test_records_without_the_axis_stand_at_its_start() -> None:
    found = read([{"step": 0, "v": 1.0}, {"step": 1, "n": 64, "v": 2.0}, {"step": 2, "n": 128}], "v", x="n")
    assert found.x.tolist() == [0.0, 64.0]
    assert found.y.tolist() == [1.0, 2.0]


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ((), None),
        ((3.0,), (3.0, 3.0)),
        ((1.0, 2.0, 3.0), (1.0, 3.0)),
        (tuple(float(i) for i in range(20)), (0.5, 18.5)),
        ((*[1.0] * 19, NAN), (1.0, NAN)),
    ],
)
def test_start_and_end_are_means_of_a_tenth(values: tuple[float, ...], expected: tuple[float, float] | None) -> None:
    found = start_and_end(series(*values))
    assert found is None if expected is None else found == pytest.approx(expected, nan_ok=True)


def test_smoothing_keeps_a_constant_and_the_middle_of_a_line() -> None:
    assert smoothed(series(*[2.5] * 50)) == pytest.approx([2.5] * 50)
    line = smoothed(series(*map(float, range(101))))
    assert line[50] == pytest.approx(50.0)
    assert 0 < line[0] < 4


def test_smoothing_weighs_by_a_gaussian_of_four_percent() -> None:
    values = np.zeros(100)
    values[50] = 1.0
    weights = np.exp(-0.5 * (np.arange(-12, 13) / 4.0) ** 2)
    found = smoothed(series(*values))
    assert found[50] == pytest.approx(1 / weights.sum())
    assert found[54] == pytest.approx(math.exp(-0.5) / weights.sum())


def test_smoothing_leaves_gaps_and_what_is_too_short() -> None:
    values = [*[1.0] * 20, NAN, *[3.0] * 20]
    found = smoothed(series(*values))
    assert np.flatnonzero(np.isnan(found)).tolist() == [20]
    assert 1 < found[19] < found[21] < 3
    assert smoothed(series(1.0, 5.0, 2.0)).tolist() == [1.0, 5.0, 2.0]


def test_thinning_keeps_the_extremes_of_a_raw_curve() -> None:
    x = np.arange(10_000, dtype=float)
    y = np.sin(x / 50)
    y[1234] = 9.0
    kept_x, kept_y = thinned(x, y, extremes=True)
    assert len(kept_x) <= 240
    assert kept_y.max() == 9.0
    assert (np.diff(kept_x) > 0).all()
    even_x, _ = thinned(x, y, extremes=False)
    assert (even_x[0], even_x[-1], len(even_x)) == (0.0, 9999.0, 240)


def test_thinning_keeps_a_gap() -> None:
    y = np.ones(5000)
    y[2500] = NAN
    _, kept = thinned(np.arange(5000.0), y, extremes=True)
    assert np.isnan(kept).sum() == 1


def test_pieces_are_the_stretches_between_gaps() -> None:
    x = np.array([0.0, 1.0, 2.0, NAN, 4.0])
    y = np.array([1.0, NAN, 3.0, 4.0, 5.0])
    assert pieces(x, y) == [[(0.0, 1.0)], [(2.0, 3.0)], [(4.0, 5.0)]]


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [
        (0.0, 1.0, ["0.00", "0.25", "0.50", "0.75", "1.00"]),
        (-0.1, 0.0, ["−0.10", "−0.08", "−0.06", "−0.04", "−0.02", "0.00"][0::1]),
        (0.0, 12800.0, ["0", "5k", "10k"]),
        (97.0, 153.0, ["100", "120", "140"]),
        (0.0, 3e-6, ["0", "1e−06", "2e−06", "3e−06"]),
    ],
)
def test_ticks_are_round_and_told_apart(low: float, high: float, expected: list[str]) -> None:
    values = ticks(low, high, most=4)
    labels = tick_labels(values)
    assert len(values) <= 5
    assert all(low - 1e-9 <= value <= high + 1e-9 for value in values)
    assert len(set(labels)) == len(labels)
    if len(expected) <= 5:
        assert labels == expected


def test_ticks_of_shares() -> None:
    assert tick_labels([0.0, 0.25, 0.5], percent=True) == ["0%", "25%", "50%"]
    assert tick_labels([0.0, 0.005, 0.01], percent=True) == ["0.0%", "0.5%", "1.0%"]


def test_a_range_of_nothing_gets_a_width() -> None:
    assert padded(0.0, 0.0) == (-0.5, 0.5)
    assert padded(2.0, 2.0) == (1.0, 3.0)
    assert padded(0.0, 1.0) == pytest.approx((-0.06, 1.06))


def test_scale_maps_ends_to_ends() -> None:
    scale = Scale(low=-1, high=3, start=10, end=50)
    assert (scale(-1), scale(1), scale(3)) == (10, 30, 50)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (numbers.percent(0.579), "57.9 %"),
        (numbers.percent(None), "–"),
        (numbers.percent(NAN), "nan"),
        (numbers.points(5.31), "+5.31"),
        (numbers.points(-4.3), "−4.30"),
        (numbers.points(-0.001), "0.00"),
        (numbers.interval((-1.6, 7.67)), "[−1.60, 7.67]"),
        (numbers.interval((0.1, 0.25), scale=100, digits=1), "[10.0, 25.0]"),
        (numbers.interval(None), "–"),
        (numbers.count(12800), "12,800"),
        (numbers.plain(0.664), "0.664"),
        (numbers.plain(152.04), "152"),
        (numbers.plain(0.01912), "0.0191"),
        (numbers.plain(12345.6), "12346"),
        (numbers.plain(6.31e-6), "6.31e−06"),
        (numbers.plain(0), "0"),
        (numbers.plain(math.inf), "nan"),
        (numbers.p_value(0.0419), "= 0.0419"),
        (numbers.p_value(1e-6), "< 0.0001"),
        (numbers.seconds(75), "75 s"),
        (numbers.seconds(1234), "21 min"),
        (numbers.seconds(3700), "1 h 02 min"),
    ],
)
def test_numbers_as_text(text: str, expected: str) -> None:
    assert text == expected
