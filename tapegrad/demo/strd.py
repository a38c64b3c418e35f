"""The NIST problems as values: what a `.dat` file states, read by the line ranges it states.

A file opens with the line ranges of its parts (1-based, inclusive); the parameters stand one a
line as `bK = start1 start2 certified deviation`, the data one observation a line with the response
first. Nothing here is computed but the degrees of freedom, observations less parameters: the
file of Rat43 prints 9 where its own residual standard deviation uses 11.

Source: Statistical Reference Datasets, National Institute of Standards and Technology, a work of
the US government in the public domain.
"""

import re
from dataclasses import dataclass
from importlib import resources

import numpy as np

from tapegrad.demo.models import MODEL_OF, Model

LEVELS = ("lower", "average", "higher")


@dataclass(frozen=True, slots=True)
class Problem:
    """One data set: the observations, both official starts, and the certified answers."""

    name: str
    level: str
    model: Model
    x: np.ndarray
    y: np.ndarray
    starts: np.ndarray
    certified: np.ndarray
    deviations: np.ndarray
    rss: float

    @property
    def dof(self) -> int:
        return self.y.size - self.certified.size

    def predict(self, b, x=None):
        """The model at parameters `b`: an array, a tensor or complex numbers, as `b` is."""
        return self.model.formula(self.x if x is None else x, *b)

    def residual(self, b):
        """What is left of the response, prediction less observation: the function to fit."""
        return self.predict(b) - self.y


def parse(name: str, text: str) -> Problem:
    """The problem stated by the text of a NIST file.

    >>> text = (resources.files("tapegrad.demo") / "data" / "DanWood.dat").read_text()
    >>> parse("DanWood", text).starts
    array([[1. , 5. ],
           [0.7, 4. ]])
    """
    lines = text.splitlines()

    def part(title):
        first, last = map(int, stated(rf"{title} +\(lines +(\d+) +to +(\d+)\)", text).groups())
        return lines[first - 1 : last]

    rows = [line.split("=")[1].split() for line in part("Starting Values")]
    first, second, certified, deviations = np.array(rows, float).T
    y, *x = np.array([line.split() for line in part("Data")], float).T
    model = MODEL_OF[name]
    return Problem(
        name=name,
        level=stated(r"(\w+) Level of Difficulty", text)[1].lower(),
        model=model,
        x=x[0] if len(x) == 1 else np.stack(x),
        y=model.response(y),
        starts=np.stack([first, second]),
        certified=certified,
        deviations=deviations,
        rss=float(stated(r"Residual Sum of Squares: +(\S+)", text)[1]),
    )


def stated(pattern: str, text: str) -> re.Match[str]:
    """The one place where the file states `pattern`; a file without it is not a NIST file."""
    match = re.search(pattern, text)
    if match is None:
        raise ValueError(
            f"Reading a NIST problem needs a line matching {pattern!r}, but the file has none. "
            "Restore the file from the original data set."
        )
    return match


def load(name: str) -> Problem:
    """The problem of that name, from the file inside the package."""
    text = (resources.files("tapegrad.demo") / "data" / f"{name}.dat").read_text("ascii")
    return parse(name, text)


def problems() -> list[Problem]:
    """All 27, by level of difficulty and then by name."""
    return sorted(map(load, MODEL_OF), key=lambda p: (LEVELS.index(p.level), p.name))
