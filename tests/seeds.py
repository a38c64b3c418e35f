"""What is tried in every run, and what by campaigns alone, `pytest -m campaign`: of seeds of random programs, and of functions."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import pytest


def seeds(of: Sequence[Any], always: int = 1) -> list[Any]:
    """The seeds, or what else stands in a row, as parameters of a test; all but the first `always` are marked as a campaign."""
    return [*of[:always], *(pytest.param(k, marks=pytest.mark.campaign) for k in of[always:])]


def campaigns_but(always: Iterable[Any], functions: Iterable[Any]) -> list[Any]:
    """The functions as parameters of a test, named after themselves; all but those of `always` are marked as a campaign."""
    always = list(always)
    return [
        pytest.param(f, id=f.__name__, marks=[pytest.mark.campaign] * (f not in always))
        for f in dict.fromkeys([*always, *functions])
    ]
