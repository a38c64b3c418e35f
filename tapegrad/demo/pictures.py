"""The fits as one picture: a panel per problem, the observations and the fitted curve.

Matplotlib is imported when a picture is drawn, never before, and without a display.
"""

from itertools import zip_longest
from math import ceil
from pathlib import Path

import numpy as np

from tapegrad.demo.report import Row

POINT, CURVE = "#30405a", "#e2725b"
CURVE_POINTS = 400

# Beyond this many observations the points are drawn small and below the curve.
MANY = 40


def draw(rows: list[Row], path: Path) -> None:
    """Write a PNG with one panel per problem, showing the fit of its last row, to `path`."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    panels = list({row.problem.name: row for row in rows}.values())
    across = min(len(panels), 5 if len(panels) > 9 else 3)
    down = ceil(len(panels) / across)
    figure = Figure(figsize=(3.2 * across, 2.3 * down), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots(down, across, squeeze=False).flat
    for ax, row in zip_longest(axes, panels):
        if row is None:
            ax.axis("off")
        else:
            panel(ax, row)
    figure.savefig(path, dpi=130, format="png")


def panel(ax, row: Row) -> None:
    """One problem: points, curves, and in the title how many digits agree."""
    many = row.problem.y.size > MANY
    for x, points, curve in slices(row):
        ax.plot(x, points, "o", ms=2 if many else 4, mew=0, color=POINT)
        ax.plot(*curve, "-", lw=1.2, color=CURVE, zorder=3 if many else 1)
    ax.set_title(f"{row.problem.name}: {row.parameter_digits:.1f} digits", fontsize=9, loc="left")
    ax.tick_params(labelsize=7)
    ax.spines[["top", "right"]].set_visible(False)


def slices(row: Row):
    """Observations and fitted curve over the first predictor, for each value of the others.

    With one predictor that is one slice; Nelson has one per temperature.
    """
    p = row.problem
    first, *others = np.atleast_2d(p.x)
    groups = np.unique(np.stack(others), axis=1).T if others else [np.empty(0)]
    for values in groups:
        here = np.ones(first.size, bool)
        for other, value in zip(others, values, strict=True):
            here &= other == value
        grid = np.linspace(first[here].min(), first[here].max(), CURVE_POINTS)
        inputs = np.stack([grid, *(np.full_like(grid, v) for v in values)]) if others else grid
        yield first[here], p.y[here], (grid, p.predict(row.fit.parameters, inputs))
