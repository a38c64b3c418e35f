"""Seeds of random programs: a few are tried in every run, the others by campaigns, `pytest -m campaign`."""

from __future__ import annotations

from typing import Any

import pytest


def seeds(of: range, always: int = 1) -> list[Any]:
    """The seeds as parameters of a test; all but the first `always` are marked as a campaign."""
    return [*of[:always], *(pytest.param(k, marks=pytest.mark.campaign) for k in of[always:])]
