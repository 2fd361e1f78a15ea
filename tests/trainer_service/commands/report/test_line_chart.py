"""Charts are made of round numbers, of what stands out, and of text that stays text."""

from __future__ import annotations

from xml.etree.ElementTree import Element

import numpy as np
import pytest

from trainer_service.commands.report.line_chart import (
    HEIGHT,
    WIDTH,
    Line,
    line_chart,
    thinned,
    ticks,
)


def line(*values: float, name: str = "return", spread: float | None = None) -> Line:
    y = np.array(values)
    return Line(name, np.arange(len(y)) * 10, y, None if spread is None else np.full(len(y), spread))


def points(chart: Element, shape: str) -> list[tuple[float, float]]:
    (found,) = chart.iter(shape)
    x_y = [pair.split(",") for pair in str(found.get("points")).split()]
    return [(float(x), float(y)) for x, y in x_y]


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [
        (0.0, 10.0, [0, 2, 4, 6, 8, 10]),
        (-0.3, 0.65, [-0.2, 0.0, 0.2, 0.4, 0.6]),
        (980.0, 1330.0, [1000, 1100, 1200, 1300]),
        (0.0, 1e-9, [0, 2e-10, 4e-10, 6e-10, 8e-10, 1e-9]),
    ],
)
def test_ticks_are_round_numbers_within_the_range(low: float, high: float, expected: list[float]) -> None:
    assert ticks(low, high) == pytest.approx(expected)


def test_lines_go_from_edge_to_edge() -> None:
    (first, *_, last) = points(line_chart([line(0.0, 10.0, 5.0)], "Return"), "polyline")
    (_, high, _) = points(line_chart([line(0.0, 10.0, 5.0)], "Return"), "polyline")
    assert first[0] < 60
    assert last[0] == WIDTH - 10
    assert 8 < high[1] < 18, "the highest value is near the frame, not on it"
    assert HEIGHT - 48 < first[1] < HEIGHT - 38, "nor is the lowest"
    assert last[1] == (HEIGHT - 38 + 8) / 2


def test_every_tick_of_x_is_there_beside_the_unit() -> None:
    chart = line_chart([Line("return", np.array([0, 100_000]), np.zeros(2))], "Return")
    texts = {"".join(text.itertext()): text for text in chart.iter("text")}
    assert {"0", "20k", "40k", "60k", "80k", "100k", "agent steps"} <= set(texts)
    assert texts["100k"].get("text-anchor") == "end"
    assert float(str(texts["100k"].get("x"))) <= WIDTH
    assert texts["100k"].get("y") != texts["agent steps"].get("y")


def test_bands_go_around_their_line() -> None:
    chart = line_chart([line(5.0, 5.0, spread=5.0)], "Return")
    upper, same, lower, equal = (y for _, y in points(chart, "polygon"))
    assert upper == same < lower == equal
    assert [y for _, y in points(chart, "polyline")] == [(upper + lower) / 2] * 2


@pytest.mark.parametrize(
    "values", [(3.0,), (2.0, 2.0), (0.0, 1e308, -1e308), (1e-300, 2e-300), (1e16, 1e16 + 2)]
)
def test_every_finite_line_lies_within_the_chart(values: tuple[float, ...]) -> None:
    found = points(line_chart([line(*values)], "Return"), "polyline")
    assert all(0 <= x <= WIDTH and 0 <= y <= HEIGHT for x, y in found)


def test_thinned_lines_keep_their_peaks() -> None:
    y = np.zeros(10_000)
    y[[1234, 8765]] = 7.0, -7.0
    kept = thinned(np.arange(10_000), y)
    assert len(kept) <= 302
    assert {0, 1234, 8765, 9999} <= set(kept.tolist())


def test_several_lines_have_a_legend() -> None:
    chart = line_chart([line(1.0, 2.0, name="<b>"), line(1.0, name="other")], "Return")
    assert ["".join(entry.itertext()) for entry in chart.iter("span")] == ["<b>", "other"]
    assert not list(line_chart([line(1.0)], "Return").iter("figcaption"))
