"""Checking any gradient of any function: `check_gradient`, and the dot-product test `check_adjoint`.

The function is a `Subject`, a map between real vectors. It is probed along lines: along each component where there are few,
along random directions where there are many (two dozen values a direction, whatever the number of parameters). Each line
gives a measured slope with an error bound, which is put beside the slope that the gradient claims; `verdicts` says what
that means. If a random direction disagrees, halving it finds a component that is to blame in log2(n) more slopes.

Invariant: the verdict rests on values of the function alone. No derivative is believed, tapegrad's own included.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np

from ..core.tensor import Tensor
from ..errors import NotDifferentiable, demand_callable, demand_number
from ..transforms.derivatives import _optree
from .estimates import Estimate, complex_step, differences, richardson
from .findings import AdjointCheck, GradientCheck, TaylorLine
from .probing import FIRST, RATIO, Curves, Probe, noise_of
from .subject import Subject, _flatten, _numbers, title
from .verdicts import (
    NOISY,
    RIGHT,
    ROUGH,
    SAFETY,
    SCALED,
    WRONG,
    Component,
    diagnosis,
    in_words,
    judge,
    noise_in_words,
    overall,
    roughness,
    settled,
)

METHODS = ("auto", "differences", "richardson", "complex", "taylor")
FEW = 64
"""Slopes (components times outputs) up to which `auto` checks each by itself."""
DIRECTIONS = 4
TINY = 2.0**-60
"""Step of the complex step, as a part of the scale: its square vanishes beside 1."""


_GRADIENT = "write gradient=g for the gradient to judge"
_DIGITS = "write digits=6 for how many must agree"
_STEPS = "steps are chosen for each component, by measurement"

INSTEAD = {
    **dict.fromkeys(("grad", "jac", "jacobian", "fprime", "adjoint", "analytic"), _GRADIENT),
    **dict.fromkeys(("tol", "rtol", "atol", "tolerance"), _DIGITS),
    **dict.fromkeys(("eps", "epsilon", "step", "h"), _STEPS),
    "args": "write the arguments one after the other, check_gradient(f, x, a, b)",
}
"""What other checkers call our settings."""


def check_gradient(
    f: Callable[..., Any],
    *args: Any,
    gradient: Any = None,
    argnums: Any = None,
    method: str = "auto",
    directions: int | None = None,
    budget: int | None = None,
    hessian: Any = None,
    digits: float = 6,
    seed: int = 0,
    progress: bool = False,
    **others: Any,
) -> GradientCheck:
    """Whether a gradient of `f` at `args` is right, judged by values of `f` alone; a `GradientCheck`.

    `f` takes arrays, numbers, tensors or pytrees of them and returns numbers; a list of numbers is an array. `gradient` is what
    is checked: a function of the same arguments, or its value at `args`, with the shape of what it belongs to (for several
    outputs a Jacobian: shape of the output, then of the input); None stands for tapegrad's own. `argnums` says which arguments
    it belongs to (all that hold floats, or the one to which alone the gradient fits); for several, `gradient` gives a tuple.
    Complex arguments follow PyTorch's convention.

    `method` is how slopes are measured: "differences" (central, with the step of each component from noise and curvature),
    "richardson" (extrapolated; what "auto" does), "complex" (complex step, cross-checked, where `f` is analytic), or
    "taylor" (remainders along random directions, with their orders: 1 without the gradient, 2 with it, 3 with `hessian`,
    which is True for tapegrad's own or a function that returns the matrix). `directions` asks for that many random
    directions instead of a table of components; so does a problem with more than 64 slopes. A mistake in one component that is
    small beside the slope along a direction is not seen then, and the headline says "right along 4 random directions". `digits`
    is how many must agree.

    `budget` is how many values of `f` the check may take, for models of many parameters: a direction takes 10 to 40 of them, and
    a table of components as many for each. The check looks along one direction of all components, and with the values that are left
    along directions of disjoint blocks that together cover every component, leaf by leaf. The more values, the smaller the
    blocks and the mistakes that are seen; where there are enough, each component is judged by itself. A mistake that is found
    is traced to a component, whatever that takes.
    `progress` reports to stderr.

    The verdict is "right", "badly scaled" (right, but beware), "noisy", "not smooth" or "wrong"; `.explanation` says what
    the mistake looks like, or, of a right gradient, which components or how many random directions were judged. Raises TypeError or
    ValueError, in words, for what cannot be checked at all.

    >>> import numpy as np, tapegrad as tg
    >>> check = tg.check_gradient(lambda x: np.sum(x**2), np.array([1.0, 2.0, 3.0]), gradient=lambda x: -2 * x)
    >>> check.verdict, check.explanation
    ('wrong', 'every component has the opposite sign: a sign error.')
    >>> tg.check_gradient(lambda x: np.sum(x**2), np.array([1.0, 2.0])).assert_ok().explanation
    'all 2 components were judged, each by itself.'
    """
    for name in others:
        said = f"check_gradient() got an unexpected keyword argument {name!r}"
        raise TypeError(f"{said}: {INSTEAD[name]}." if name in INSTEAD else said)
    if callable(f) and any(callable(a) and not isinstance(a, Tensor) for a in args):
        raise TypeError(
            "check_gradient was given a function among the arguments to check at: write gradient=g for the gradient to judge."
        )
    if method not in METHODS:
        raise ValueError(f"method={method!r} is not known: choose among {', '.join(METHODS)}.")
    demand_number(digits, "digits")
    if not 0 < digits <= 15:
        raise ValueError(
            f"digits={digits!r} was asked, but float64 has 15: choose a number from 1 to 15."
        )
    if directions is not None and not (isinstance(directions, int | np.integer) and directions > 0):
        raise ValueError(f"directions={directions!r}: ask for at least one, or leave it out.")
    if budget is not None and not (isinstance(budget, int | np.integer) and budget > 0):
        raise ValueError(
            f"budget={budget!r} is no number of values of f: write a whole number such as budget=1000."
        )
    if budget is not None and directions is not None:
        raise ValueError(
            "directions and budget were both given, and each says how much to look at: write one of them."
        )
    if hessian is not None and hessian is not True and hessian is not False:
        demand_callable(hessian, "hessian=", "pass a function that returns the matrix, or True")
    subject = Subject(f, args, argnums)
    lone = None if argnums is not None else _lone_argument(subject, gradient)
    if lone is not None:
        subject = Subject(f, args, lone)
    run = _Check(subject, gradient, hessian, 10.0**-digits, seed, progress)
    many = subject.x.size * subject.y.size > FEW
    if budget is not None:
        result = run.within(method, budget)
    elif method == "taylor" or directions is not None or (method == "auto" and many):
        result = run.along_directions(method, directions or DIRECTIONS)
    else:
        result = run.by_components(method)
    if lone is not None:
        result.notes.append(
            f"by argument {lone} alone, to which the gradient fits; argnums names others"
        )
    return result


def _lone_argument(subject: Subject, gradient: Any) -> int | None:
    """The one argument that a gradient without a tuple belongs to, by its structure and shapes, where there are several."""
    if gradient is None or len(subject.positions) < 2:
        return None
    value = gradient(*subject.arguments(subject.x)) if callable(gradient) else gradient
    if value is None or isinstance(value, tuple | list):
        return None

    def form(tree: Any) -> tuple[Any, list[tuple[int, ...]]]:
        leaves, structure = _flatten(tree)
        return structure, [np.shape(leaf) for leaf in leaves]

    fitting = [k for k in subject.positions if form(subject.args[k]) == form(value)]
    return fitting[0] if len(fitting) == 1 else None


class _Check:
    """One run of `check_gradient`: the subject, what is claimed of it, and how it is looked at."""

    def __init__(
        self,
        subject: Subject,
        gradient: Any,
        hessian: Any,
        tolerance: float,
        seed: int,
        progress: bool,
    ) -> None:
        """Prepare the judgement: scales of the components, noise of the function, and the gradient that is claimed."""
        self.subject = subject
        self.hessian = hessian
        self.tolerance = tolerance
        self.rng = np.random.default_rng(seed)
        self.progress = progress
        # Powers of two: x + h is then exact but for a carry, so steps add no rounding of their own.
        self.scales = 2.0 ** np.round(np.log2(np.clip(subject.scales(), 1e-290, 1e290)))
        self.notes: list[str] = []
        self.signs = self.rng.choice([-1.0, 1.0], subject.x.size)
        self.together = subject.x.size
        """Components that the narrowest directions hold at most."""
        self.noise = noise_of(self.line(self.signs), subject.y)
        self.weights = self._weights()
        self.claimed, self.name = self._claimed(gradient)

    # ------------------------------------------------------------------------------------ what is claimed

    def _weights(self) -> np.ndarray:
        """For several outputs, the random combination that directions look at: each counts by its size."""
        y = self.subject.y
        if y.size == 1:
            return np.ones(1)
        size = np.where(np.abs(y) > 0, np.abs(y), max(float(np.abs(y).mean()), 1e-300))
        return self.rng.choice([-1.0, 1.0], y.size) / size

    def _claimed(self, gradient: Any) -> tuple[np.ndarray, str]:
        """The Jacobian (outputs by inputs) that is checked, or the row of the weighted sum of outputs if it is big."""
        subject = self.subject
        m, n = subject.y.size, subject.x.size
        if gradient is None:
            return self._own_gradient(), "tapegrad's gradient"
        name = title(gradient) if callable(gradient) else "the gradient"
        value = gradient(*subject.arguments(subject.x)) if callable(gradient) else gradient
        if value is None:
            raise TypeError(f"{name} returned None. Does it end with a return?")
        if m == 1:
            leaves = _flatten(value)[0]
            if len(leaves) == len(subject.slots) == 1 and np.size(leaves[0]) == n == 1:
                value = [np.reshape(_numbers(leaves[0], name), subject.slots[0].shape)]
                return np.reshape(value[0], (1, 1)), name
            if (
                len(leaves) == len(subject.slots) == 1
                and np.shape(leaves[0]) == (1, *subject.slots[0].shape)
                and not subject.slots[0].complex
            ):
                return _numbers(leaves[0], name).reshape(1, n), name  # a Jacobian with one row
            return subject.vector(value, name).reshape(1, n), name
        if any(slot.complex for slot in subject.slots):
            raise NotDifferentiable(
                f"{subject.title} has {m} outputs and a complex point: there is no Jacobian to check. Check one real output, "
                "or use tapegrad.autograd.gradcheck.",
                name="not-real",
            )
        return self._jacobian(value, name), name

    def _jacobian(self, value: Any, name: str) -> np.ndarray:
        """A Jacobian as a matrix: one array, or an array for each leaf of the point."""
        subject = self.subject
        m, n = subject.y.size, subject.x.size
        leaves = [_numbers(leaf, name) for leaf in _flatten(value)[0]]
        if len(leaves) == 1 and leaves[0].size == m * n:
            matrix = leaves[0]
            if matrix.ndim == 2 and matrix.shape == (n, m) != (m, n):
                raise ValueError(
                    f"{name} returned shape {matrix.shape}, but a Jacobian has a row for each of {m} outputs and a column for "
                    f"each of {n} inputs: it looks transposed, return its .T."
                )
            return matrix.reshape(m, n)
        if len(leaves) == len(subject.slots) and all(
            leaf.size == m * slot.size for leaf, slot in zip(leaves, subject.slots, strict=True)
        ):
            return np.concatenate([leaf.reshape(m, -1) for leaf in leaves], axis=1)
        shapes = ", ".join(str(leaf.shape) for leaf in leaves)
        raise ValueError(
            f"{name} returned shape {shapes}, but {subject.title} has {m} outputs and {n} inputs: return the Jacobian, with "
            "the shape of the output and then of the input."
        )

    def _own_gradient(self) -> np.ndarray:
        """tapegrad's own: a gradient, a Jacobian if it is small, else one pullback of the weights."""
        from ..transforms.derivatives import differentiable, grad, jacobian, vjp

        subject = self.subject
        f = differentiable(subject.f)
        m, n = subject.y.size, subject.x.size
        args = subject.arguments(subject.x)
        which = subject.positions[0] if subject.single else tuple(subject.positions)
        if m == 1:

            def single(*xs: Any) -> Any:
                return _only(f(*xs))

            return subject.vector(
                grad(single, which, allow_unused=True)(*args), "tapegrad"
            ).reshape(1, n)
        if any(slot.complex for slot in subject.slots):
            self._refuse_complex_jacobian(m)
        if m * n <= FEW * FEW:

            def flat(*xs: Any) -> Any:
                return _joined(f(*xs))

            blocks = jacobian(flat, which, allow_unused=True)(*args)
            leaves = [_numbers(leaf, "tapegrad") for leaf in _flatten(blocks)[0]]
            return np.concatenate([leaf.reshape(m, -1) for leaf in leaves], axis=1)

        def of_chosen(*chosen: Any) -> Any:
            every = list(args)
            for k, value in zip(subject.positions, chosen, strict=True):
                every[k] = value
            return _joined(f(*every))

        _, pull = vjp(of_chosen, *(args[k] for k in subject.positions), allow_unused=True)
        found = pull(self.weights)
        return subject.vector(found[0] if subject.single else found, "tapegrad").reshape(1, n)

    def _refuse_complex_jacobian(self, m: int) -> None:
        raise NotDifferentiable(
            f"{self.subject.title} has {m} outputs and a complex point: there is no Jacobian to check. Check one real output, "
            "or use tapegrad.autograd.gradcheck.",
            name="not-real",
        )

    # ------------------------------------------------------------------------------------ looking

    def line(self, signs: np.ndarray) -> Callable[[float], np.ndarray]:
        """The outputs along a direction given in scales of the components."""
        step = signs * self.scales
        return lambda t: self.subject(self.subject.x + t * step)

    def probe(
        self, signs: np.ndarray, claimed: np.ndarray, weights: np.ndarray | None = None
    ) -> Probe:
        """A line looked at until every output is settled; `claimed` are slopes per unit of the direction."""
        outputs_of = self.line(signs)
        if weights is None:
            probe = Probe(outputs_of, self.subject.y, self.noise.level)
        else:
            probe = Probe(
                lambda t: np.atleast_1d(weights @ outputs_of(t)),
                np.atleast_1d(weights @ self.subject.y),
                np.atleast_1d(np.abs(weights) @ self.noise.level),
            )
        while probe.descend():
            if len(probe.steps) >= 6 and all(
                settled(probe.curves(j), float(claimed[j]), self.tolerance)
                for j in range(len(claimed))
            ):
                break
        return probe

    def tell(self, done: int, total: int, what: str) -> None:
        """Progress on stderr, in one line where it is a terminal."""
        if self.progress:
            end = "\r" if sys.stderr.isatty() and done < total else "\n"
            if (
                end == "\n"
                and not sys.stderr.isatty()
                and done < total
                and done % max(total // 10, 1)
            ):
                return
            evaluations = self.subject.evaluations
            print(
                f"{what} {done}/{total}, {evaluations} evaluations",
                end=end,
                file=sys.stderr,
                flush=True,
            )

    # ------------------------------------------------------------------------------------ few components

    def by_components(self, method: str) -> GradientCheck:
        """A slope for each component and output."""
        n = self.subject.x.size
        if self.claimed.shape[0] != self.subject.y.size:  # a Jacobian too big to write out
            return self.along_directions(method, DIRECTIONS)
        exact = self._complex_slopes() if method == "complex" else None
        components: list[Component] = []
        probes: dict[tuple[int, int], tuple[Probe, float]] = {}
        for i in range(n):
            if exact is None:
                found, probe = self.component(i, method)
                probes |= {c.index: (probe, float(self.scales[i])) for c in found}
            else:
                found = self._exact_component(i, exact[i])
            components += found
            self.tell(i + 1, n, "components")
        return self._result(method, components, probes, [])

    def component(self, i: int, method: str = "auto") -> tuple[list[Component], Probe]:
        """The slopes of all outputs by one component."""
        unit = float(self.scales[i])
        signs = np.zeros(self.subject.x.size)
        signs[i] = 1.0
        claimed = self.claimed[:, i] * unit
        weights = None if self.claimed.shape[0] == self.subject.y.size else self.weights
        probe = self.probe(signs, claimed, weights)
        measure = differences if method == "differences" else richardson
        found = []
        for j in range(len(claimed)):
            curves = probe.curves(j)
            estimate = measure(curves)
            verdict, note = judge(float(claimed[j]), estimate, curves, self.tolerance, unit)
            found.append(
                Component(
                    self._name(j, i),
                    (j, i),
                    float(self.claimed[j, i]),
                    estimate.value / unit,
                    estimate.error / unit,
                    tuple(h * unit for h in estimate.steps),
                    verdict,
                    note,
                )
            )
        return found, probe

    def _name(self, j: int, i: int) -> str:
        name = self.subject.name(i)
        return name if self.claimed.shape[0] == 1 else f"output {j} by {name}"

    def _complex_slopes(self) -> list[list[Estimate]] | None:
        """Slopes by complex steps; None, with a note, if they do not stand the comparison with differences."""
        subject = self.subject
        found = []
        for i in range(subject.x.size):
            z = subject.x.astype(complex)
            z[i] += 1j * TINY * self.scales[i]
            try:
                y = subject.complex_value(z)
            except (
                Exception
            ) as problem:  # whatever a function says to an argument it was not made for
                return self._not_analytic(
                    f"it does not take complex numbers ({type(problem).__name__})"
                )
            if y.size != subject.y.size or not np.isfinite(y).all():
                return self._not_analytic("its outputs are others for complex numbers")
            found.append(complex_step(y.imag, TINY))
        along = np.array([[e.value for e in row] for row in found]).T @ self.signs
        probe = self.probe(self.signs, along)
        for j, slope in enumerate(along):
            curves = probe.curves(j)
            measured = richardson(curves)
            gap = abs(measured.value - slope)
            if roughness(curves) or gap > SAFETY * measured.error + 1e-6 * abs(measured.value):
                return self._not_analytic(
                    "complex steps and differences disagree (abs, real, conj, a comparison?)"
                )
            # Of x|x| at 0, which is not analytic, the complex step gives the step itself: an error of first order.
            near = np.flatnonzero(curves.finite)[:1]
            moved = np.maximum(abs(curves.plus - curves.at), abs(curves.minus - curves.at))[near]
            first_order = SAFETY * TINY * float(np.max(moved / curves.steps[near] ** 2, initial=0))
            if any(0 < abs(row[j].value) <= first_order for row in found):
                return self._not_analytic("its imaginary part falls as the step's square")
        return found

    def _not_analytic(self, why: str) -> list[list[Estimate]] | None:
        """No slopes, and a note that says why."""
        self.notes.append(
            f"no complex step here, as {why}: Richardson extrapolation was used instead."
        )
        return None

    def _exact_component(self, i: int, estimates: list[Estimate]) -> list[Component]:
        """Judgements of component `i` by complex steps, which have no truncation error: one for each output."""
        unit = float(self.scales[i])
        flat = Curves(np.zeros(0), np.zeros(0), np.zeros(0), 0.0, 0.0)
        found = []
        for j, e in enumerate(estimates):
            claimed = float(self.claimed[j, i])
            scaled = Estimate(e.value, e.error, e.steps, e.method)
            verdict, note = judge(claimed * unit, scaled, flat, self.tolerance)
            found.append(
                Component(
                    self._name(j, i),
                    (j, i),
                    claimed,
                    e.value / unit,
                    e.error / unit,
                    tuple(h * unit for h in e.steps),
                    verdict,
                    note,
                )
            )
        return found

    # ------------------------------------------------------------------------------------ many components

    def within(self, method: str, budget: int) -> GradientCheck:
        """The most telling check that takes about `budget` values: components, or blocks of them."""
        first, values = self._priced(self.signs)
        for _ in range(2):  # narrow directions stand out less from the noise, and take more values
            left = budget - self.subject.evaluations
            blocks = self._blocks(left // values)
            if not blocks:
                break
            values = max(values, self._priced(self._within(blocks[-1]))[1])
        left = budget - self.subject.evaluations
        n = self.subject.x.size
        fits = left >= (n + values if method == "complex" else n * values)
        if fits and method != "taylor" and self.claimed.shape[0] == self.subject.y.size:
            return self.by_components(method)
        blocks = self._blocks(left // values)
        whole = 1 if blocks else 1 + max(0, left // values)
        return self.along_directions(method, whole, blocks, first)

    def _priced(self, signs: np.ndarray) -> tuple[Probe, int]:
        """A direction, and how many values looking along it took."""
        before = self.subject.evaluations
        return self._direction(signs), self.subject.evaluations - before

    def _within(self, block: np.ndarray) -> np.ndarray:
        """A direction that leaves all components alone but those of a block."""
        signs = np.zeros(self.subject.x.size)
        signs[block] = self.rng.choice([-1.0, 1.0], len(block))
        return signs

    def _direction(self, signs: np.ndarray) -> Probe:
        """The line that `along_directions` looks at: of several outputs their weighted sum."""
        claimed = np.array([_product(self.row, signs * self.scales)])
        return self.probe(signs, claimed, None if self.subject.y.size == 1 else self.weights)

    @cached_property
    def row(self) -> np.ndarray:
        """What is claimed of the weighted sum of outputs."""
        return self.claimed[0] if self.claimed.shape[0] == 1 else self.weights @ self.claimed

    def _blocks(self, count: int) -> list[np.ndarray]:
        """All components in at most `count` blocks of alike sizes: of one leaf each, where there are as many blocks as leaves."""
        slots, n = self.subject.slots, self.subject.x.size
        if count < 2:
            return []  # one block is the direction of all components
        if count < len(slots):
            return np.array_split(np.arange(n), count)
        blocks: list[np.ndarray] = []
        for k, slot in enumerate(slots):
            # Of the blocks that are left, each later leaf keeps one.
            free = count - len(blocks) - (len(slots) - k - 1)
            share = max(1, min(free, slot.width, count * slot.width // n))
            blocks += np.array_split(np.arange(slot.start, slot.start + slot.width), share)
        return blocks

    def along_directions(
        self,
        method: str,
        count: int,
        blocks: Sequence[np.ndarray] = (),
        first: Probe | None = None,
    ) -> GradientCheck:
        """Slopes along `count` random directions, and one of each block, with Taylor remainders; components only where one disagrees."""
        row = self.row
        weights = None if self.subject.y.size == 1 else self.weights
        measure = differences if method == "differences" else richardson
        components: list[Component] = []
        taylor: list[TaylorLine] = []
        probes: dict[tuple[int, int], tuple[Probe, float]] = {}
        failing: tuple[np.ndarray, Probe, Component] | None = None
        everything = np.arange(self.subject.x.size)
        self.together = max((len(block) for block in blocks), default=self.subject.x.size)
        for k in range(count + len(blocks)):
            name = f"direction {k}"
            if k < count:
                signs = self.signs if k == 0 else self._within(everything)
            else:
                block = blocks[k - count]
                signs = self._within(block)
                ends = [self.subject.name(int(i)) for i in (block[0], block[-1])]
                name = " to ".join(ends[: len(block)])
            claimed = _product(row, signs * self.scales)
            probe = first if first is not None and k == 0 else self._direction(signs)
            curves = probe.curves(0)
            estimate = measure(curves)
            terms = _product(np.abs(row), np.abs(signs * self.scales))
            verdict, note = judge(claimed, estimate, curves, self.tolerance, terms=terms)
            index = (0, self.subject.x.size + k)  # beside the components
            components.append(
                Component(
                    name,
                    index,
                    claimed,
                    estimate.value,
                    estimate.error,
                    estimate.steps,
                    verdict,
                    note,
                    terms,
                )
            )
            probes[index] = (probe, 1.0)
            line = _taylor_line(
                name, curves, claimed, self._curvature(signs, weights), self.tolerance
            )
            taylor.append(line)
            if len(line.orders) == 3 and verdict == RIGHT and line.orders[2] < 2.5:
                components[-1] = _hessian_wrong(components[-1], line.orders[2])
            if verdict in (WRONG, ROUGH) and failing is None:
                failing = (signs, probe, components[-1])
            self.tell(k + 1, count + len(blocks), "directions")
        explanation = ""
        culprits: list[Component] = []
        if failing is not None and self.subject.x.size > 1:
            culprits, explanation = self._blame(row, weights, *failing, probes)
        elif any("Hessian" in c.note for c in components):
            explanation = "the gradient is right, but the remainder with the Hessian does not fall as step^3: the Hessian is wrong."
        return self._result(method, culprits + components, probes, taylor, explanation)

    def _curvature(self, signs: np.ndarray, weights: np.ndarray | None) -> float | None:
        """dᵀ H d for the third order of the Taylor test; None without a Hessian."""
        if self.hessian is None or self.hessian is False:
            return None
        subject = self.subject
        if weights is not None or any(slot.complex for slot in subject.slots):
            raise NotDifferentiable(
                "hessian was given, but it belongs to one real function of real numbers: check one output.",
                name="not-real",
            )
        d = signs * self.scales
        args = subject.arguments(subject.x)
        if self.hessian is True:
            from ..transforms.derivatives import jvp

            return float(
                _only(jvp(lambda t: self._slope(t, d), (0.0,), (1.0,), allow_unused=True)[1])
            )
        matrix = _numbers(self.hessian(*args), "hessian")
        n = subject.x.size
        if matrix.size != n * n:
            raise ValueError(
                f"hessian returned shape {matrix.shape}, but the point has {n} components: return an array of {n} by {n}."
            )
        return float(d @ matrix.reshape(n, n) @ d)

    def _slope(self, t: Any, d: np.ndarray) -> Any:
        """The derivative of f(x + t d) by t, on the tape."""
        from ..transforms.derivatives import grad

        subject = self.subject

        def along(s: Any) -> Any:
            args = list(subject.arguments(subject.x))
            position = 0
            for k, structure in zip(subject.positions, subject.structures, strict=True):
                leaves = []
                for slot in subject.slots[position : position + structure.num_leaves]:
                    part = slice(slot.start, slot.start + slot.width)
                    leaves.append(subject.at(slot) + s * d[part].reshape(slot.shape))
                position += structure.num_leaves
                args[k] = _optree().tree_unflatten(structure, leaves)
            return _only(subject.f(*args))

        return grad(along, allow_unused=True)(t)

    def _blame(
        self,
        row: np.ndarray,
        weights: np.ndarray | None,
        signs: np.ndarray,
        probe: Probe,
        failed: Component,
        probes: dict[tuple[int, int], tuple[Probe, float]],
    ) -> tuple[list[Component], str]:
        """Components that explain a failing direction, found by halving it, with a sentence."""
        saved = self.claimed
        self.claimed = row.reshape(1, -1)
        self_weights = self.weights
        if weights is not None:
            self.weights = weights
        try:
            rungs = [h for h in probe.steps if h <= FIRST / RATIO**2][:5]
            finite = np.isfinite(row)
            part = np.arange(self.subject.x.size) if finite.all() else np.flatnonzero(~finite)[:1]
            mismatch = failed.claimed - failed.measured
            smooth = failed.verdict == WRONG
            while len(part) > 1:
                half = part[: len(part) // 2]
                guess = np.zeros_like(signs)
                guess[half] = signs[half]
                curves = self._short_probe(guess, weights, rungs)
                if smooth:
                    left = float(row[half] @ (guess * self.scales)[half]) - richardson(curves).value
                    take_left = abs(left) >= abs(mismatch - left)
                    mismatch = left if take_left else mismatch - left
                else:
                    take_left = bool(roughness(curves))
                part = half if take_left else part[len(part) // 2 :]
            i = int(part[0])
            block = self._block_around(i)
            found = []
            for k in block:
                rows, seen = (
                    self.component(int(k)) if weights is None else self._weighted(int(k), weights)
                )
                found += rows
                probes |= {c.index: (seen, float(self.scales[k])) for c in rows}
            if not smooth:
                return [c for c in found if c.index[1] == i], ""
            wrong = [c for c in found if c.verdict == WRONG]
            values = self.subject.x[block]
            tolerance = self.tolerance
            if not wrong:
                return [], "no single component stands out: many are a little wrong."
            if len(wrong) == 1 and self._others_are_right(row, weights, i, signs):
                c = wrong[0]
                ratio = (
                    f", {in_words(c.claimed / c.measured)} times what it should be"
                    if c.measured
                    else ""
                )
                return wrong, f"only {c.name} is wrong{ratio}; directions without it are right."
            told = diagnosis(found, (len(found),), values, tolerance)
            if told.startswith("only "):
                told = f"{self.subject.name(i)} is wrong, and others further on."
            return found, f"{told} (seen on {len(found)} components around {self.subject.name(i)})"
        finally:
            self.claimed = saved
            self.weights = self_weights

    def _weighted(self, i: int, weights: np.ndarray) -> tuple[list[Component], Probe]:
        """The judgement of component `i` for random weights of all outputs, with the differences that it is based on."""
        unit = float(self.scales[i])
        signs = np.zeros(self.subject.x.size)
        signs[i] = 1.0
        claimed = self.claimed[:, i] * unit
        probe = self.probe(signs, claimed, weights)
        curves = probe.curves(0)
        e = richardson(curves)
        verdict, note = judge(float(claimed[0]), e, curves, self.tolerance, unit)
        steps = tuple(h * unit for h in e.steps)
        name = f"weighted outputs by {self.subject.name(i)}"
        return [
            Component(
                name,
                (0, i),
                float(self.claimed[0, i]),
                e.value / unit,
                e.error / unit,
                steps,
                verdict,
                note,
            )
        ], probe

    def _short_probe(
        self, signs: np.ndarray, weights: np.ndarray | None, rungs: Sequence[float]
    ) -> Curves:
        line = self.line(signs)
        w = np.ones(1) if weights is None else weights
        values = [(w @ line(h), w @ line(-h)) for h in rungs]
        plus, minus = (np.array(column) for column in zip(*values, strict=True))
        return Curves(
            np.array(rungs),
            plus,
            minus,
            float(w @ self.subject.y),
            float(np.abs(w) @ self.noise.level),
        )

    def _block_around(self, i: int) -> np.ndarray:
        """Up to nine neighbours in the same leaf: enough to tell a shift from a factor."""
        slot = next(s for s in reversed(self.subject.slots) if s.start <= i)
        low = max(slot.start, min(i - 4, slot.start + slot.width - 9))
        return np.arange(low, min(low + 9, slot.start + slot.width))

    def _others_are_right(
        self, row: np.ndarray, weights: np.ndarray | None, i: int, signs: np.ndarray
    ) -> bool:
        rest = signs.copy()
        rest[i] = 0.0
        claimed = _product(row, rest * self.scales)
        curves = self.probe(rest, np.array([claimed]), weights).curves(0)
        return judge(claimed, richardson(curves), curves, self.tolerance)[0] == RIGHT

    # ------------------------------------------------------------------------------------ the result

    def _result(
        self,
        method: str,
        components: list[Component],
        probes: dict[tuple[int, int], tuple[Probe, float]],
        taylor: list[TaylorLine],
        explanation: str = "",
    ) -> GradientCheck:
        """The result of a check: the verdict over all components, and the explanation that fits it best."""
        subject = self.subject
        scales = np.append(self.scales, np.ones(max(len(taylor), 1)))
        verdict, scaling = overall(components, scales)
        noise = self.noise
        told = noise_in_words(noise.relative, noise.in_steps, noise.repeatable)
        if verdict == NOISY or (verdict == WRONG and not explanation and not taylor):
            explanation = told if verdict == NOISY else self._diagnose(components)
        elif verdict == ROUGH and not explanation:
            rough = [c for c in components if c.verdict == ROUGH]
            explanation = (
                f"{len(rough)} of {len(components)} slopes do not exist here; the gradient given is one of many at most. "
                "Check beside the kink, or smooth f."
            )
        elif scaling:
            explanation = scaling
        if told and told != explanation:
            self.notes.append(told)
        if any(np.asarray(a).dtype in (np.float32, np.float16) for a in _float_leaves(subject)):
            self.notes.append("the point is given in single precision; it was checked in float64.")
        if verdict in (RIGHT, SCALED):
            judged = self._judged(len(components), len(taylor))
            if explanation:
                self.notes.append(judged)
            else:
                explanation = judged
        shown = "richardson" if method == "auto" or (method == "complex" and self.notes) else method
        if taylor and method != "taylor":
            shown += f" along {len(taylor)} random directions"
        return GradientCheck(
            title=subject.title,
            method=shown,
            verdict=verdict,
            explanation=explanation,
            components=components,
            taylor=taylor,
            notes=self.notes,
            noise=noise.relative,
            level=float(noise.level.max()),
            evaluations=subject.evaluations,
            size=subject.x.size,
            digits=-float(np.log10(self.tolerance)),
            probes=probes,
        )

    def _judged(self, slopes: int, directions: int) -> str:
        """What a check that found no mistake has looked at: `slopes` components, or as many random `directions`."""
        size, outputs = self.subject.x.size, self.subject.y.size
        if directions and size > 1:
            blocks = (
                f", the later ones of {self.together} components at most,"
                if self.together < size
                else ""
            )
            return (
                f"{directions} random direction{'s' * (directions > 1)}{blocks} stood for {size} components: a wrong component is seen "
                f"if its mistake is more than about {self.tolerance:.0e} of the slope along a direction."
            )
        if slopes == 1:
            return "the one component was judged."
        of = f" ({size} of the input by {outputs} of the output)" if outputs > 1 else ""
        return f"all {slopes} components were judged, each by itself{of}."

    def _diagnose(self, components: list[Component]) -> str:
        """The mistake of the wrong components: of one leaf if all are there, else of the whole."""
        subject = self.subject
        m = self.claimed.shape[0]
        if m > 1:
            ordered = sorted(components, key=lambda c: c.index)
            return diagnosis(ordered, (m, subject.x.size), np.full(1, np.nan), self.tolerance)
        whole = diagnosis(components, (len(components),), subject.x, self.tolerance)
        wrong = [
            s
            for s in subject.slots
            if any(c.verdict == WRONG for c in components[s.start : s.start + s.width])
        ]
        if len(wrong) == 1 and wrong[0].width > 1:
            s = wrong[0]
            part = slice(s.start, s.start + s.width)
            shape = (s.width,) if s.complex else s.shape
            told = diagnosis(components[part], shape, subject.x[part], self.tolerance)
            if len(subject.slots) > 1 and told and not told.startswith("only"):
                return f"in {s.name}: {told}"
            return told if len(subject.slots) == 1 else whole
        return whole


def _float_leaves(subject: Subject) -> list[Any]:
    return [
        leaf
        for k in subject.positions
        for leaf in _flatten(subject.args[k])[0]
        if hasattr(leaf, "dtype")
        and isinstance(leaf.dtype, np.dtype)
        and isinstance(leaf, np.ndarray)
    ]


def _only(value: Any) -> Any:
    """The one number that a function returned, out of whatever holds it."""
    if value is None:
        return value
    leaves = _flatten(value)[0]
    return leaves[0] if len(leaves) == 1 else value


def _joined(value: Any) -> Any:
    """All outputs as one tracked vector."""
    from .. import ops

    names = ops.public_names()
    leaves = _flatten(value)[0]
    return names["concatenate"]([names["reshape"](leaf, (-1,)) for leaf in leaves])


def _hessian_wrong(c: Component, order: float) -> Component:
    return replace(c, verdict=WRONG, note=f"the Hessian is wrong: Taylor order {order:.2f} with it")


def _product(row: np.ndarray, direction: np.ndarray) -> float:
    """The claimed slope along a direction; of a row with inf in it nan may come out, which is told and no warning."""
    with np.errstate(invalid="ignore"):
        return float(row @ direction)


def _taylor_line(
    name: str, curves: Curves, slope: float, curvature: float | None, tolerance: float
) -> TaylorLine:
    """Remainders on the side of positive steps, and the orders at the smallest steps that stand clear of the noise."""
    h = curves.steps
    with np.errstate(all="ignore"):
        rest = [curves.plus - curves.at]
        rest.append(rest[0] - h * slope)
        if curvature is not None:
            rest.append(rest[1] - h**2 / 2 * curvature)
        floors = [
            50 * curves.noise + 0 * h,
            50 * curves.noise + tolerance * abs(slope) * h,
            50 * curves.noise
            + tolerance * abs(slope) * h
            + tolerance * abs(curvature or 0.0) * h**2,
        ]
    orders = []
    for remainder, floor in zip(rest, floors, strict=False):
        known = curves.orders(np.where(np.abs(remainder) > floor, remainder, np.nan), 0.0)
        known = known[np.isfinite(known)]
        if known.size:
            orders.append(float(np.median(known[-3:])))
        else:
            exact = remainder is not rest[0] and np.isfinite(slope)
            orders.append(float("inf") if exact else float("nan"))
    return TaylorLine(name, h, tuple(np.abs(r) for r in rest), tuple(orders))


# ------------------------------------------------------------------------------------------------- adjoints


def check_adjoint(
    forward: Any,
    adjoint: Callable[..., Any] | None = None,
    x: Any = None,
    y: Any = None,
    *,
    at: Any = None,
    pairs: int = 4,
    digits: float = 10,
    seed: int = 0,
) -> AdjointCheck:
    """The dot-product test: whether <w, A v> = <Aᵀ w, v> for random v and w; an `AdjointCheck`.

    `forward(v)` applies the operator and `adjoint(w)` its adjoint (the conjugate transpose of a complex one). `x` has the
    shape, dtype and structure of `v`, and `y` that of `w` (by default what `forward(x)` returns); their values do not matter.
    With `at`, the operator is a model's linearisation: `forward(at, v)` is J v, `adjoint(at, w)` is Jᵀ w, and `x` is `at`.
    A SciPy LinearOperator may be given alone. If a small operator fails, the entry that differs most is named.

    >>> import numpy as np, tapegrad as tg
    >>> tg.check_adjoint(lambda v: np.cumsum(v), lambda w: np.cumsum(w[::-1])[::-1], np.zeros(5)).ok
    True
    >>> print(tg.check_adjoint(np.cumsum, np.cumsum, np.zeros(3)).explanation)
    entry [1, 0] of the operator is 1, but its adjoint has 0 there: the adjoint is not transposed.
    """
    name = title(forward)
    if adjoint is None:
        if not (hasattr(forward, "matvec") and hasattr(forward, "rmatvec")):
            raise TypeError(
                f"check_adjoint was given {name} alone: pass the adjoint as a second function, or a LinearOperator with "
                "matvec and rmatvec."
            )
        rows, columns = forward.shape
        dtype = forward.dtype or np.dtype(float)
        x = np.zeros(columns, dtype) if x is None else x
        y = np.zeros(rows, dtype) if y is None else y
        forward, adjoint = forward.matvec, forward.rmatvec
    if not callable(forward) or not callable(adjoint):
        raise TypeError(
            "check_adjoint needs two functions: the operator and its adjoint. Of matrices write lambda v: A @ v and "
            "lambda w: A.T @ w."
        )
    if at is not None:
        x = at if x is None else x
        operator, transposed = forward, adjoint
        forward = lambda v: operator(_fresh(at), v)  # noqa: E731  the same operator at a point
        adjoint = lambda w: transposed(_fresh(at), w)  # noqa: E731
    if x is None:
        raise TypeError(
            "check_adjoint needs x, an array (or pytree) of the shape of what the operator takes."
        )
    domain = _Space(x, "x")
    image = _Space(_called(forward, domain.zeros(), name) if y is None else y, "y")
    rng = np.random.default_rng(seed)
    found: list[tuple[complex, complex]] = []
    sizes = []
    for _ in range(max(pairs, 1)):
        v, w = domain.random(rng), image.random(rng)
        av = image.vector(_called(forward, domain.tree(v), name), name)
        aw = domain.vector(_called(adjoint, image.tree(w), title(adjoint)), "the adjoint")
        found.append((_number_of(np.vdot(w, av)), _number_of(np.vdot(aw, v))))
        sizes.append(float(np.linalg.norm(w) * np.linalg.norm(av)))
    result = AdjointCheck(name, RIGHT, "", found, sizes, (domain.shapes, image.shapes), digits)
    if not all(np.isfinite(a) and np.isfinite(b) for a, b in found):
        result.verdict, result.explanation = WRONG, "a product is nan or inf."
    elif result.agreed < digits:
        result.verdict = WRONG
        result.explanation = _adjoint_diagnosis(forward, adjoint, domain, image, found, rng)
    return result


def _adjoint_diagnosis(
    forward: Any,
    adjoint: Any,
    domain: _Space,
    image: _Space,
    found: list[tuple[complex, complex]],
    rng: np.random.Generator,
) -> str:
    """In words, what is probably wrong with an adjoint: not linear, sign, factor, or an entry, found on random vectors `u` and `v`."""
    u, v = domain.random(rng), domain.random(rng)
    apply = lambda z: image.vector(forward(domain.tree(z)), "the operator")  # noqa: E731
    # The weights do not add up to 1: for these an affine map would pass.
    both, split = apply(2 * u - 3 * v), 2 * apply(u) - 3 * apply(v)
    if np.linalg.norm(both - split) > 1e-8 * np.linalg.norm(split):
        return "the operator is not linear: A(2u - 3v) is not 2 A u - 3 A v. Pass a linearisation, with the point as `at`."
    ratios = np.array([b / a for a, b in found if a != 0])
    if ratios.size and np.allclose(ratios, ratios[0], rtol=1e-6):
        factor = ratios[0]
        if abs(factor + 1) < 1e-6:
            return "the adjoint has the opposite sign."
        if abs(np.imag(factor)) < 1e-6:
            return f"the adjoint is {in_words(float(np.real(factor)))} times what it should be."
    if domain.size * image.size > 128 * 128:
        return "no sign or factor explains it: compare the operators on a smaller problem, where entries are named."
    a = np.stack([apply(e) for e in np.eye(domain.size, dtype=domain.dtype)], axis=1)
    b = np.stack(
        [
            domain.vector(adjoint(image.tree(e)), "the adjoint")
            for e in np.eye(image.size, dtype=image.dtype)
        ],
        axis=1,
    )
    expected = np.conj(a.T)
    gap = np.abs(b - expected)
    i, j = np.unravel_index(int(np.argmax(gap > 0.5 * gap.max())), gap.shape)
    reason = ""
    scale = np.abs(expected).max()
    if np.allclose(b, a.T, atol=1e-10 * scale):
        reason = ": the adjoint is not conjugated"
    elif b.shape == a.shape and np.allclose(b, a, atol=1e-10 * scale):
        reason = ": the adjoint is not transposed"
    else:
        for axis in (0, 1):
            for shift, inside in ((1, slice(1, None)), (-1, slice(None, -1))):
                index = (inside, slice(None)) if axis == 0 else (slice(None), inside)
                moved = np.roll(expected, shift, axis)
                if min(b.shape) > 2 and np.allclose(b[index], moved[index], atol=1e-10 * scale):
                    reason = ": an index is off by one"
        wrong = gap > 1e-8 * scale
        if not reason:
            reason = f": {int(wrong.sum())} of {wrong.size} entries differ"
    return f"entry [{j}, {i}] of the operator is {_short(a[j, i])}, but its adjoint has {_short(np.conj(b[i, j]))} there{reason}."


def _short(value: complex) -> str:
    return f"{_number_of(value):.6g}"


def _number_of(value: Any) -> Any:
    value = complex(value)
    return value if value.imag else value.real


def _called(function: Any, value: Any, name: str) -> Any:
    result = function(value)
    if result is None:
        raise TypeError(f"{name} returned None. Does it end with a return?")
    return result


def _fresh(tree: Any) -> Any:
    from .subject import _copied

    return _copied(tree)


class _Space:
    """Vectors of one structure: those that an operator takes, or those that it gives."""

    def __init__(self, like: Any, what: str) -> None:
        leaves, self.structure = _flatten(like)
        arrays = [_numbers(leaf, what) for leaf in leaves]
        self.shapes = tuple(a.shape for a in arrays)
        self.dtype = np.result_type(float, *arrays) if arrays else np.dtype(float)
        self.size = sum(a.size for a in arrays)
        if self.size == 0:
            raise ValueError(
                f"{what} holds no number: an operator on nothing has no adjoint to check."
            )

    def zeros(self) -> Any:
        return self.tree(np.zeros(self.size, self.dtype))

    def random(self, rng: np.random.Generator) -> np.ndarray:
        v = rng.standard_normal(self.size)
        return v + 1j * rng.standard_normal(self.size) if self.dtype.kind == "c" else v

    def tree(self, v: np.ndarray) -> Any:
        leaves = []
        start = 0
        for shape in self.shapes:
            n = int(np.prod(shape, dtype=int))
            leaves.append(np.array(v[start : start + n].reshape(shape)))
            start += n
        return self.structure.unflatten(leaves)

    def vector(self, tree: Any, name: str) -> np.ndarray:
        leaves = [_numbers(leaf, name) for leaf in _flatten(tree)[0]]
        shapes = tuple(a.shape for a in leaves)
        if shapes != self.shapes:
            raise ValueError(
                f"{name} returned shape {', '.join(map(str, shapes))} where {', '.join(map(str, self.shapes))} belongs: check "
                "x and y, which give the shapes of what the operator takes and returns."
            )
        return np.concatenate([a.reshape(-1) for a in leaves])


__all__ = ["check_adjoint", "check_gradient"]
