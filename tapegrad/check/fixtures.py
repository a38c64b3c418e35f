"""A pytest plugin: the fixture `gradient_check`. Pytest finds it by tapegrad's entry point, so no `conftest.py` has to name it.

A test that takes `gradient_check` has `check_gradient` with the result asserted; what it found is added to the report of a test that
fails. The checks are imported when a test first takes the fixture. `pytest -p no:tapegrad.check.fixtures` leaves the plugin out.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from .findings import GradientCheck


@pytest.fixture
def gradient_check(request: pytest.FixtureRequest) -> Callable[..., GradientCheck]:
    """`check_gradient(f, *args, ...)` that fails the test unless the gradient is right; returns the result."""

    from .gradients import check_gradient

    def check(f: Callable[..., Any], *args: Any, **options: Any) -> GradientCheck:
        __tracebackhide__ = True
        result = check_gradient(f, *args, **options)
        request.node.add_report_section("call", "gradient check", str(result))
        if not result.ok:
            pytest.fail(str(result), pytrace=False)
        return result

    return check
