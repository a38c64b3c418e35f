"""The laws that every op obeys.

A law is a function of one `Sample` (samples.py). It raises GradcheckError where it is broken and returns nothing where
it holds; `LAWS` has each with the samples it speaks about. So a test is a loop over ops, samples and laws, and a new
op is tested by being declared. Functions without a rule have a law of their own, `honest`.

Invariant: a law believes nothing that the declaration says of derivatives. It compares the rule with NumPy's values
(complex steps, differences), or two things derived from the rule in different ways.
"""

from __future__ import annotations

import inspect
import itertools
import linecache
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ..core import executors, sweep
from ..core.domain import dominant, real
from ..core.mode import no_grad
from ..core.primitive import CONSTANTS, FUNCTIONS, UFUNCS
from ..core.tape import STRIDE, own_tape
from ..core.tensor import Tensor, wrap
from ..errors import GradcheckError, TapegradError
from ..transforms.derivatives import jvp, vjp
from .samples import LAYOUTS, Sample, inexact, others

# ------------------------------------------------------------------------------------------------------ one call


@dataclass(frozen=True, slots=True)
class Recorded:
    """A call of a sample on a tape of its own, with the nodes of the tracked operands."""

    code: list[Any]
    nodes: list[Any]
    out: Tensor

    def pull(self, w: Any) -> list[Any]:
        """Cotangents of the tracked operands."""
        leaves: dict[Any, Any] = {}
        sweep.sweep(self.code, len(self.code) // STRIDE - 1, {self.out._node: w}, leaves, {}, None)
        return [leaves.get(node) for node in self.nodes]

    def push(self, tangents: Sequence[Any]) -> Any:
        """Tangent of the result."""
        carried = dict(zip(self.nodes, tangents, strict=True))
        sweep.push(self.code, 0, len(self.code) // STRIDE, carried)
        return carried[self.out._node]


def record(sample: Sample) -> Recorded:
    """The sample run on tensors, on a tape of its own: entries, nodes of the operands, result."""
    nodes = []
    operands = []
    for x, tracked in zip(sample.operands, sample.tracked, strict=True):
        if tracked:
            t = wrap(x).requires_grad_()
            t._value = x  # a NumPy scalar stays one, as results of ops do
            nodes.append(t._node)
            operands.append(t)
        else:
            operands.append(x)
    with own_tape() as own:
        out = sample(*operands)
    if not isinstance(out, Tensor) or out._node is None:
        raise GradcheckError(
            f"the result of tracked operands is {type(out).__name__} and not tracked."
        )
    return Recorded(own.tape.code, nodes, out)


# ------------------------------------------------------------------------------------------------------ numbers

_STEP = 1e-3
_TINY = 1e-30


def inner(a: Any, b: Any) -> float:
    """The real inner product Re <a, b>, of which torch's complex gradients are the gradients."""
    return float(np.sum(np.real(np.conj(a) * b)))


def inners(a: Sequence[Any], b: Sequence[Any]) -> np.ndarray:
    return np.array([inner(x, y) for x, y in zip(a, b, strict=True)])


def differences(f: Callable[[float], Any]) -> Any:
    """f'(0), by central differences over five points: exact up to the fourth power of the step."""
    h = _STEP
    return (f(-2 * h) - 8 * f(-h) + 8 * f(h) - f(2 * h)) / (12 * h)


def slope(sample: Sample, w: Any, i: int, v: Any) -> tuple[float, float]:
    """The slope of Re <w, f> along v in variable i, from values of f alone, and how precise it is."""
    op = sample.op
    holomorphic = op is not None and op.holomorphic and "complex_step" not in op.unsupported
    if holomorphic and not any(np.iscomplexobj(x) for x in sample.operands):
        try:
            return _by_complex_step(sample, w, i, v), 1e-9
        except TypeError:  # NumPy has no complex version of this function
            pass

    def along(t: float) -> float:
        return inner(w, sample.at(*_moved(sample.variables, i, t * v)))

    return differences(along), 1e-7


def _by_complex_step(sample: Sample, w: Any, i: int, v: Any) -> float:
    # Complex operands throughout: a constant that stayed real could make NumPy cast the step away.
    operands = tuple(x + 0j if inexact(x) else x for x in sample.operands)
    sample = replace(sample, operands=operands)
    out = sample.at(*_moved(sample.variables, i, _TINY * 1j * v))
    return float(np.sum(w * np.imag(out))) / _TINY


def _moved(variables: Sequence[Any], i: int, by: Any) -> list[Any]:
    return [x + by if j == i else x for j, x in enumerate(variables)]


def directions(sample: Sample, x: Any) -> Iterator[Any]:
    """Every unit direction of a small array; of a larger one two at random, to which no error is orthogonal."""
    x = np.asarray(x)
    if x.size <= 4:
        for where in np.ndindex(x.shape):
            v = np.zeros(x.shape, x.dtype)
            v[where] = 1
            yield v
            if x.dtype.kind == "c":
                yield 1j * v
    else:
        for k in range(2):
            v = real.sample(np.random.default_rng(sample.seed + k), x.shape, x.dtype)
            yield v / np.max(np.abs(v))


def agree(what: str, got: Any, source: str, expected: Any, rtol: float) -> None:
    """Raise unless two results agree, relative to the largest entry."""
    scale = max(1.0, float(np.max(np.abs(expected), initial=0.0)))
    if (
        got is None
        or np.shape(got) != np.shape(expected)
        or not np.allclose(got, expected, rtol=0, atol=rtol * scale)
    ):
        raise GradcheckError(f"{what} is\n{got}\nbut {source} gives\n{expected}")


def same(what: str, got: Any, source: str, expected: Any) -> None:
    """Raise unless two values are equal in dtype, shape and every entry (NaN equals NaN)."""
    got, expected = np.asarray(got), np.asarray(expected)
    if got.dtype != expected.dtype or not np.array_equal(got, expected, equal_nan=True):
        raise GradcheckError(
            f"{what} is {got.dtype}\n{got}\nbut {source} gives {expected.dtype}\n{expected}"
        )


def _close(what: str, got: Any, source: str, expected: Any) -> None:
    """Raise unless two values are equal up to rounding, in the same dtype."""
    agree(what, got, source, expected, 1e-5 if np.result_type(expected).char in "fF" else 1e-12)
    if np.result_type(got) != np.result_type(expected):
        raise GradcheckError(f"{what} is {np.result_type(got)}, not {np.result_type(expected)}.")


# ------------------------------------------------------------------------------------------------------ the laws


@dataclass(frozen=True, slots=True)
class Law:
    """A named statement about every op; `applies` says of which samples it speaks."""

    name: str
    check: Callable[[Sample], None]
    applies: Callable[[Sample], bool]

    def __repr__(self) -> str:
        return self.name

    def __call__(self, sample: Sample) -> None:
        """Raise GradcheckError, naming the law, unless it holds for the sample."""
        try:
            with np.errstate(over="ignore"):
                self.check(sample)
        except Exception as error:
            ours = isinstance(error, GradcheckError)
            told = error.args[0] if ours else f"{type(error).__name__}: {error}"
            name = sample.subject
            raise GradcheckError(
                f"{name} was checked for the law '{self.name}' ({self.check.__doc__}) on {sample!r}, but {told}\n"
                f"Correct the declaration of {name}, or say in its `unsupported` why the law cannot hold."
            ) from error


LAWS: dict[str, Law] = {}
"""Every law, by its name."""

# Every law speaks of plain samples; of the others, those that the variant could break.
VARIANTS = {
    "strided": ("value", "derivative", "pure", "replay"),
    "float32": ("value", "dtype", "replay"),
    "complex": ("value", "derivative", "adjoint", "second", "dtype", "replay"),
    "mixed": ("value", "derivative", "adjoint", "second", "dtype", "replay"),
    "only": ("derivative", "adjoint", "one_entry", "replay"),
    "scalar": ("value", "derivative", "adjoint", "second", "pure", "replay"),
    "number": ("value", "derivative", "second", "dtype", "one_entry", "replay"),
}


WAYS = ("complex_step",)
"""Ways of judging that an op can be excused from, as it can from laws and variants."""


def law(applies: Callable[[Sample], bool] = lambda sample: True) -> Callable[[Any], Any]:
    def declare(check: Callable[[Sample], None]) -> Callable[[Sample], None]:
        LAWS[check.__name__] = Law(check.__name__, check, applies)
        return check

    return declare


def laws_of(sample: Sample) -> list[Law]:
    """The laws that speak about a sample, less those its op declares unsupported."""
    excused = sample.op.unsupported if sample.op else ()
    spoken_of = VARIANTS.get(sample.variant, LAWS)
    return [
        law
        for name, law in LAWS.items()
        if name in spoken_of and name not in excused and law.applies(sample)
    ]


def _judged(sample: Sample) -> bool:
    """Whether numbers have 64 bits, so that derivatives can be judged, and there are any."""
    return all(np.result_type(x).char in "dD" and np.size(x) for x in sample.variables)


@law()
def value(sample: Sample) -> None:
    """The value equals NumPy's, on arrays, on tensors, and through NumPy's own name."""
    expected = sample.reference(*sample.operands, **sample.settings)
    # An op makes the very call that NumPy would; what is made of ops may round on another way.
    compare = same if sample.op is not None else _close
    compare("the value of arrays", sample(*sample.operands), "NumPy", expected)
    compare("the value of tracked tensors", record(sample).out._value, "NumPy", expected)
    compare("the value of tensors", sample.at(*_tensors(sample))._value, "NumPy", expected)
    if sample.op is not None and of_numpy(sample.op.of):
        by_name = replace(sample, function=sample.reference)
        what = "the value of tracked tensors by NumPy's name"
        _close(what, record(by_name).out._value, "NumPy", expected)


@law(_judged)
def derivative(sample: Sample) -> None:
    """The VJP equals the derivative of the value by complex steps, or by differences over five points."""
    recorded = record(sample)
    w = sample.drawn(recorded.out)
    for i, g in enumerate(recorded.pull(w)):
        for v in directions(sample, sample.variables[i]):
            expected, rtol = slope(sample, w, i, v)
            got = 0.0 if g is None else inner(g, v)
            what = f"<g, v>, where tracked operand {i} has the cotangent\ng = {g}, and\nv = {v},\n"
            agree(what, got, "the slope of the value along v", expected, rtol)


@law(_judged)
def adjoint(sample: Sample) -> None:
    """<w, J v> equals <Jᵀ w, v>: forward and reverse mode are transposes."""
    recorded = record(sample)
    w = sample.drawn(recorded.out)
    v = [sample.drawn(x) for x in sample.variables]
    forward = inner(w, recorded.push(v))
    reverse = sum(inner(g, t) for g, t in zip(recorded.pull(w), v, strict=True) if g is not None)
    agree("<w, J v>", forward, "<Jᵀ w, v>", reverse, 1e-12)


@law(_judged)
def second(sample: Sample) -> None:
    """The derivative of the gradient, forward over reverse and reverse over reverse, equals its differences."""
    recorded = record(sample)
    variables = [np.asarray(x) for x in sample.variables]
    w = sample.drawn(recorded.out)
    v = [sample.drawn(x) for x in variables]

    def gradient(u: Any, *xs: Any) -> Any:
        return vjp(sample.at, *xs, allow_unused=True)[1](u)

    def along(t: float) -> Any:
        moved = [x + t * a for x, a in zip(variables, v, strict=True)]
        return inners(v, gradient(w, *moved))

    pushed = jvp(lambda *xs: gradient(w, *xs), variables, v, allow_unused=True)[1]
    by_w, *pulled = vjp(gradient, w, *variables, allow_unused=True)[1](tuple(v))
    what = "<v, H v> by tracked operands, forward over reverse,"
    agree(what, inners(v, pushed), "the slope of the gradient", differences(along), 1e-6)
    for i, (a, b) in enumerate(zip(pulled, pushed, strict=True)):
        what = f"H v in tracked operand {i}, reverse over reverse,"
        agree(what, a, "forward over reverse", b, 1e-11)
    what = "J v, as the derivative of the VJP by its cotangent,"
    agree(what, by_w, "forward mode", recorded.push(v), 1e-11)


@law()
def broadcast(sample: Sample) -> None:
    """A cotangent has its operand's shape, and a tangent the result's, whatever was broadcast."""
    recorded = record(sample)
    out = recorded.out
    cotangents = recorded.pull(sample.drawn(out))
    for i, (g, x) in enumerate(zip(cotangents, sample.variables, strict=True)):
        if g is not None and np.shape(g) != np.shape(x):
            raise GradcheckError(
                f"the cotangent of tracked operand {i} has shape {np.shape(g)}, not {np.shape(x)}."
            )
    tangent = recorded.push([sample.drawn(x) for x in sample.variables])
    if np.shape(tangent) != out.shape:
        raise GradcheckError(f"the tangent has shape {np.shape(tangent)}, not {out.shape}.")


@law()
def dtype(sample: Sample) -> None:
    """Single precision stays single, complex stays complex; cotangents have the operand's dtype, tangents the result's."""
    recorded = record(sample)
    out = recorded.out
    single = np.result_type(*sample.variables, np.float32).char in "fF"
    if single != (out.dtype.char in "fF"):
        raise GradcheckError(f"the result has dtype {out.dtype}.")
    cotangents = recorded.pull(sample.drawn(out))
    for i, (g, x) in enumerate(zip(cotangents, sample.variables, strict=True)):
        if g is not None and g.dtype != np.result_type(x):
            raise GradcheckError(
                f"the cotangent of tracked operand {i} is {g.dtype}, not {np.result_type(x)}."
            )
    tangent = recorded.push([sample.drawn(x) for x in sample.variables])
    if tangent.dtype != out.dtype:
        raise GradcheckError(f"the tangent is {tangent.dtype}, not {out.dtype}.")


@law()
def pure(sample: Sample) -> None:
    """Operands, result and cotangent are never written to, so read-only ones will do."""
    given = [np.array(x) for x in sample.operands]
    guarded = replace(sample, operands=tuple(_read_only(x) for x in sample.operands))
    recorded = record(guarded)
    out = recorded.out._value
    before = np.array(out)
    w = _read_only(sample.drawn(out))
    recorded.pull(w)
    recorded.push([_read_only(sample.drawn(x)) for x in sample.variables])
    same("the result after differentiation", out, "the evaluation", before)
    for x, was in zip(sample.operands, given, strict=True):
        if isinstance(x, np.ndarray):
            same("an operand afterwards", x, "the operand before", was)


def _tensors(sample: Sample) -> list[Tensor]:
    """The variables as tensors that are not tracked."""
    return [wrap(np.asarray(x)) for x in sample.variables]


def _read_only(x: Any) -> Any:
    if not isinstance(x, np.ndarray):
        return x
    view = x.view()
    view.flags.writeable = False
    return view


@law(lambda sample: sample.op is not None)
def one_entry(sample: Sample) -> None:
    """One call records one entry; without a tracked operand, or under no_grad, none."""
    entries = len(record(sample).code) // STRIDE
    if entries != 1:
        raise GradcheckError(f"the call recorded {entries} entries.")
    with own_tape() as own:
        results = [sample.at(*_tensors(sample))]
        with no_grad():
            results.append(sample.at(*(t.requires_grad_() for t in _tensors(sample))))
    if own.tape.code or any(r.requires_grad for r in results):
        raise GradcheckError("a call that tracks nothing was recorded.")


def _has_formula(sample: Sample) -> bool:
    """Whether the op has a partial for compiled code; elementwise ones need no more than the sample of vectors."""
    op = sample.op
    if op is None or sample.variant or (op.elementwise and sample.name != "vector"):
        return False
    return any(p.function for p in op.partials)


@law(_has_formula)
def nopython(sample: Sample) -> None:
    """A partial compiled for scalars by Numba equals the same partial on arrays."""
    from numba import njit

    from ..replay.kernels import nopython as inlined
    from ..replay.kernels import obstacle

    op = sample.op
    assert op is not None
    out = sample.reference(*sample.operands, **sample.settings)
    settings = [sample.settings[name] for name in op.settings]
    values = dict(zip("xyz", [*sample.operands, *settings], strict=False), out=out)
    scope: dict[str, Any] = {}
    calls, rules, used = [], [], set()
    for i, partial in enumerate(op.partials):
        if partial.function is None or obstacle(partial.function):
            continue
        names = list(inspect.signature(partial.function).parameters)
        scope[f"partial_{i}"] = inlined(partial.function)
        used.update(names)
        calls.append(f"partial_{i}({', '.join(names)}), ")
        rules.append((i, partial.function(*(values[n] for n in names))))
    if not calls:
        return
    # What kernels inline cannot be called from Python: a caller is compiled around it, one for all, as Numba takes long for each.
    values = {name: value for name, value in values.items() if name in used}
    caller = eval(f"lambda {', '.join(values)}: ({''.join(calls)})", scope)
    scalar = njit(error_model="numpy")(caller)
    numbers = [np.broadcast_to(v, np.shape(out)).ravel()[:3] for v in values.values()]
    found = zip(*(scalar(*given) for given in zip(*numbers, strict=True)), strict=True)
    for (i, rule), got in zip(rules, found, strict=True):
        expected = np.broadcast_to(rule, np.shape(out)).ravel()[:3]
        agree(f"partial {i} in compiled code", np.array(got), "the array rule", expected, 1e-13)


def _replay_is_here() -> bool:
    try:
        from .. import replay
    except ImportError:
        return False
    return replay.available()


@law(lambda sample: _replay_is_here())
def replay(sample: Sample) -> None:
    """The engines agree: replay gives the gradient that the sweep gives."""
    chosen = executors.engine()
    try:
        gradients = []
        for name in ("sweep", "replay"):
            executors.set_engine(name)
            out, pull = vjp(sample.at, *sample.variables, allow_unused=True)
            gradients.append(pull(sample.drawn(out)))
    finally:
        executors.set_engine(chosen)
    for i, (by_sweep, by_replay) in enumerate(zip(*gradients, strict=True)):
        what = f"the gradient of tracked operand {i} by replay"
        _close(what, by_replay, "the sweep", by_sweep)


# ------------------------------------------------------------------------------------------------ other engines
#
# An engine has to give what the sweep gives, at every point: where one of them has NaN or infinity, so has the other. Elsewhere
# roundings differ, by a few ulps of what the sweep's own answer moves by where the operands move by one.

ULPS = 64.0


def _parts(sample: Sample, at: Callable[..., Any]) -> list[Callable[..., list[Any]]]:
    """Functions of the variables: value and tangent; cotangents; the derivative of the cotangents. Of `at`, with the sample's weights."""
    with np.errstate(all="ignore"):
        w = sample.drawn(sample.at(*sample.variables))
    along = tuple(sample.drawn(x) for x in sample.variables)

    def gradient(*xs: Any) -> Any:
        return vjp(at, *xs, allow_unused=True)[1](w)

    return [
        lambda *xs: list(jvp(at, xs, along, allow_unused=True)),
        lambda *xs: list(gradient(*xs)),
        lambda *xs: list(jvp(gradient, xs, along, allow_unused=True)[1]),
    ]


def _all_of(parts: Sequence[Callable[..., list[Any]]]) -> Callable[..., list[Any]]:
    return lambda *xs: [x for part in parts for x in part(*xs)]


def _answer(f: Callable[..., Any], variables: Sequence[Any]) -> tuple[list[Any], str]:
    """What a function gives, as arrays, or the name of the error that it raises."""
    try:
        with np.errstate(all="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return [np.asarray(part) for part in f(*variables)], ""
    except (np.linalg.LinAlgError, ValueError, FloatingPointError, TapegradError) as error:
        return [], type(error).__name__


def _growth(f: Callable[..., Any], variables: Sequence[Any], here: Sequence[Any]) -> list[Any]:
    """By how much each part of an answer moves when the operands move by an ulp."""
    rng = np.random.default_rng(0)
    far = [np.zeros(np.shape(part)) for part in here]
    for _ in range(3):
        moved = [
            x * (1 + _ulp(x) * rng.choice([-1.0, 1.0], np.shape(x)))
            for x in map(np.asarray, variables)
        ]
        there, error = _answer(
            f, [m.astype(x.dtype) for m, x in zip(moved, map(np.asarray, variables), strict=True)]
        )
        if error:
            return [np.full(np.shape(part), np.inf) for part in here]
        with np.errstate(all="ignore"):
            far = [np.fmax(a, np.abs(b - c)) for a, b, c in zip(far, there, here, strict=True)]
    return far


def _ulp(x: Any) -> float:
    return float(np.finfo(np.result_type(x, np.float32)).eps)


def _hold_together(
    sample: Sample,
    name: str,
    plain: Callable[..., list[Any]],
    by_engine: Callable[..., list[Any]],
    layouts: Sequence[str] = tuple(LAYOUTS),
) -> None:
    """Compare an engine with the sweep: the first call is the sample's, later ones have other values and layouts."""
    chosen = executors.engine()
    matrices = sample.op is not None and any(d is dominant for d in sample.op.domains)
    mixing = (
        not (sample.op and sample.op.elementwise) or len(set(map(np.shape, sample.variables))) > 1
    )
    try:
        executors.set_engine("sweep")
        _answer(by_engine, sample.variables)
        for what, variables in others(sample):
            if what in LAYOUTS and what not in layouts:
                continue
            if matrices and not all(np.isfinite(x).all() for x in variables):
                continue  # which entries LAPACK spoils differs by processor
            expected, refused = _answer(plain, variables)
            found, error = _answer(by_engine, variables)
            told = f"{name}, called with {what},\n{variables},\n"
            if error != refused:
                raise GradcheckError(
                    f"{told} raises {error or 'nothing'}, and the sweep {refused or 'nothing'}."
                )
            if matrices and not all(np.isfinite(part).all() for part in expected):
                continue
            if all(_near(a, b) for a, b in zip(found, expected, strict=True)):
                continue  # without the growth, which costs three answers of the sweep
            far = _growth(plain, variables, expected)
            size = _size_of_terms(sample, variables) if mixing else None
            ulps = 1024.0 if matrices else ULPS
            for k, (a, b, growth) in enumerate(zip(found, expected, far, strict=True)):
                if not _near(a, b, growth, size, ulps):
                    raise GradcheckError(
                        f"part {k} of {told} is {a.dtype}\n{a}\nbut the sweep gives {b.dtype}\n{b}"
                    )
    finally:
        executors.set_engine(chosen)


def _size_of_terms(sample: Sample, variables: Sequence[Any]) -> float:
    """How large the terms are of which an entry is a sum: a derivative that is small may be the difference of such.

    The gradient of a softmax, s (w - <s, w>), has terms of the size of its value, and roundings of theirs.
    """
    value, _ = _answer(lambda *xs: [sample.at(*xs)], variables)
    return max(map(_largest, value), default=0.0) / max(1.0, *map(_largest, variables))


def _largest(x: Any) -> float:
    return float(np.max(np.abs(np.where(np.isfinite(x), x, 0)), initial=0.0))


def _near(
    found: Any, expected: Any, growth: Any = 0.0, size: float | None = None, ulps: float = ULPS
) -> bool:
    """Whether two results agree to a few ulps of the expected one's condition, and in dtype and shape.

    `size`: where entries are sums of terms of others, how large these terms are at least; else None. The largest entry is one, too.
    """
    if found.dtype != expected.dtype or found.shape != expected.shape:
        return False
    eps = _ulp(expected)
    with np.errstate(all="ignore"):
        off = np.abs(found - expected)
        terms = 0.0 if size is None else max(size, _largest(expected))
        bound = (
            ulps * (eps * np.abs(expected) + eps * terms + growth)
            + np.finfo(np.result_type(expected, np.float32)).tiny
        )
        alike = (
            (found == expected)
            | (np.isnan(found) & np.isnan(expected))
            | (off <= bound)
            | ~np.isfinite(growth)
        )
    return bool(np.all(alike))


@law(lambda sample: not sample.variant)
def compiled(sample: Sample) -> None:
    """A compiled program of the op gives what the sweep gives, on later calls with other values and other layouts too."""
    from .. import compiler

    everything = _all_of(_parts(sample, sample.at))
    _hold_together(sample, "the compiled program", everything, compiler.compile(everything))


_FORMS = {
    "the array": "def program({names}):\n    return np.sum(weights * {call})\n",
    "single numbers": (
        "def program({names}):\n    total = 0.0\n    for i in range({first}.size):\n"
        "        total += weights[i] * {call}\n    return total\n"
    ),
}
"""Programs that call an op, as somebody who uses Numba writes them."""


def _name_of(op: Any) -> str:
    """How a Numba function says what an op computes; empty where it has no name there."""
    for space, word in ((np, "np"), (np.linalg, "np.linalg"), (np.fft, "np.fft")):
        if getattr(space, op.of.__name__, None) is op.of:
            return f"{word}.{op.of.__name__}"
    special = sys.modules.get("scipy.special")
    return f"special.{op.of.__name__}" if getattr(special, op.of.__name__, None) is op.of else ""


def _programs(sample: Sample) -> Iterator[tuple[str, Any]]:
    """The programs that call a sample's op, as Python functions of its variables, with the source that transforms read."""
    op = sample.op
    assert op is not None
    names = [f"x{i}" for i in range(len(sample.operands))]
    settings = [f"{k}={v!r}" for k, v in sample.settings.items()]
    with np.errstate(all="ignore"):
        like = np.asarray(sample(*sample.operands))
    weights = np.asarray(sample.drawn(like))
    for form, text in _FORMS.items():
        each = form == "single numbers"
        if each and not (op.elementwise and like.ndim == 1):
            continue
        given = [f"{n}[i]" if each else n for n in names]
        call = f"{_name_of(op)}({', '.join([*given, *settings])})"
        text = text.format(names=", ".join(names), first=names[0], call=call)
        file = f"<{op.name} of {form}, law {next(_texts)}>"
        linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
        scope = {"np": np, "special": sys.modules.get("scipy.special"), "weights": weights}
        exec(compile(text, file, "exec"), scope)
        yield form, scope["program"]


_texts = itertools.count()


def _is_called_by_name(sample: Sample) -> bool:
    return (
        sample.op is not None
        and not sample.variant
        and all(sample.tracked)
        and bool(_name_of(sample.op))
        and not sample.op.variadic
        and np.result_type(*sample.operands).kind == "f"
    )


_TYPES = ("rows", "with gaps", "read-only")
"""Layouts that are types of their own in Numba, each of which compiles anew: the adjoint of an array takes all of them."""


@law(_is_called_by_name)
def native(sample: Sample) -> None:
    """Native functions that call the op, by adjoint and by overloading, give what the sweep gives, or are refused by name."""
    from numba.core.errors import NumbaError

    from ..native import njit

    assert sample.op is not None
    for form, program in _programs(sample):
        plain = replace(sample, function=program, settings={})
        asked = _parts(plain, program)
        for mode in ("adjoint", "overload"):
            name = f"{mode} of {form}"
            for what, by_sweep, by_engine in zip(
                _PARTS, asked, _parts(plain, njit(mode=mode)(program)), strict=True
            ):
                told = f"{what} by {name}"
                try:
                    with np.errstate(all="ignore"):
                        by_engine(*sample.variables)
                except (TapegradError, NumbaError) as refusal:
                    if sample.op.of.__name__ not in str(refusal):
                        raise GradcheckError(
                            f"{told}: it is refused, but its name is not told: {refusal}"
                        ) from refusal
                    continue
                _hold_together(
                    plain,
                    told,
                    by_sweep,
                    by_engine,
                    _TYPES if mode == "adjoint" and form == "the array" else _TYPES[:1],
                )


_PARTS = ("the value and the tangent", "the cotangents", "the derivative of the cotangents")


# ------------------------------------------------------------------------------------- functions without a rule


def of_numpy(function: Any) -> bool:
    """Whether NumPy made the function, so that it hands tensors over to this library."""
    return (
        isinstance(function, np.ufunc)
        or (getattr(function, "__module__", None) or "").partition(".")[0] == "numpy"
    )


def honest(function: Callable[..., Any], rng: int = 0) -> None:
    """A function without a derivative raises on a tracked tensor, naming itself; one called constant does not vary."""
    name = getattr(function, "__name__", repr(function))
    if function in UFUNCS or function in FUNCTIONS:
        return
    arguments = _arguments(function, rng)
    if arguments is None:  # not made for floating-point arrays at all
        return
    broken = f"{name} was checked for the law 'honest' ({honest.__doc__}), but"
    if function in CONSTANTS:
        moved = [x * (1 + 1e-9) if inexact(x) else x for x in arguments]
        with np.errstate(all="ignore"):
            if _flat(function(*arguments)) != _flat(function(*moved)):
                raise GradcheckError(
                    f"{broken} its result follows its operand while it is declared constant. Give it a rule, or "
                    "take it out of CONSTANTS."
                )
        return
    try:
        with own_tape():
            result = function(*(wrap(x).requires_grad_() if inexact(x) else x for x in arguments))
    except TapegradError as error:
        if name in str(error):
            return
        raise GradcheckError(f"{broken} its error does not name it: {error}") from error
    raise GradcheckError(
        f"{broken} it has no rule and returned {result!r}. Let it raise tapegrad.core.primitive.missing(...)."
    )


def _arguments(function: Callable[..., Any], rng: int) -> list[Any] | None:
    """Arguments that NumPy takes, floating-point arrays where it can be; None if it takes none of those tried."""
    generator = np.random.default_rng(rng)
    n = _arity(function)
    for shape in ((2, 2), (3,)):
        x = np.sort(real.sample(generator, shape), axis=None).reshape(shape)
        for more in (x, 1, "sum"):
            arguments = [x] + [more] * (n - 1)
            try:
                with np.errstate(all="ignore"):
                    function(*arguments)
            except Exception:
                continue
            return arguments
    return None


def _arity(function: Any) -> int:
    if isinstance(function, np.ufunc):
        return function.nin
    try:
        parameters = inspect.signature(function).parameters.values()
    except ValueError:
        return 1
    by_position = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return max(1, sum(p.default is p.empty and p.kind in by_position for p in parameters))


def _flat(value: Any) -> list[Any]:
    """Nested results as one list of numbers."""
    if isinstance(value, tuple | list):
        return [number for part in value for number in _flat(part)]
    return np.asarray(value).ravel().tolist()
