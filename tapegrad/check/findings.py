"""Results of checks: what they found, as text, HTML, pictures, plain data, and as an error in tests.

`GradientCheck` is what `check_gradient` returns, `AdjointCheck` what `check_adjoint` returns. Both have `verdict`, `ok`,
`explanation`, `to_dict()`, `assert_ok()`; they print as a table and show as one in a notebook.
"""

from __future__ import annotations

import html
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from ..core import markup
from ..errors import GradcheckError
from .estimates import richardson
from .probing import Probe
from .verdicts import NOISY, RIGHT, ROUGH, SCALED, WRONG, Component

if TYPE_CHECKING:
    from matplotlib.figure import Figure

ROWS = 12
"""Rows of a printed table; the worst are shown."""

COLOURS = {RIGHT: "green", WRONG: "red", ROUGH: "orange", NOISY: "violet", SCALED: "blue"}
"""Of the verdicts, in `tapegrad.core.markup`."""


def _counted(n: int, what: str) -> str:
    return f"{n} {what}" if n == 1 else f"{n} {what}s"


@dataclass(frozen=True, slots=True)
class TaylorLine:
    """Remainders of the Taylor expansion along one direction, without, with the first, with the second derivative.

    `orders` are the powers of the step by which they vanish: 1, 2, 3 if all is right; infinity if the remainder is
    nothing but rounding (as the second of a linear function), NaN if there was nothing to see.
    """

    name: str
    steps: np.ndarray
    remainders: tuple[np.ndarray, ...]
    orders: tuple[float, ...]


@dataclass(slots=True)
class GradientCheck:
    """What a check of a gradient found. `print` it, `.plot()` it, `.assert_ok()` in a test.

    >>> import numpy as np, tapegrad as tg
    >>> check = tg.check_gradient(lambda x: np.sum(x**3), np.array([1.0, 2.0]), gradient=lambda x: 3 * x**2)
    >>> check.ok, check.assert_ok() is check, sorted(check.to_dict())[:3]
    (True, True, ['components', 'digits_asked', 'evaluations'])
    >>> check.headline
    'gradient of f: right, to ... digits...'
    >>> check.worst.name
    'x[0]'
    """

    title: str
    method: str
    verdict: str
    explanation: str
    components: list[Component]
    taylor: list[TaylorLine] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    noise: float = 0.0
    level: float = 0.0
    evaluations: int = 0
    size: int = 0
    digits: float = 6.0
    probes: dict[tuple[int, int], tuple[Probe, float]] = field(default_factory=dict, repr=False)
    """For pictures: the probe of a component and the length of its unit step."""

    @property
    def ok(self) -> bool:
        """Whether the gradient is right, as far as it was asked for (badly scaled ones included)."""
        return self.verdict in (RIGHT, SCALED)

    @property
    def worst(self) -> Component:
        """The component that decides the verdict; of right ones, that with the fewest digits."""
        return _worst_first(self.components)[0]

    def assert_ok(self) -> GradientCheck:
        """Raise GradcheckError with the whole report unless the gradient is right; return the result."""
        __tracebackhide__ = True  # pytest shows the report, not this line
        if not self.ok:
            raise GradcheckError(str(self))
        return self

    @property
    def headline(self) -> str:
        """The verdict as one sentence."""
        what = f"gradient of {self.title}"
        if self.verdict in (RIGHT, SCALED):
            # Directions see sums of components: what hides in the sum is not vouched for.
            along = (
                f" along {_counted(len(self.taylor), 'random direction')}" if self.taylor else ""
            )
            badly = ", but badly scaled" if self.verdict == SCALED else ""
            return f"{what}: right{along}, to {_digits(self._agreed)} digits or more{badly}"
        c = self.worst
        if self.verdict == ROUGH:
            return f"{what}: not smooth here, at {c.name}: {c.note}"
        if self.verdict == NOISY:
            seen = f"agrees to {_digits(min(c.digits, c.resolved))} digits and no more can be seen"
            return f"{what}: noisy, at {c.name} it {seen} (noise of {self.level:.0e}, {self.noise:.0e} of the value)"
        return (
            f"{what}: wrong at {c.name}, which is {_number(c.claimed)} but should be {_number(c.measured)} "
            f"({_digits(c.digits)} of {_digits(c.resolved)} digits agree)"
        )

    @property
    def _agreed(self) -> float:
        visible = [c.digits for c in self.components if not c.note and c.size > 0]
        return min(visible, default=16.0)

    def __str__(self) -> str:
        lines = [self.headline]
        if self.explanation:
            lines.append(self.explanation)
        lines += ["", *_columns(self._table())]
        hidden = len(self.components) - ROWS
        if hidden > 0:
            lines.append(f"... and {hidden} more, no worse than these")
        if self.taylor:
            lines += ["", *_columns(self._taylor_table())]
            if len(self.taylor) > ROWS:
                lines.append(f"... and {len(self.taylor) - ROWS} more directions")
        lines += ["", self._cost(), *self.notes]
        return "\n".join(lines)

    __repr__ = __str__

    def _cost(self) -> str:
        return f"{self.size} components, method {self.method}, {self.evaluations} evaluations, noise {self.noise:.0e}"

    def _table(self) -> list[list[str]]:
        """The table of the report: a heading and the worst components first, at most ROWS of them."""
        rows = [["component", "gradient", "measured", "digits", "of", "steps", "verdict"]]
        for c in _worst_first(self.components)[:ROWS]:
            note = f": {c.note}" if c.note else ""
            rows.append(
                [
                    c.name,
                    _number(c.claimed),
                    _number(c.measured),
                    _digits(c.digits),
                    _digits(c.resolved),
                    _range(c.steps),
                    f"{c.verdict}{note}",
                ]
            )
        return rows

    def _taylor_table(self) -> list[list[str]]:
        width = max(len(t.orders) for t in self.taylor)
        heads = ["order without", "with gradient", "with Hessian"][:width]
        rows = [["Taylor test along", *heads]]
        rows += [[t.name, *(_order(o) for o in t.orders)] for t in self.taylor[:ROWS]]
        return rows

    def _repr_html_(self) -> str:
        tables = [_html_table(self._table())]
        if self.taylor:
            tables.append(_html_table(self._taylor_table()))
        return markup.panel(
            COLOURS[self.verdict],
            self.verdict,
            self.headline,
            [self.explanation, *tables],
            [self._cost(), *self.notes],
        )

    def to_dict(self) -> dict[str, Any]:
        """Everything that was found as plain numbers, strings, lists and dicts, fit for JSON."""
        return {
            "function": self.title,
            "verdict": self.verdict,
            "ok": self.ok,
            "headline": self.headline,
            "explanation": self.explanation,
            "method": self.method,
            "digits_asked": self.digits,
            "noise": _plain(self.level),
            "noise_relative": _plain(self.noise),
            "evaluations": self.evaluations,
            "size": self.size,
            "components": [
                {
                    "name": c.name,
                    "verdict": c.verdict,
                    "note": c.note,
                    "gradient": _plain(c.claimed),
                    "measured": _plain(c.measured),
                    "error_bound": _plain(c.error),
                    "digits": round(c.digits, 2),
                    "digits_measured": round(c.resolved, 2),
                    "steps": [_plain(h) for h in c.steps],
                }
                for c in self.components
            ],
            "taylor": [
                {
                    "direction": t.name,
                    "orders": [_plain(o) for o in t.orders],
                    "steps": [_plain(h) for h in t.steps],
                    "remainders": [[_plain(r) for r in row] for row in t.remainders],
                }
                for t in self.taylor
            ],
            "notes": list(self.notes),
        }

    def plot(self, components: Sequence[str] | None = None) -> Figure:
        """A picture: error against step for the worst components (the V-curve), and the Taylor remainders.

        `components` names those to draw. Steps that the check had no need of are evaluated now. Returns a Matplotlib
        figure; needs matplotlib (`pip install "tapegrad[plot]"`).
        """
        from .pictures import draw

        return draw(self, components)


@dataclass(slots=True)
class AdjointCheck:
    """What a dot-product test found: `pairs` has <w, A v> and <Aᵀ w, v> for each pair of random vectors.

    >>> import numpy as np, tapegrad as tg
    >>> A = np.array([[1.0, 2.0], [3.0, 4.0]])
    >>> check = tg.check_adjoint(lambda v: A @ v, lambda w: A.T @ w, np.ones(2))
    >>> check.ok, check.agreed > 10, check.assert_ok() is check, sorted(check.to_dict())[:3]
    (True, True, True, ['digits', 'digits_asked', 'explanation'])
    >>> check.headline
    'adjoint of f: right, to ... digits...'
    """

    title: str
    verdict: str
    explanation: str
    pairs: list[tuple[complex, complex]]
    sizes: list[float]
    shapes: tuple[Any, Any] = ((), ())
    digits: float = 10.0
    notes: list[str] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        """Whether the adjoint is that of the operator."""
        return self.verdict == RIGHT

    @property
    def agreed(self) -> float:
        """Digits on which the worst pair agrees, as parts of |w| |A v|."""
        gaps = [
            abs(a - b) / s if s else 0.0 for (a, b), s in zip(self.pairs, self.sizes, strict=True)
        ]
        worst = max(gaps, default=0.0)
        return (
            16.0
            if worst == 0
            else float(np.clip(-np.log10(worst), 0, 16))
            if np.isfinite(worst)
            else 0.0
        )

    def assert_ok(self) -> AdjointCheck:
        """Raise GradcheckError with the whole report unless the adjoint is right; return the result."""
        __tracebackhide__ = True  # pytest shows the report, not this line
        if not self.ok:
            raise GradcheckError(str(self))
        return self

    @property
    def headline(self) -> str:
        """The verdict as one sentence."""
        if self.ok:
            return f"adjoint of {self.title}: right, to {_digits(self.agreed)} digits"
        return f"adjoint of {self.title}: {self.verdict}, {_digits(self.agreed)} digits agree where {self.digits:g} were asked"

    def _table(self) -> list[list[str]]:
        rows = [["pair", "<w, A v>", "<A* w, v>", "difference"]]
        for k, (a, b) in enumerate(self.pairs):
            rows.append([str(k), _number(a), _number(b), f"{abs(a - b):.1e}"])
        return rows

    def __str__(self) -> str:
        lines = [self.headline, *([self.explanation] if self.explanation else []), ""]
        return "\n".join([*lines, *_columns(self._table()), *self.notes])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return markup.panel(
            COLOURS[self.verdict],
            self.verdict,
            self.headline,
            [self.explanation, _html_table(self._table())],
            self.notes,
        )

    def to_dict(self) -> dict[str, Any]:
        """Everything that was found as plain numbers, strings, lists and dicts, fit for JSON."""
        return {
            "operator": self.title,
            "verdict": self.verdict,
            "ok": self.ok,
            "headline": self.headline,
            "explanation": self.explanation,
            "digits": round(self.agreed, 2),
            "digits_asked": self.digits,
            "pairs": [[_plain(a), _plain(b)] for a, b in self.pairs],
            "notes": list(self.notes),
        }


def _worst_first(components: Sequence[Component]) -> list[Component]:
    order = {WRONG: 0, ROUGH: 1, NOISY: 2, SCALED: 3, RIGHT: 4}
    return sorted(
        components,
        key=lambda c: (order[c.verdict], c.digits if c.verdict != RIGHT or not c.note else 17),
    )


# ------------------------------------------------------------------------------------------------- as text


def _number(x: complex) -> str:
    if isinstance(x, complex):
        return f"{x:.9g}"
    return f"{x:.9g}" if x == 0 or not math.isfinite(x) or 1e-4 <= abs(x) < 1e9 else f"{x:.8e}"


def _digits(d: float) -> str:
    return f"{math.floor(d)}"


def _order(order: float) -> str:
    return "exact" if order == math.inf else "-" if math.isnan(order) else f"{order:.2f}"


def _range(steps: tuple[float, ...]) -> str:
    if not steps:
        return "-"
    low, high = min(steps), max(steps)
    return f"{high:.0e}" if low == high else f"{high:.0e}..{low:.0e}"


def _plain(value: Any) -> Any:
    """A number for JSON, which knows neither infinity nor complex numbers."""
    if isinstance(value, complex):
        return [value.real, value.imag] if value.imag else _plain(value.real)
    value = float(value)
    return value if math.isfinite(value) else str(value)


def _columns(rows: list[list[str]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(cell.ljust(w) for cell, w in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]


# ------------------------------------------------------------------------------------------------- as HTML


def _html_table(rows: list[list[str]]) -> str:
    def told(cell: str) -> str:
        verdict = cell.split(":")[0]
        return markup.coloured(cell, COLOURS[verdict], bold=True) if verdict in COLOURS else cell

    return markup.table([[told(cell) for cell in row] for row in rows[1:]], rows[0])


def page(result: GradientCheck | AdjointCheck, picture: bytes | None = None) -> str:
    """A whole HTML document with the report, in the colours of the reader's system; `picture` is SVG."""
    drawn = ""
    if picture:
        import base64

        source = base64.b64encode(picture).decode()
        drawn = f'<img alt="error against step" src="data:image/svg+xml;base64,{source}">'
    title = html.escape(result.headline)
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><meta name="color-scheme" content="light dark">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{title}</title><style>body{{font-family:system-ui,sans-serif;max-width:70em;margin:2em auto;padding:0 1em}}"
        "img{max-width:100%;background:#fff;border-radius:.5em;margin-top:1em}</style></head><body>"
        f"{result._repr_html_()}{drawn}</body></html>\n"
    )


def measured_line(
    check: GradientCheck, component: Component
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Steps, and how far central differences are from the gradient and from the best measurement."""
    probe, unit = check.probes[component.index]
    curves = probe.complete().curves(component.index[0])
    good = curves.finite
    best = richardson(curves).value / unit
    central = curves.central[good] / unit
    return curves.steps[good] * unit, np.abs(central - component.claimed), np.abs(central - best)
