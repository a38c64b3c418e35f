"""The version of this library: of the installed package, else of the checkout that it runs from."""

from __future__ import annotations

import tomllib
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path


def _of_checkout() -> str:
    """The version that `pyproject.toml` beside the package names; "0+unknown" where there is none."""
    try:
        text = (Path(__file__).parents[2] / "pyproject.toml").read_text("utf-8")
        project = tomllib.loads(text)["project"]
        return project["version"] if project["name"] == "tapegrad" else "0+unknown"
    except (OSError, KeyError, ValueError):
        return "0+unknown"


try:
    VERSION = version("tapegrad")
except PackageNotFoundError:  # run from a checkout that is not installed
    VERSION = _of_checkout()
