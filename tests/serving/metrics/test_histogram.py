"""Histograms, and the counters that they become."""

import pytest

from backend.serving.metrics.family import Family, Kind, series_of
from backend.serving.metrics.histogram import Histogram, Reading, one_two_five, together


def filled(bounds: tuple[float, ...], *values: float) -> Histogram:
    histogram = Histogram(bounds)
    for value in values:
        histogram.observe(value)
    return histogram


def test_a_value_falls_into_the_first_bucket_whose_bound_it_does_not_exceed() -> None:
    reading = filled((1, 2.5, 5), 0.0, 1.0, 1.0001, 2.5, 4.0, 5.0, 5.5, 100.0).read()
    assert reading == Reading((1, 2.5, 5), [2, 2, 2, 2], pytest.approx(119.0001))
    assert reading.total == 8
    assert reading.cumulative() == [("1", 2), ("2.5", 4), ("5", 6), ("+Inf", 8)]


def test_a_reading_does_not_change_when_more_is_observed() -> None:
    histogram = filled((1,), 0.5)
    reading = histogram.read()
    histogram.observe(0.5)
    assert (reading.total, histogram.read().total) == (1, 2)


def test_by_fewer_bounds_the_same_values_are_counted() -> None:
    values = (0.5, 1.5, 3.0, 7.0, 20.0)
    fine, coarse = filled((1, 2, 5, 10), *values), filled((2, 10), *values)
    assert fine.read().at((2, 10)) == coarse.read()
    assert fine.read().at(()) == filled((), *values).read()


def test_a_bound_that_was_not_counted_by_is_refused() -> None:
    with pytest.raises(ValueError, match=r"bounds \[3\] are not among"):
        filled((1, 2), 0.5).read().at((1, 3))


def test_readings_together_are_those_of_all_values() -> None:
    one, two = filled((1, 2), 0.5, 3.0), filled((1, 2), 1.5)
    assert together([one.read(), two.read()]) == filled((1, 2), 0.5, 1.5, 3.0).read()


def test_lengths_are_counted_by_one_two_five() -> None:
    assert one_two_five(4096) == (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000)
    assert one_two_five(5000)[-1] == 5000
    assert one_two_five(7)[-1] == 1000


def test_a_histogram_becomes_the_series_that_prometheus_keeps_of_one() -> None:
    reading = filled((0.25, 1000000), 0.1, 0.2, 7.0).read()
    family = Family("seconds", Kind.HISTOGRAM, ("level",), "Why.", lambda source: [(("2",), reading)])
    made = [(s.family, s.labels, s.value) for s in series_of(family, ("2",), reading)]
    level = ("level", "2")
    assert made == [
        ("seconds_bucket", (level, ("le", "0.25")), 2),
        ("seconds_bucket", (level, ("le", "1e+06")), 3),
        ("seconds_bucket", (level, ("le", "+Inf")), 3),
        ("seconds_sum", (level,), pytest.approx(7.3)),
        ("seconds_count", (level,), 3),
    ]
