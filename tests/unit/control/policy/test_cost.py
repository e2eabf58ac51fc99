"""What an epoch costs: the line agrees with least squares computed another way, and no input makes it fall over."""

from __future__ import annotations

import math
from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lockstep.control.policy.cost import FORGETTING, Cost, CostFit


def fitted(epochs: list[tuple[float, float]]) -> CostFit:
    fit = CostFit()
    for records, seconds in epochs:
        fit.add(records, seconds)
    return fit


@pytest.mark.parametrize("scale", [1.0, 1e3, 1e6])
def test_the_line_is_that_of_weighted_least_squares(scale: float) -> None:
    draw = Random(5)
    epochs = [
        (size := draw.uniform(100, 900) * scale, 0.2 + 0.001 / scale * size + draw.gauss(0, 0.02)) for _ in range(300)
    ]
    cost = fitted(epochs).cost()
    weights = np.sqrt(FORGETTING ** np.arange(len(epochs) - 1, -1, -1))
    slope, fixed = np.polyfit([one for one, _ in epochs], [took for _, took in epochs], 1, w=weights)
    assert cost is not None
    assert cost.per_record_s == pytest.approx(slope, rel=1e-6)
    assert cost.fixed_s == pytest.approx(fixed, rel=1e-6)


def test_a_job_whose_records_became_dearer_is_seen_to_be() -> None:
    draw = Random(7)
    sizes = [draw.uniform(100, 500) for _ in range(3000)]
    cost = fitted([(n, 0.1 + (0.001 if number < 1000 else 0.003) * n) for number, n in enumerate(sizes)]).cost()
    assert cost is not None and cost.per_record_s == pytest.approx(0.003, rel=0.05)


def test_one_pause_of_a_minute_does_not_change_what_is_known() -> None:
    draw = Random(9)
    epochs = [(n := draw.uniform(100, 500), 0.1 + 0.001 * n + draw.gauss(0, 0.01)) for _ in range(200)]
    before, after = fitted(epochs).cost(), fitted([*epochs, (300.0, 60.0)]).cost()
    assert before is not None and after is not None
    assert after.capacity_per_s(1.0, 0.1) == pytest.approx(before.capacity_per_s(1.0, 0.1), rel=0.1)


def test_noise_alone_is_no_cost() -> None:
    draw = Random(11)
    fits = [fitted([(draw.gauss(500, 20), draw.gauss(0.3, 0.1)) for _ in range(30)]).cost() for _ in range(100)]
    assert sum(one is not None for one in fits) < 10


def test_capacity_is_what_epochs_of_that_length_carry() -> None:
    cost, target_s, interval_s = Cost(0.1, 0.0005), 1.0, 0.1
    records = 10
    while cost.epoch_s(records) <= target_s:
        records += 1
    # One epoch of so many records every 1.3 seconds.
    assert cost.capacity_per_s(target_s, interval_s) == pytest.approx(records / 1.3, rel=0.01)
    assert Cost(5.0, 0.0005).capacity_per_s(target_s, interval_s) > 0


number = st.floats(allow_nan=True, allow_infinity=True)


@given(st.lists(st.tuples(number, number), max_size=60))
def test_nothing_makes_it_fall_over(epochs: list[tuple[float, float]]) -> None:
    fit = fitted(
        [(records, seconds) for records, seconds in epochs if not abs(records) > 1e12 and not abs(seconds) > 1e9]
    )
    cost = fit.cost()
    if cost is not None:
        assert cost.per_record_s > 0 and cost.fixed_s >= 0 and math.isfinite(cost.capacity_per_s(1.0, 0.1))
    assert CostFit.from_json(fit.to_json()) == fit
