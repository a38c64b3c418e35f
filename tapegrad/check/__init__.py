"""Checking that derivatives are right: of any function (`gradients.py`), of declared ops (`laws.py`).

`check_gradient(f, x, gradient=...)` judges any gradient of any function, `check_adjoint(A, At, x)` any pair of a linear
operator and its adjoint; both return results that print, plot, and raise in tests by `.assert_ok()`. They read, in this
order: the function as a map of vectors (`subject.py`), its values along lines (`probing.py`), slopes with error bounds
(`estimates.py`), what they mean (`verdicts.py`), how it is told (`findings.py`, `pictures.py`). `python -m tapegrad check`
is the same on the command line (`commandline.py`), and `fixtures.py` has a pytest fixture.

`check_op` runs every law on every sample that an op's declaration gives and returns a `Report`, which prints as
a table of samples by laws.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ..core import markup
from ..core.primitive import FUNCTIONS, UFUNCS, Call, Primitive
from ..errors import GradcheckError

if TYPE_CHECKING:
    from .findings import AdjointCheck, GradientCheck
    from .gradients import check_adjoint, check_gradient


@dataclass(slots=True)
class Report:
    """What the laws said of one op: `ok`, `problems`, a table when printed; `assert_ok()` raises the first problem.

    >>> import numpy as np, tapegrad as tg
    >>> report = tg.check_op(np.sqrt, only=["value", "derivative"])
    >>> report.ok, report.name, report.problems
    (True, 'sqrt', [])
    >>> report.assert_ok() is report
    True
    """

    name: str
    samples: list[str] = field(default_factory=list)
    verdicts: dict[tuple[str, str], str] = field(default_factory=dict)
    problems: list[GradcheckError] = field(default_factory=list)
    excused: dict[str, str] = field(default_factory=dict)

    @property
    def ok(self) -> bool:
        """Whether every law that applies holds."""
        return not self.problems

    @property
    def broken(self) -> list[str]:
        """Names of the laws that some sample breaks."""
        return list(
            dict.fromkeys(law for (_, law), verdict in self.verdicts.items() if verdict == "BROKEN")
        )

    def assert_ok(self) -> Report:
        """Raise the first problem found, a GradcheckError that names law and sample; return the report if there is none."""
        __tracebackhide__ = True  # pytest shows the problem, not this line
        if self.problems:
            raise self.problems[0]
        return self

    def _check(self, sample: str, law: str, check: Callable[[], None]) -> None:
        if sample not in self.samples:
            self.samples.append(sample)
        try:
            check()
            self.verdicts[sample, law] = "ok"
        except GradcheckError as problem:
            self.verdicts[sample, law] = "BROKEN"
            self.problems.append(problem)

    def __repr__(self) -> str:
        laws = list(dict.fromkeys(law for _, law in self.verdicts))
        width = max(len(s) for s in ["", *self.samples])
        found = f"breaks {', '.join(self.broken)}" if self.problems else "every law holds"
        lines = [
            f"{self.name}: {found} ({_counted(laws, 'law')}, {_counted(self.samples, 'sample')})"
        ]
        lines.append("  ".join([" " * width, *laws]))
        for sample in self.samples:
            marks = [self.verdicts.get((sample, law), "-").ljust(len(law)) for law in laws]
            lines.append("  ".join([sample.ljust(width), *marks]).rstrip())
        lines += [f"not checked: {what}, because {why}" for what, why in self.excused.items()]
        lines += [f"\n{problem}" for problem in self.problems]
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        """The verdicts as a table for notebooks: a row for each sample, a column for each law."""
        laws = list(dict.fromkeys(law for _, law in self.verdicts))
        tones = {"ok": "green", "BROKEN": "red"}

        def mark(sample: str, law: str) -> str:
            verdict = self.verdicts.get((sample, law), "")
            return markup.coloured(verdict, tones[verdict]) if verdict else markup.dim("-")

        rows = [[sample, *(mark(sample, law) for law in laws)] for sample in self.samples]
        return markup.panel(
            "red" if self.problems else "green",
            "broken" if self.problems else "ok",
            repr(self).partition("\n")[0],
            [markup.table(rows, ["sample", *laws]), *(str(p) for p in self.problems)],
            [f"not checked: {what}, because {why}" for what, why in self.excused.items()],
        )


def check_op(
    op: Any, rng: int = 0, *, samples: Sequence[Call] = (), only: Sequence[str] = ()
) -> Report:
    """Run the laws on an op: value, derivatives of both modes and orders, shapes, dtypes, purity, every engine.

    Engines are held to what the sweep gives: `replay` on the samples themselves; `compiled` by a program of value, tangent, gradient
    and second derivative, called again with other values (ties, zeros, equal entries, infinities, scales of 2^40 and 2^-40) and other
    memory (columns, flipped, with gaps, broadcast, read-only, unaligned); `native` by Numba functions that call the op on an array and on
    single numbers, through adjoint and overloading, or refuse it by its name. These two compile: `only` leaves them out.

    `op` is a declared op, by its Primitive or its public function (`tg.sin` or `np.sin`); or any function
    written with NumPy's names, with the `samples` to call it with, such as `call((2, 3), axis=1)`. A NumPy
    function without a rule is checked for refusing tracked tensors. `rng` seeds the operands; `only` names the
    laws to run (all of `check.laws.LAWS`). Returns a
    Report; its `assert_ok()` raises GradcheckError if a law is broken.

    >>> import numpy as np, tapegrad as tg
    >>> tg.check_op(np.sqrt, only=["value", "derivative"]).ok
    True
    >>> tg.check_op(np.histogram_bin_edges)
    histogram_bin_edges: every law holds (1 law, 1 sample)
             honest
    tracked  ok
    """
    # Imported where used: a program that checks no op does not wait for it.
    from . import laws
    from .samples import samples_from, samples_of

    for name in only:
        if name not in (*laws.LAWS, laws.honest.__name__):
            raise ValueError(f"only={name!r} is no law: choose among {', '.join(laws.LAWS)}.")
    declared = _declared(op)
    report = Report(declared.name if declared else getattr(op, "__name__", repr(op)))
    if samples:
        drawn = samples_from(op, samples, rng)
    elif declared is not None:
        report.excused.update(declared.unsupported)
        drawn = samples_of(declared, rng)
    elif _has_rule(op) or not laws.of_numpy(op):
        raise TypeError(
            f"check_op was asked to check {report.name}, but that is no declared op: it is made of ops, each "
            "with samples of its own. Pass samples=[call((2, 3), axis=1)] (tapegrad.core.primitive.call) to check it as it is."
        )
    else:
        report._check("tracked", "honest", lambda: laws.honest(op, rng))
        return report
    for sample in drawn:
        for law in laws.laws_of(sample):
            if only and law.name not in only:
                continue
            report._check(sample.name, law.name, functools.partial(law, sample))
    return report


def __getattr__(name: str) -> Any:
    """The checks of user functions: their modules load when first asked for."""
    if name in ("check_gradient", "check_adjoint"):
        from . import gradients

        return getattr(gradients, name)
    if name in ("GradientCheck", "AdjointCheck"):
        from . import findings

        return getattr(findings, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def _counted(things: Sequence[Any], name: str) -> str:
    return f"{len(things)} {name}{'s' * (len(things) != 1)}"


def _declared(op: Any) -> Primitive | None:
    """The declaration behind a Primitive, a public function of this library, or NumPy's function."""
    if isinstance(op, Primitive):
        return op
    ours = UFUNCS.get(op) or FUNCTIONS.get(op) or op
    return getattr(ours, "primitive", None)


def _has_rule(function: Any) -> bool:
    return function in UFUNCS or function in FUNCTIONS


__all__ = ["AdjointCheck", "GradientCheck", "Report", "check_adjoint", "check_gradient", "check_op"]


def __dir__() -> list[str]:
    return __all__
