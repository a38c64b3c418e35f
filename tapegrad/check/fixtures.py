"""A pytest fixture for gradient checks. Switch it on in a `conftest.py`:

    pytest_plugins = ["tapegrad.check.fixtures"]

A test then takes `gradient_check`, which is `check_gradient` with the result asserted; what it found is added to the
report of a test that fails. Nothing is registered with pytest unless it is asked for by that line.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from .findings import GradientCheck
from .gradients import check_gradient


@pytest.fixture
def gradient_check(request: pytest.FixtureRequest) -> Callable[..., GradientCheck]:
    """`check_gradient(f, *args, ...)` that fails the test unless the gradient is right; returns the result."""

    def check(f: Callable[..., Any], *args: Any, **options: Any) -> GradientCheck:
        __tracebackhide__ = True
        result = check_gradient(f, *args, **options)
        request.node.add_report_section("call", "gradient check", str(result))
        if not result.ok:
            pytest.fail(str(result), pytrace=False)
        return result

    return check
