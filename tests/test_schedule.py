"""The schedule: how often the choice of what has memory looks at everything."""

import numpy as np
import pytest

import tapegrad as tg
from tapegrad.compiler import schedule


def smoothed(u: np.ndarray, steps: int) -> np.ndarray:
    """Steps of a stencil, of which each reads its predecessor at three places."""
    for _ in range(steps):
        u = u.copy()
        u[1:-1] = u[1:-1] + 0.3 * np.tanh(u[2:] + u[:-2] - 2 * u[1:-1])
    return np.sum(u**2)


@pytest.mark.parametrize("steps", [3, 8])
def test_the_choice_of_what_has_memory_looks_at_all_walks_a_fixed_number_of_times(
    steps, monkeypatch
):
    """One step's values have memory because the next step reads them thrice, and so on: one look finds all of them."""
    choose, looks, walks = schedule.Scheduler._costly, [], []

    class Counted(schedule.Walk):
        def __init__(self, roots):
            super().__init__(roots)
            walks.append(roots)

    def counted(scheduler):
        looks.append(scheduler)
        return choose(scheduler)

    monkeypatch.setattr(schedule, "Walk", Counted)
    monkeypatch.setattr(schedule.Scheduler, "_costly", counted)
    x = np.linspace(0.0, 1.0, 20)
    compiled = tg.compile(tg.value_and_grad(lambda u: smoothed(u, steps)))(x)
    eager = tg.value_and_grad(lambda u: smoothed(u, steps))(x)
    np.testing.assert_allclose(compiled[0], eager[0], rtol=1e-12)
    np.testing.assert_allclose(compiled[1], eager[1], rtol=1e-12)
    assert len({id(s) for s in looks}) == 1 and len(looks) <= 3
    assert len(looks[0].roots) > steps
    assert len(walks) <= 2 * len(looks[0].roots)
