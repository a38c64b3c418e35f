"""What the suites that run on PyTorch as well have in common, and threads whose errors come out.

`TAPEGRAD_SUITE=torch pytest tests/test_hooks.py` imports PyTorch as `tg`, in float64: an expectation is proven there first, and where the two
differ on purpose `differs` says how.
"""

from __future__ import annotations

import importlib
import os
import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

SUITE = os.environ.get("TAPEGRAD_SUITE", "tapegrad")
tg: Any = importlib.import_module(SUITE)
HERE = SUITE == "tapegrad"
if not HERE:
    tg.set_default_dtype(tg.float64)

here = pytest.mark.skipif(not HERE, reason="tapegrad's alone")


def differs(reason: str) -> pytest.MarkDecorator:
    """PyTorch does otherwise."""
    return pytest.mark.xfail(not HERE, reason=f"PyTorch: {reason}", strict=True)


def leaf(*values: Any) -> Any:
    return tg.tensor(values[0] if len(values) == 1 else list(values), requires_grad=True)


def plain(*values: Any) -> Any:
    return tg.tensor(values[0] if len(values) == 1 else list(values))


def equal(t: Any, expected: Any) -> None:
    assert t is not None, f"no gradient, expected {expected}"
    actual, expected = np.array(t.tolist()), np.asarray(expected)
    assert actual.shape == expected.shape
    np.testing.assert_allclose(actual, expected, rtol=1e-12, atol=1e-12)


def agrees(
    function: Callable[[Any], Any], expected: Callable[[Any], Any], x: np.ndarray, tolerance: float
) -> None:
    """`function` of a tensor has the value of `expected` of an array, and the gradient of its differences; x is left alone."""
    t = tg.tensor(x.tolist(), requires_grad=True)
    result = function(t)
    value = np.asarray(expected(x))
    equal(result.detach(), value)
    equal(t.detach(), x)
    weights = np.arange(1.0, value.size + 1).reshape(value.shape)
    (result * tg.tensor(weights.tolist())).sum().backward()
    h = 1e-6
    slopes = np.empty_like(x)
    for i in np.ndindex(x.shape):
        moved = x.copy(), x.copy()
        moved[0][i] += h
        moved[1][i] -= h
        slopes[i] = np.sum((expected(moved[0]) - expected(moved[1])) * weights) / (2 * h)
    np.testing.assert_allclose(t.grad.numpy(), slopes, rtol=tolerance, atol=tolerance)


@pytest.fixture(name="engine", params=["sweep", "replay"] if HERE else [None])
def each_engine(request: pytest.FixtureRequest) -> Iterator[str | None]:
    """Each engine in turn; PyTorch has one."""
    if request.param is None:
        yield None
        return
    before = tg.engine()
    tg.set_engine(request.param)
    yield request.param
    tg.set_engine(before)


def in_threads(*jobs: Callable[[], object]) -> None:
    """Run all at once; the first error is raised here, and a thread that hangs is one."""
    errors = []

    def guarded(job: Callable[[], object]) -> None:
        try:
            job()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=guarded, args=(job,)) for job in jobs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(600)
    assert not any(thread.is_alive() for thread in threads)
    if errors:
        raise errors[0]


def in_thread(function: Callable[[], Any]) -> Any:
    """Run in a new thread; its result, or its error, comes out."""
    results = []
    in_threads(lambda: results.append(function()))
    return results[0]
