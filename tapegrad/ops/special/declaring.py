"""How a special function is declared: by its partials, with the parameters that no derivative is taken by as settings.

    jv = parametric(special.jv, "v z", z=lambda v, z: (jv(v - 1, z) - jv(v + 1, z)) / 2)

reads: SciPy's jv(v, z) is differentiated by z, by this partial; v is a setting, and a tracked tensor there is refused by name.
A partial names what it needs, of the function's parameters and `out`. `smooth` declares the same of a function that is
differentiated by all of its operands, at most three: these are elementwise ops like NumPy's.

Invariant: a partial is written in functions of this package and of NumPy, so that it is recorded when its operands are.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ...core import signatures
from ...core.domain import Domain, real
from ...core.dual import tangent_of
from ...core.mode import is_grad_enabled
from ...core.primitive import NAMES, NOTHING, POINTS, UFUNCS, Call, Partial, elementwise, primitive
from ...core.sweep import times
from ...core.tensor import Tensor
from ...errors import NotDifferentiable

NO_STEP = {"complex_step": "SciPy's complex version does not keep an imaginary part of 1e-30"}


def smooth(of: Any, *partials: Any, **declared: Any) -> Any:
    """Declare an elementwise function by the partials in all its operands."""
    return elementwise(of, *partials, method=False, **declared)


def parametric(
    of: Any,
    signature: str,
    *,
    name: str | None = None,
    samples: Sequence[Call] = (),
    domain: Domain | Sequence[Domain] = real,
    refusal: str = "there is no closed form of the derivative by it",
    public: bool = True,
    told: str = "",
    holomorphic: bool = True,
    unsupported: Any = NOTHING,
    kernel: bool = True,
    computed: Callable[..., Any] | None = None,
    **partials: Callable[..., Any],
) -> Any:
    """Declare an elementwise function that is differentiated by some of its parameters; returns the public function.

    `signature` names the parameters in order, `partials` gives the derivative by each that has one. The others
    are settings of the op, where they have an underscore behind their name. `public=False`: the op alone, for rules.
    `computed` gives the values where `of` would not end, or not soon.
    `kernel=False`: the partials are not written for single numbers, or need whole numbers as such.
    """
    unsupported = {
        "dtype": "SciPy computes in the wider precision of argument and parameters"
    } | dict(unsupported)
    it = _Declaration(of, name or of.__name__, signature.split(), partials, told)
    rules = [it.pull_all()] if it.variadic else [it.pull(p) for p in it.by]
    forward = it.forward(computed or of)
    op = primitive(
        forward,
        *rules[1:],
        forward=forward,
        name=it.name,
        jvp=it.push(),
        samples=samples,
        domain=domain,
        holomorphic=holomorphic,
        unsupported=unsupported,
    )(rules[0])
    if kernel and len(it.parameters) <= len(NAMES):
        streams = dict(zip([*it.by, *it.fixed], NAMES, strict=False))
        op.primitive.partials = tuple(_of_streams(partials[p], streams) for p in it.by)
    return it.public(op, signature, refusal) if public else op


class _Declaration:
    """A function whose parameters are operands of its op, where a partial tells the derivative by them, or settings."""

    def __init__(
        self,
        of: Any,
        name: str,
        parameters: list[str],
        partials: dict[str, Callable[..., Any]],
        told: str,
    ) -> None:
        self.of, self.name, self.parameters, self.partials = of, name, parameters, partials
        self.told = told or first_sentence(of)
        self.by = [p for p in parameters if p in partials]
        self.fixed = [p for p in parameters if p not in partials]
        self.variadic = len(self.by) > 2
        self.positional = ["xs"] if self.variadic else ["x", "y"][: len(self.by)]

    def values(
        self, operands: Sequence[Any], kw: dict[str, Any], out: Any = None
    ) -> dict[str, Any]:
        """The values of all parameters and `out`, by name."""
        settings = {p: kw[f"{p}_"] for p in self.fixed}
        return dict(zip(self.by, operands, strict=True)) | settings | {"out": out}

    def slope(self, p: str, given: dict[str, Any]) -> Any:
        """The partial by a parameter."""
        partial = self.partials[p]
        return partial(*[given[n] for n in _needed(partial)])

    def _signed(self, function: Any, positional: Sequence[str]) -> Any:
        """The function with the signature of positional arguments, then the settings."""
        P = inspect.Parameter
        function.__signature__ = inspect.Signature(
            [P(a, P.POSITIONAL_ONLY) for a in positional]
            + [P(f"{p}_", P.KEYWORD_ONLY) for p in self.fixed]
        )
        return function

    def forward(self, computed: Callable[..., Any]) -> Any:
        """The function of its operands, by position, and its settings."""

        def forward(*operands: Any, **kw: Any) -> Any:
            given = self.values(operands[0] if self.variadic else operands, kw)
            return computed(*(given[p] for p in self.parameters))

        forward.declared = self.of, self.parameters, self.by  # type: ignore[attr-defined]
        return self._signed(forward, self.positional)

    def _rule(self, pull: Any, asks: tuple[str, ...]) -> Any:
        pull.__name__, pull.__doc__, pull.asks = self.name, self.told, asks
        return self._signed(pull, asks)

    def pull(self, p: str) -> Any:
        """The rule of the cotangent of one operand."""

        def pull(*asked: Any, **kw: Any) -> Any:
            g, *operands, out = asked
            return times(g, conjugate(self.slope(p, self.values(operands, kw, out))))

        return self._rule(pull, ("g", *self.positional, "out"))

    def pull_all(self) -> Any:
        """The rule of the cotangents of all operands, which come in a sequence."""

        def pull_all(g: Any, xs: Any, out: Any, wanted: Any, **kw: Any) -> list[Any]:
            given = self.values(xs, kw, out)
            return [
                times(g, conjugate(self.slope(p, given))) if w else None
                for p, w in zip(self.by, wanted, strict=True)
            ]

        return self._rule(pull_all, ("g", "xs", "out", "wanted"))

    def push(self) -> Any:
        """The rule of the tangent of the value, from tangents of some operands."""

        def push(ts: Sequence[Any], xs: Sequence[Any], out: Any, **kw: Any) -> Any:
            given = self.values(xs, kw, out)
            terms = [
                times(t, self.slope(p, given))
                for p, t in zip(self.by, ts, strict=False)
                if t is not None
            ]
            return sum(terms[1:], terms[0])

        return push

    def public(self, op: Any, signature: str, refusal: str) -> Any:
        """The function as users call it: it takes all parameters by position and refuses a tracked setting."""
        name, parameters, by, fixed = self.name, self.parameters, self.by, self.fixed
        variadic = self.variadic

        def function(*args: Any) -> Any:
            if len(args) != len(parameters):
                raise TypeError(f"{name} takes {len(parameters)} arguments ({signature}), but {len(args)} were given.")  # fmt: skip
            given = dict(zip(parameters, args, strict=True))
            kw = {f"{p}_": untracked(given[p], name, p, by, refusal) for p in fixed}
            operands = [given[p] for p in by]
            return op(operands, **kw) if variadic else op(*operands, **kw)

        function.__name__ = function.__qualname__ = name
        function.__signature__ = signatures.positional(parameters)  # type: ignore[attr-defined]
        function.__doc__ = (
            f"{self.told}\n\nSciPy's {name}({', '.join(parameters)}), "
            f"differentiable by {' and '.join(by)}.\n{_shown(name, self.of, parameters, by, op.primitive)}"
        )
        function.primitive = op.primitive  # type: ignore[attr-defined]
        function.fixed = tuple(fixed)  # type: ignore[attr-defined]
        function.slopes = {p: self.partials.get(p) for p in parameters}  # type: ignore[attr-defined]
        if isinstance(self.of, np.ufunc):
            UFUNCS[self.of] = function
        return function


@functools.cache
def _needed(partial: Callable[..., Any]) -> list[str]:
    """What a partial names, of the parameters and `out`."""
    return inspect.getfullargspec(partial).args


def _shown(name: str, of: Any, parameters: Sequence[str], by: Sequence[str], op: Any) -> str:
    """A run that follows from the declaration: slopes by the last parameter that has one; nothing where no sample has plain numbers."""
    if isinstance(of, np.ufunc) and not any(form.endswith("->d") for form in of.types):
        return ""  # of complex results no slope is one number
    domains = dict(
        zip(by, op.domains if len(op.domains) > 1 else op.domains * len(by), strict=False)
    )
    points = {p: str(POINTS.get(d.name, 0.5)) for p, d in domains.items()}
    known = op.samples[0].settings if op.samples else {}
    points |= {p: repr(known.get(f"{p}_")) for p in parameters if p not in by}
    if any(type(known.get(f"{p}_")) not in (int, float) for p in parameters if p not in by):
        return ""
    at = float(points[by[-1]])
    operands = ", ".join("x" if p == by[-1] else points[p] for p in parameters)
    return (
        "\n>>> import numpy as np, tapegrad as tg\n"
        f">>> tg.elementwise_grad(lambda x: tg.special.{name}({operands}))(np.array([{at}, {at + 0.125}])).shape\n(2,)\n"
    )


def _of_streams(partial: Callable[..., Any], streams: dict[str, str]) -> Partial:
    """A partial as a kernel reads it: operands first, then settings, as x, y and z."""
    names = [streams.get(n, n) for n in _needed(partial)]
    text = f"lambda {', '.join(names)}: partial({', '.join(names)})"
    return Partial(eval(text, {"partial": partial}), False)


def untracked(value: Any, name: str, parameter: str, by: Sequence[str], reason: str) -> Any:
    """The value of a parameter that is a setting, safe from later changes; a tracked tensor is refused."""
    if isinstance(value, Tensor):
        if (value._node is not None and is_grad_enabled()) or tangent_of(value) is not None:
            raise NotDifferentiable(
                f"{name} was given a tracked tensor as {parameter}, but it is differentiated only by {' and '.join(by)}: "
                f"{reason}. Pass {parameter}.detach() if no gradient is wanted there."
            )
        return value._value
    if isinstance(value, np.ndarray | list | tuple):
        return np.array(value)
    return value


def conjugate(p: Any) -> Any:
    """A partial as a VJP multiplies by it."""
    return np.conj(p) if np.result_type(getattr(p, "dtype", type(p))).kind == "c" else p


def first_sentence(of: Any) -> str:
    """What SciPy's documentation says a function is."""
    lines = (of.__doc__ or "").strip().splitlines()
    told = [line.strip() for line in lines if line.strip()]
    while told and told[0].startswith(
        of.__name__ + "("
    ):  # a ufunc's docstring opens with its signature
        told = told[1:]
    return told[0].rstrip(".") + "." if told else of.__name__


__all__ = [
    "NO_STEP", "conjugate", "first_sentence", "parametric", "smooth", "times", "untracked",
]  # fmt: skip
