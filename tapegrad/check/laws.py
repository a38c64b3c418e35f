"""The laws that every op obeys, checked on samples that the op's own declaration gives.

A law is a function of one `Sample`: an op (or any function of NumPy code), raw operands, settings, and which operands
are tracked. It raises GradcheckError where it is broken and returns nothing where it holds; `LAWS` has each with the
kind of sample it speaks about, so a test is a loop over ops, samples and laws, and a new op is tested by being declared.

Invariant: a law believes nothing that the declaration says of derivatives. It compares the rule with NumPy's values
(complex steps, differences), or two things derived from the rule in different ways.
"""

from __future__ import annotations

import inspect
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from .. import executors, sweep
from ..domain import Domain, real
from ..errors import GradcheckError, TapegradError
from ..mode import no_grad
from ..primitive import CONSTANTS, FUNCTIONS, UFUNCS, Call, Primitive
from ..tape import STRIDE, own_tape
from ..tensor import Tensor, wrap
from ..transforms import jvp, vjp

# ------------------------------------------------------------------------------------------------------ samples


@dataclass(frozen=True, slots=True)
class Sample:
    """One call to check: `function(*operands, **settings)`, differentiated by the operands that are `tracked`.

    `variant` says what is special about it (a dtype, a layout, ...), or is empty.
    """

    name: str
    variant: str
    op: Primitive | None
    function: Callable[..., Any]
    reference: Callable[..., Any]
    operands: tuple[Any, ...]
    settings: dict[str, Any]
    tracked: tuple[bool, ...]
    seed: int

    def __repr__(self) -> str:
        kinds = [f"{np.result_type(x)}{np.shape(x)}" for x in self.operands]
        return f"{self.name}: " + ", ".join(kinds + [f"{k}={v!r}" for k, v in self.settings.items()])

    def __call__(self, *operands: Any) -> Any:
        """The op's public function, on raw operands or Tensors."""
        return self.function(*operands, **self.settings)

    def at(self, *tracked: Any) -> Any:
        """The function of the tracked operands alone."""
        given = iter(tracked)
        return self(*(next(given) if t else x for x, t in zip(self.operands, self.tracked, strict=True)))

    @property
    def variables(self) -> tuple[Any, ...]:
        """The tracked operands."""
        return tuple(x for x, t in zip(self.operands, self.tracked, strict=True) if t)

    @property
    def precise(self) -> bool:
        """Whether numbers have 64 bits, so that derivatives can be judged."""
        return all(np.result_type(x).char in "dD" for x in self.variables)

    def drawn(self, like: Any) -> Any:
        """Random numbers in the shape and dtype of a value: a cotangent, or a tangent."""
        rng = np.random.default_rng(self.seed)
        return np.asarray(real.sample(rng, np.shape(like), np.result_type(like)))


_SHAPES: dict[int, dict[str, tuple[tuple[int, ...], ...]]] = {
    1: {"vector": ((3,),), "0d": ((),), "empty": ((0,),), "matrix": ((2, 3),)},
    2: {
        "vector": ((3,), (3,)),
        "0d": ((), ()),
        "empty": ((0, 3), (3,)),
        "broadcast": ((2, 3), (3,)),
        "outer": ((2, 1), (1, 3)),
        "spread": ((), (2, 2)),
    },
    3: {
        "vector": ((3,), (3,), (3,)),
        "0d": ((), (), ()),
        "empty": ((0,), (0,), ()),
        "broadcast": ((2, 1), (3,), (2, 3)),
        "spread": ((2, 3), (), (2, 1)),
    },
}


def samples_of(op: Primitive, rng: int = 0) -> Iterator[Sample]:
    """The samples of a declared op: shapes or declared calls, each in several dtypes and layouts."""
    function = (lambda *xs, **kw: op.function(xs, **kw)) if op.variadic and not op.elementwise else op.function
    reference = _reference(op)
    if op.elementwise:
        calls = {name: Call(*shapes) for name, shapes in _SHAPES[op.arity].items()}
    else:
        calls = {repr(c).replace(", ", ","): c for c in op.samples}
    for i, (name, call) in enumerate(calls.items()):
        domains = call.domains or op.domains
        plain = _sample(name, "", op, function, reference, call, domains, rng)
        yield plain
        if i == 0 or not op.elementwise:
            yield from _variants(plain, call, domains, rng)


def samples_from(function: Callable[..., Any], calls: Sequence[Call], rng: int = 0) -> Iterator[Sample]:
    """The samples of any function written in NumPy's names, from calls such as `call((2, 3), axis=1)`."""
    for call in calls:
        plain = _sample(repr(call).replace(", ", ","), "", None, function, function, call, call.domains or (real,), rng)
        yield plain
        yield from _variants(plain, call, call.domains or (real,), rng)


def _reference(op: Primitive) -> Callable[..., Any]:
    """NumPy's own function, called with every setting, under the names it knows."""
    parameters = inspect.signature(op.function).parameters.values()
    defaults = {p.name: p.default for p in parameters if p.name in op.settings and p.default is not p.empty}
    try:
        known = set(inspect.signature(op.of).parameters)
    except ValueError:
        known = set(op.settings)

    def reference(*operands: Any, **settings: Any) -> Any:
        settings = defaults | settings
        unnamed = [v for k, v in settings.items() if k not in known]
        named = {k: v for k, v in settings.items() if k in known}
        given = (operands,) if op.variadic and not op.elementwise else operands
        return op.of(*given, *unnamed, **named)

    return reference


def _sample(
    name: str,
    variant: str,
    op: Primitive | None,
    function: Any,
    reference: Any,
    call: Call,
    domains: Sequence[Domain],
    rng: int,
    dtypes: Sequence[Any] = (np.float64,),
) -> Sample:
    # A seed per op and sample: adding one changes no other.
    seed = zlib.crc32(f"{rng} {op.name if op else call} {name}".encode())
    generator = np.random.default_rng(seed)
    operands = []
    for i, operand in enumerate(call.operands):
        dtype = dtypes[min(i, len(dtypes) - 1)]
        if isinstance(operand, tuple):
            operands.append(domains[min(i, len(domains) - 1)].sample(generator, operand, dtype))
        else:
            operands.append(operand)
    tracked = tuple(isinstance(x, np.ndarray | np.generic) and _inexact(x) for x in operands)
    return Sample(name, variant, op, function, reference, tuple(operands), call.settings, tracked, seed)


def _variants(plain: Sample, call: Call, domains: Sequence[Domain], rng: int) -> Iterator[Sample]:
    """The same call in other dtypes and memory layouts, with scalars, and with only one operand tracked."""
    op = plain.op
    elementwise = op is not None and op.elementwise

    def drawn(variant: str, *dtypes: Any, number: str = "") -> Sample:
        suffix = variant + number
        name = suffix if elementwise else f"{plain.name},{suffix}"
        return _sample(name, variant, op, plain.function, plain.reference, call, domains, rng, dtypes or (np.float64,))

    yield replace(drawn("strided"), operands=tuple(_strided(x) for x in plain.operands))
    yield drawn("float32", np.float32)
    arity = len(plain.operands)
    complex_too = _takes_complex(plain, domains)
    if complex_too:
        yield drawn("complex", np.complex128)
        if arity > 1 and not (op is not None and "mixed" in op.unsupported):
            yield drawn("mixed", np.float64, np.complex128)
    for i in range(arity if arity > 1 else 0):
        if plain.tracked[i]:
            yield replace(drawn("only", number=str(i)), tracked=tuple(j == i for j in range(arity)))
    if elementwise:
        scalars = drawn("scalar")
        yield replace(scalars, operands=tuple(x[0] for x in scalars.operands))
        # A Python number beside a tensor takes paths of its own in the generated code.
        numbers = {"float": float, "imaginary": lambda x: x * 1j} if complex_too else {"float": float}
        for kind, number in numbers.items() if arity == 2 else ():
            for i in range(2):
                operands = tuple(x if j == i else number(float(x[0])) for j, x in enumerate(scalars.operands))
                name = f"{kind}{1 - i}"
                yield replace(scalars, name=name, variant="number", operands=operands, tracked=tuple(j == i for j in range(2)))


def _inexact(x: Any) -> bool:
    return np.result_type(x).kind in "fc"


def _strided(x: Any) -> Any:
    """The same values in memory that runs backwards, with gaps, and in Fortran's order."""
    if np.ndim(x) == 0:
        return x
    roomy = np.zeros(tuple(2 * n for n in reversed(x.shape)), x.dtype)
    view = roomy[(slice(None, None, -2),) * x.ndim].T
    view[...] = x
    return view


def _takes_complex(plain: Sample, domains: Sequence[Domain]) -> bool:
    op = plain.op
    if op is not None and "complex" in op.unsupported:
        return False
    if not all(d.complex_too for d in domains):
        return False
    try:
        plain.reference(*(x + 0.1j if t else x for x, t in zip(plain.operands, plain.tracked, strict=True)), **plain.settings)
    except TypeError:
        return False
    return True


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
    nodes = []
    operands = []
    for x, tracked in zip(sample.operands, sample.tracked, strict=True):
        if tracked:
            t = wrap(x).requires_grad_()
            t._data = x  # a NumPy scalar stays one, as results of ops do
            nodes.append(t._node)
            operands.append(t)
        else:
            operands.append(x)
    with own_tape() as own:
        out = sample(*operands)
    if not isinstance(out, Tensor) or out._node is None:
        raise GradcheckError(f"the result of tracked operands is {type(out).__name__} and not tracked.")
    return Recorded(own.tape.code, nodes, out)


# ------------------------------------------------------------------------------------------------------ numbers

_STEP = 1e-3
_TINY = 1e-30


def inner(a: Any, b: Any) -> float:
    """The real inner product Re <a, b>, of which torch's complex gradients are the gradients."""
    return float(np.sum(np.real(np.conj(a) * b)))


def differences(f: Callable[[float], Any]) -> Any:
    """f'(0), by central differences over five points: exact up to the fourth power of the step."""
    h = _STEP
    return (f(-2 * h) - 8 * f(-h) + 8 * f(h) - f(2 * h)) / (12 * h)


def expected_gradient(sample: Sample, w: Any) -> tuple[list[Any], float]:
    """The gradient of Re <w, f> by the variables, from values of f alone, and how precise it is."""
    variables = [np.asarray(x) for x in sample.variables]
    analytic = sample.op is not None and sample.op.holomorphic
    if analytic and not any(np.iscomplexobj(x) for x in sample.operands):
        try:
            return [_by_complex_step(sample, variables, i, w) for i in range(len(variables))], 1e-9
        except TypeError:  # NumPy has no complex version of this function
            pass
    return [_by_differences(sample, variables, i, w) for i in range(len(variables))], 1e-7


def _by_complex_step(sample: Sample, variables: list[Any], i: int, w: Any) -> Any:
    # Complex operands throughout: a constant that stayed real could make NumPy cast the step away.
    constants = tuple(x + 0j if _inexact(x) else x for x in sample.operands)
    sample = replace(sample, operands=constants)
    gradient = np.zeros(variables[i].shape)
    for unit, where in _units(variables[i].shape):
        moved = [x + (_TINY * 1j * unit if j == i else 0j) for j, x in enumerate(variables)]
        gradient[where] = np.sum(w * np.imag(sample.at(*moved))) / _TINY
    return gradient


def _by_differences(sample: Sample, variables: list[Any], i: int, w: Any) -> Any:
    gradient = np.zeros(variables[i].shape, variables[i].dtype)
    for unit, where in _units(variables[i].shape):
        for direction in (1, 1j) if np.iscomplexobj(gradient) else (1,):

            def along(t: float, step: Any = direction * unit) -> float:
                return inner(w, sample.at(*(x + t * step if j == i else x for j, x in enumerate(variables))))

            gradient[where] += direction * differences(along)
    return gradient


def _units(shape: tuple[int, ...]) -> Iterator[tuple[Any, tuple[int, ...]]]:
    for where in np.ndindex(shape):
        unit = np.zeros(shape)
        unit[where] = 1
        yield unit, where


def agree(what: str, got: Any, source: str, expected: Any, rtol: float) -> None:
    """Raise unless two results agree, relative to the largest entry."""
    scale = max(1.0, float(np.max(np.abs(expected), initial=0.0)))
    if got is None or np.shape(got) != np.shape(expected) or not np.allclose(got, expected, rtol=0, atol=rtol * scale):
        raise GradcheckError(f"{what} is\n{got}\nbut {source} gives\n{expected}")


def same(what: str, got: Any, source: str, expected: Any) -> None:
    """Raise unless two values are equal in dtype, shape and every entry (NaN equals NaN)."""
    got, expected = np.asarray(got), np.asarray(expected)
    if got.dtype != expected.dtype or not np.array_equal(got, expected, equal_nan=True):
        raise GradcheckError(f"{what} is {got.dtype}\n{got}\nbut {source} gives {expected.dtype}\n{expected}")


def _close(what: str, got: Any, source: str, expected: Any) -> None:
    """Raise unless two values are equal up to rounding, in the same dtype."""
    agree(what, got, source, expected, 1e-13 if np.result_type(expected).char in "dD" else 1e-5)
    same(f"the dtype of {what}", np.zeros((), np.result_type(got)), source, np.zeros((), np.result_type(expected)))


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
            name = sample.op.name if sample.op else getattr(sample.function, "__name__", repr(sample.function))
            told = str(error) if isinstance(error, GradcheckError) else f"{type(error).__name__}: {error}"
            raise GradcheckError(
                f"{name} was checked for the law '{self.name}' ({self.check.__doc__}) on {sample!r}, but {told}\n"
                f"Correct the declaration of {name}, or say in its `unsupported` why the law cannot hold."
            ) from error


LAWS: dict[str, Law] = {}

# Every law speaks of plain samples; of the others, those that the variant could break.
_OF_VARIANT = {
    "strided": ("value", "derivative", "pure", "replay"),
    "float32": ("value", "dtype", "replay"),
    "complex": ("value", "derivative", "adjoint", "second", "dtype", "replay"),
    "mixed": ("value", "derivative", "adjoint", "second", "dtype", "replay"),
    "only": ("derivative", "adjoint", "one_entry", "replay"),
    "scalar": ("value", "derivative", "adjoint", "second", "pure", "replay"),
    "number": ("value", "derivative", "second", "dtype", "one_entry", "replay"),
}


def law(applies: Callable[[Sample], bool] = lambda sample: True) -> Callable[[Any], Any]:
    def declare(check: Callable[[Sample], None]) -> Callable[[Sample], None]:
        LAWS[check.__name__] = Law(check.__name__, check, applies)
        return check

    return declare


def laws_of(sample: Sample) -> list[Law]:
    """The laws that speak about a sample, less those its op declares unsupported."""
    excused = sample.op.unsupported if sample.op else ()
    spoken_of = _OF_VARIANT.get(sample.variant, LAWS)
    return [law for name, law in LAWS.items() if name in spoken_of and name not in excused and law.applies(sample)]


def _judged(sample: Sample) -> bool:
    return sample.precise and all(np.size(x) for x in sample.variables)


@law()
def value(sample: Sample) -> None:
    """The value equals NumPy's, on arrays, on tensors, and through NumPy's own name."""
    expected = sample.reference(*sample.operands, **sample.settings)
    untracked = [wrap(np.asarray(x)) if t else x for x, t in zip(sample.operands, sample.tracked, strict=True)]
    # An op makes the very call that NumPy would; what is made of ops may round on another way.
    compare = same if sample.op is not None else _close
    compare("the value of arrays", sample(*sample.operands), "NumPy", expected)
    compare("the value of tracked tensors", record(sample).out._data, "NumPy", expected)
    compare("the value of tensors", sample(*untracked)._data, "NumPy", expected)
    if sample.op is not None and of_numpy(sample.op.of):
        by_name = replace(sample, function=sample.reference)
        same("the value of tracked tensors by NumPy's name", record(by_name).out._data, "NumPy", expected)


@law(_judged)
def derivative(sample: Sample) -> None:
    """The VJP equals the derivative of the value by complex steps, or by differences over five points."""
    recorded = record(sample)
    w = sample.drawn(recorded.out)
    expected, rtol = expected_gradient(sample, w)
    for i, (got, want) in enumerate(zip(recorded.pull(w), expected, strict=True)):
        got = np.zeros_like(want) if got is None else got
        agree(f"the cotangent of tracked operand {i}", got, "the change of the value", want, rtol)


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
    variables = [np.asarray(x) for x in sample.variables]
    w = sample.drawn(record(sample).out)
    v = [sample.drawn(x) for x in variables]

    def gradient(u: Any, *xs: Any) -> Any:
        return vjp(sample.at, *xs)[1](u)

    def along(t: float) -> Any:
        return np.array([inner(a, g) for a, g in zip(v, gradient(w, *(x + t * a for x, a in zip(variables, v, strict=True))), strict=True)])

    pushed = jvp(lambda *xs: gradient(w, *xs), variables, v)[1]
    by_w, *pulled = vjp(gradient, w, *variables)[1](tuple(v))
    slopes = differences(along)
    agree("<v, H v> by operand, forward over reverse,", [inner(a, p) for a, p in zip(v, pushed, strict=True)], "the change of the gradient", slopes, 1e-6)
    for i, (a, b) in enumerate(zip(pulled, pushed, strict=True)):
        agree(f"H v in tracked operand {i}, reverse over reverse,", a, "forward over reverse", b, 1e-11)
    agree("J v, as the derivative of the VJP by its cotangent,", by_w, "forward mode", record(sample).push(v), 1e-11)


@law()
def broadcast(sample: Sample) -> None:
    """A cotangent has its operand's shape, and a tangent the result's, whatever was broadcast."""
    recorded = record(sample)
    for i, (g, x) in enumerate(zip(recorded.pull(sample.drawn(recorded.out)), sample.variables, strict=True)):
        if g is not None and np.shape(g) != np.shape(x):
            raise GradcheckError(f"the cotangent of tracked operand {i} has shape {np.shape(g)}, not {np.shape(x)}.")
    tangent = recorded.push([sample.drawn(x) for x in sample.variables])
    if np.shape(tangent) != recorded.out.shape:
        raise GradcheckError(f"the tangent has shape {np.shape(tangent)}, not the result's {recorded.out.shape}.")


@law()
def dtype(sample: Sample) -> None:
    """Single precision stays single, complex stays complex; cotangents have the operand's dtype, tangents the result's."""
    recorded = record(sample)
    out = recorded.out
    width = np.result_type(*sample.variables, np.float32).char in "fF"
    if width != (out.dtype.char in "fF"):
        raise GradcheckError(f"the result has dtype {out.dtype}.")
    for i, (g, x) in enumerate(zip(recorded.pull(sample.drawn(out)), sample.variables, strict=True)):
        if g is not None and g.dtype != np.result_type(x):
            raise GradcheckError(f"the cotangent of tracked operand {i} has dtype {g.dtype}, not {np.result_type(x)}.")
    tangent = recorded.push([sample.drawn(x) for x in sample.variables])
    if tangent.dtype != out.dtype:
        raise GradcheckError(f"the tangent has dtype {tangent.dtype}, not the result's {out.dtype}.")


@law()
def pure(sample: Sample) -> None:
    """Operands, result and cotangent are never written to, so read-only ones will do."""
    guarded = replace(sample, operands=tuple(_read_only(x) for x in sample.operands))
    recorded = record(guarded)
    out = recorded.out._data
    before = np.array(out)
    w = _read_only(sample.drawn(out))
    recorded.pull(w)
    recorded.push([_read_only(sample.drawn(x)) for x in sample.variables])
    same("the result after differentiation", out, "the evaluation", before)
    for got, given in zip(guarded.operands, sample.operands, strict=True):
        if isinstance(got, np.ndarray):
            same("an operand afterwards", got, "the operand before", given)


def _read_only(x: Any) -> Any:
    if not isinstance(x, np.ndarray):
        return x
    x = x.copy()
    x.flags.writeable = False
    return x


@law(lambda sample: sample.op is not None)
def one_entry(sample: Sample) -> None:
    """One call records one entry; without a tracked operand, or under no_grad, none."""
    entries = len(record(sample).code) // STRIDE
    if entries != 1:
        raise GradcheckError(f"the call recorded {entries} entries.")
    with own_tape() as own:
        sample(*(wrap(np.asarray(x)) if t else x for x, t in zip(sample.operands, sample.tracked, strict=True)))
        with no_grad():
            record_under_no_grad = sample(*(wrap(x).requires_grad_() if t else x for x, t in zip(sample.operands, sample.tracked, strict=True)))
    if own.tape.code or record_under_no_grad.requires_grad:
        raise GradcheckError("a call that tracks nothing was recorded.")


def _has_formula(sample: Sample) -> bool:
    return sample.name == "vector" and any(p.function for p in sample.op.partials)  # type: ignore[union-attr]


@law(lambda sample: sample.op is not None and sample.op.elementwise and _has_formula(sample))
def nopython(sample: Sample) -> None:
    """A partial compiled for scalars by Numba equals the same partial on arrays."""
    from numba import njit

    from ..replay.kernels import nopython as inlined

    assert sample.op is not None
    out = sample.reference(*sample.operands)
    values = dict(zip("xyz", sample.operands, strict=False), out=out)
    for i, partial in enumerate(sample.op.partials):
        if partial.function is None:
            continue
        names = list(inspect.signature(partial.function).parameters)
        # What the kernels inline cannot be called from Python: a caller of its own is compiled around it.
        caller = eval(f"lambda {', '.join(names)}: partial({', '.join(names)})", {"partial": inlined(partial.function)})
        scalar = njit(error_model="numpy")(caller)
        got = [scalar(*(values[n][k] for n in names)) for k in range(3)]
        expected = np.broadcast_to(partial.function(*(values[n] for n in names)), (3,))
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
            out, pull = vjp(sample.at, *sample.variables)
            gradients.append(pull(sample.drawn(out)))
    finally:
        executors.set_engine(chosen)
    rtol = 1e-12 if sample.precise else 1e-5
    for i, (by_sweep, by_replay) in enumerate(zip(*gradients, strict=True)):
        agree(f"the gradient of tracked operand {i} by replay", by_replay, "the sweep", by_sweep, rtol)
        if np.result_type(by_replay) != np.result_type(by_sweep):
            raise GradcheckError(f"its dtype by replay is {np.result_type(by_replay)}, not {np.result_type(by_sweep)}.")


# ------------------------------------------------------------------------------------- functions without a rule


def of_numpy(function: Any) -> bool:
    """Whether NumPy made the function, so that it hands tensors over to this library."""
    return isinstance(function, np.ufunc) or (getattr(function, "__module__", None) or "").partition(".")[0] == "numpy"


def honest(function: Callable[..., Any], rng: int = 0) -> None:
    """A function without a derivative raises on a tracked tensor, naming itself; one called constant does not vary."""
    name = getattr(function, "__name__", repr(function))
    if function in UFUNCS or function in FUNCTIONS:
        return
    arguments = _arguments(function, rng)
    if arguments is None:  # not made for floating-point arrays at all
        return
    broken = f"{name} was checked for the law 'honest' ({honest.__doc__}), but "
    if function in CONSTANTS:
        moved = [x * (1 + 1e-9) if _inexact(x) else x for x in arguments]
        with np.errstate(all="ignore"):
            if _flat(function(*arguments)) != _flat(function(*moved)):
                raise GradcheckError(
                    f"{broken}its result follows its operand while it is declared constant. Give it a rule, or take it out of "
                    "CONSTANTS."
                )
        return
    try:
        with own_tape():
            result = function(*(wrap(x).requires_grad_() if _inexact(x) else x for x in arguments))
    except TapegradError as error:
        if name in str(error):
            return
        raise GradcheckError(f"{broken}its error does not name it: {error}") from error
    raise GradcheckError(f"{broken}it has no rule and returned {result!r}. Let it raise tapegrad.primitive.missing(...).")


def _arguments(function: Callable[..., Any], rng: int) -> list[Any] | None:
    """Arguments that NumPy takes, floating-point arrays where it can be; None if it takes none of those tried."""
    generator = np.random.default_rng(rng)
    n = _arity(function)
    for shape in ((2, 2), (3,)):
        x = np.sort(real.sample(generator, shape), axis=None).reshape(shape)
        for others in (x, 1, "sum"):
            arguments = [x] + [others] * (n - 1)
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
    return max(1, sum(p.default is p.empty and p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD) for p in parameters))


def _flat(value: Any) -> list[Any]:
    """Nested results as one list of numbers."""
    if isinstance(value, tuple | list):
        return [number for part in value for number in _flat(part)]
    return np.asarray(value).ravel().tolist()
