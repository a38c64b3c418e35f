"""Pictures of a gradient check: the V-curve of differences, and the slopes of Taylor remainders.

Pictures are drawn from the probes of the result; the colours are those of the Matplotlib style in force, so dark styles
give dark pictures. Only this module imports matplotlib.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from .findings import GradientCheck

SHOWN = 3


def draw(check: GradientCheck, components: Sequence[str] | None = None) -> Figure:
    """The V-curves of the named (or the worst) components, beside the Taylor remainders if there are any."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise ImportError(
            'a picture of a check needs matplotlib, which is not installed: pip install "tapegrad[plot]".'
        ) from None

    class Picture(Figure):
        """A figure that a notebook shows by itself, although pyplot does not know it."""

        def _repr_png_(self) -> bytes:
            buffer = io.BytesIO()
            self.savefig(buffer, format="png")
            return buffer.getvalue()

    chosen = _chosen(check, components)
    panels = (1 if chosen else 0) + (1 if check.taylor else 0)
    figure = Picture(figsize=(5.2 * max(panels, 1), 4.0), layout="constrained")
    axes = iter(np.atleast_1d(figure.subplots(1, max(panels, 1))))
    if chosen:
        _v_curve(next(axes), check, chosen)
    if check.taylor:
        _taylor(next(axes), check)
    figure.suptitle(check.headline, fontsize="small", wrap=True)
    return figure


def _chosen(check: GradientCheck, names: Sequence[str] | None) -> list[Any]:
    from .findings import _worst_first

    drawn = [c for c in check.components if c.index in check.probes]
    if names is None:
        return _worst_first(drawn)[:SHOWN]
    by_name = {c.name: c for c in drawn}
    for name in names:
        if name not in by_name:
            raise ValueError(
                f"no component is called {name!r}; there are {', '.join(list(by_name)[:8])}{', ...' if len(by_name) > 8 else ''}"
            )
    return [by_name[name] for name in names]


def _v_curve(axes: Any, check: GradientCheck, components: Sequence[Any]) -> None:
    """Draw, for each component, the error of central differences against the step."""
    from .findings import measured_line

    tiny = 1e-18
    for c in components:
        steps, to_claimed, to_best = measured_line(check, c)
        size = abs(c.measured) or c.size or 1.0
        line = axes.loglog(
            steps,
            np.maximum(to_claimed / size, tiny),
            marker="o",
            markersize=3,
            label=f"{c.name}: {c.verdict}",
        )[0]
        axes.loglog(steps, np.maximum(to_best / size, tiny), ":", color=line.get_color())
    axes.set_xlabel("step")
    axes.set_ylabel("|difference - gradient| / |gradient|")
    axes.set_title("central differences (dotted: against the best of them)", fontsize="small")
    axes.legend(fontsize="small")


def _taylor(axes: Any, check: GradientCheck) -> None:
    worst = min(check.taylor, key=lambda t: t.orders[1])
    names = ("without the gradient", "with it", "with the Hessian")
    for remainder, order, name in zip(worst.remainders, worst.orders, names, strict=False):
        seen = remainder > 0
        if seen.any():
            label = f"{name}: order {order:.2f}" if np.isfinite(order) else f"{name}: rounding"
            axes.loglog(worst.steps[seen], remainder[seen], marker="o", markersize=3, label=label)
    axes.set_xlabel(f"step along {worst.name}")
    axes.set_ylabel("Taylor remainder")
    axes.set_title("orders 1, 2, 3 are right", fontsize="small")
    axes.legend(fontsize="small")
