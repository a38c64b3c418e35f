"""Declarations: one per op, from which everything else about the op is derived.

    exp    = elementwise(np.exp,    lambda out: out)
    divide = elementwise(np.divide, lambda y: 1 / y, lambda y, out: -out / y, domain=(real, nonzero))

A partial is a number or a function of what it needs: its parameter names (a subset of `x, y, z, out`, in
that order) say what the tape must save, so a value no rule names is not kept when it is big. It
is written with NumPy's names and operators, so the same text runs on arrays (first derivative), on Tensors
(it is recorded: higher derivatives) and on scalars inside Numba (kernels).

    @primitive(np.sum, linear=True, samples=[call((3, 4), axis=1)])
    def total(g, x_shape, *, axis=None, keepdims=False): ...

declares a structural op by its VJP: `g` is the cotangent of the result; `x, y, out` are values, `x_shape, y_shape,
out_shape` only shapes; keyword-only parameters are the op's settings, with NumPy's names and defaults. Several
operands have a rule each; a variadic op (`xs`, `xs_shapes`) returns one cotangent per operand.

Invariant: `OPS[op.code] is op`, and the generated function is the only code that evaluates and records the op.
The generated text is kept: `tg.sin.source` shows it.
"""

from __future__ import annotations

import functools
import inspect
import linecache
import math
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from types import MappingProxyType
from typing import Any, Literal

import numpy as np

from ..errors import NotDifferentiable, TapegradError
from . import locks, seams, signatures, synonyms
from . import tape as tapes
from .domain import Domain, real
from .dual import DualTensor, carry
from .elsewhere import UNITS, foreign, library_of
from .mode import INFERENCE
from .storage import StandIn, as_array, kept
from .tape import BIG, FREED, KW, OP, RECORDER, Attended, X, Y, begin, namespace, new_slot, renew
from .tensor import InferenceTensor, Tensor, blank
from .views import link

NAMES = ("x", "y", "z")
NOTHING: Mapping[str, str] = MappingProxyType({})


class Call:
    """One sample call of an op: shapes (or arrays) of its operands, and its settings."""

    __slots__ = ("domains", "operands", "settings")

    def __init__(self, *operands: Any, domains: Sequence[Domain] = (), **settings: Any) -> None:
        self.operands = operands
        self.settings = settings
        self.domains = domains

    def __repr__(self) -> str:
        shapes = [repr(o) if type(o) is tuple else f"<{np.shape(o)}>" for o in self.operands]
        return ", ".join(shapes + [f"{k}={v!r}" for k, v in self.settings.items()])


call = Call


class Primitive:
    """What is known of one op. Made by `elementwise` and `primitive`, but for two ops that no user calls."""

    __slots__ = (
        "adds",
        "arity",
        "around",
        "backward_name",
        "clears",
        "code",
        "directions",
        "doc",
        "domains",
        "dunder",
        "elementwise",
        "evaluate",
        "forward",
        "function",
        "holomorphic",
        "jvp",
        "linear",
        "met",
        "name",
        "needs",
        "of",
        "operator",
        "partials",
        "pattern",
        "regional",
        "rules",
        "samples",
        "saves",
        "settings",
        "settled",
        "unsupported",
        "variadic",
        "view",
    )

    code: int
    met: int | None
    """Elements in large arrays that the op has met since a quicker forward function was last asked for; None where there is none."""
    name: str
    doc: list[str]
    elementwise: bool
    variadic: bool
    settings: tuple[str, ...]
    # What declarations give and engines call, or None.
    adds: Any
    around: Any
    clears: Any
    directions: Any
    dunder: Any
    evaluate: Any
    forward: Any
    function: Any
    jvp: Any
    of: Any
    operator: Any
    pattern: Literal["", "moves", "same", "along"]
    domains: tuple[Any, ...]
    needs: tuple[Any, ...]
    partials: tuple[Any, ...]
    rules: tuple[Any, ...]
    samples: tuple[Any, ...]
    unsupported: Mapping[str, str]

    def __init__(self) -> None:
        """An op that can do nothing: who declares it sets what it can do, and a new trait needs a value for all others here alone."""
        self.elementwise = self.variadic = self.linear = self.view = self.regional = False
        self.saves = False
        self.holomorphic = self.settled = True
        self.pattern = ""
        self.arity = 0
        self.partials = self.rules = self.needs = self.settings = self.domains = self.samples = ()
        self.jvp = self.directions = self.adds = self.clears = None
        self.of = self.forward = self.function = self.evaluate = self.around = None
        self.operator = self.dunder = self.met = None
        self.unsupported = NOTHING
        self.doc = []

    def __repr__(self) -> str:
        return f"<primitive {self.name}>"


OPS: list[Primitive] = []
"""Every op, by its code. Code 0 is no op: it marks an entry whose saved values were freed."""

_declaring = locks.lock()

WHEN_DECLARED: list[Callable[[Primitive], None]] = []
"""What is told of every op that is declared from then on."""

UFUNCS: dict[Any, Callable[..., Any]] = {}
"""NumPy ufunc -> the function of this library that evaluates and records it."""

NATIVE: dict[Any, Callable[..., Any]] = {}
"""Generated function -> the same as machine code for small operands, once replay is loaded; it calls the other where it must."""

FUNCTIONS: dict[Any, Callable[..., Any]] = {}
"""NumPy function -> likewise, for `__array_function__`."""

STRUCTURAL: dict[Any, Primitive] = {}
"""NumPy function -> the op that has its derivative."""

# NumPy's functions that are written in C tell their signature from NumPy 2.4 on.
UNTOLD: dict[Any, Callable[..., None]] = {
    np.bincount: lambda x, /, weights=None, minlength=0: None,
    np.concatenate: lambda arrays, /, axis=0, out=None, *, dtype=None, casting="same_kind": None,
    np.copyto: lambda dst, src, casting="same_kind", where=True: None,
    np.dot: lambda a, b, out=None: None,
    np.inner: lambda a, b, /: None,
    np.putmask: lambda a, /, mask, values: None,
    np.vdot: lambda a, b, /: None,
    np.where: lambda condition, x=None, y=None, /: None,
}
"""NumPy function -> a function with its signature."""


def signature_of(function: Any) -> inspect.Signature:
    """The signature of a function, one of NumPy's in every version; ValueError or TypeError where it has none."""
    return inspect.signature(UNTOLD.get(function, function))


def select(condition: Any, a: Any, b: Any) -> Any:
    """`np.where` for rules: `a if condition else b` inside kernels (there np.where would allocate).

    A condition on settings or constant operands is Python's bool: where it is False nothing has to be chosen, or recorded.
    """
    return b if condition is False else np.where(condition, a, b)


def compiled_as(form: Callable[..., Any]) -> Callable[[Any], Any]:
    """Decorator: in compiled code a function that rules call is this one, of scalars."""

    def note(function: Any) -> Any:
        function.nopython = form
        return function

    return note


compiled_as(lambda condition, a, b: a if condition else b)(select)


_NUMERIC = frozenset((np.ndarray, np.float64, np.float32, float, int))


def refined(
    plain: Callable[..., Any], *, special: Callable[..., bool] | None = None
) -> Callable[[Any], Any]:
    """Decorator: a formula of rules whose value is that of `plain`, which is cheaper and is what arrays and compiled code take.

    The decorated function is what is *recorded*, where the rule is itself differentiated: the derivative of `plain` would lose digits.
    (A symbol of program/partials.py says by `again` whether it will be.) `special`: the derivative of `plain` is wrong only if
    no operand is a constant number and this says that some are special.
    """

    def note(recorded: Any) -> Any:
        @functools.wraps(recorded)
        def formula(*operands: Any) -> Any:
            if _NUMERIC.issuperset(map(type, operands)):
                return plain(*operands)
            again = any(isinstance(x, Tensor) or getattr(x, "again", False) for x in operands)
            if again and special is not None:
                again = not any(type(x) in (int, float) for x in operands) and special(*operands)
            return (recorded if again else plain)(*operands)

        formula.recorded = recorded  # type: ignore[attr-defined]
        return compiled_as(getattr(plain, "nopython", plain))(formula)

    return note


def conj(x: Any) -> Any:
    """`np.conj` for rules of structural ops: a real array comes back as it is, where NumPy would copy it."""
    return np.conj(x) if x.dtype.kind == "c" else x


def strong(g: Any, p: Any) -> Any:
    """g times a partial p, but 0 wherever g is 0, however infinite p is: where nothing comes back, nothing goes on.

    So a branch that `where` did not take has the gradient 0 at the poles it was kept from. The check for NaN
    costs half as much as the product; only where it finds one is there more to do.
    """
    kind = type(g)
    if kind is not np.float64 and kind is not np.ndarray and isinstance(g, StandIn):
        return g.called(strong, (g, p), "strong_product")
    r = g * p
    kind = type(r)
    if kind is np.float64:
        return r if r == r or g != 0 else np.float64(0)
    if kind is np.ndarray:
        # A sum of squares is NaN if an entry is, and only then.
        d = r.dot(r) if r.ndim == 1 else np.vdot(r, r)
        if d == d:
            return r
    if isinstance(r, StandIn):
        return r.called(strong, (g, p), "strong_product")
    return np.where(g == 0, np.zeros((), r.dtype), r)[()]


# ------------------------------------------------------------------------------------------------ declaring


_OF_UFUNCS = ("reduce", "accumulate", "reduceat", "outer", "at", "nin", "nout", "nargs", "identity")


def elementwise(
    ufunc: Any,
    *partials: Any,
    domain: Domain | Sequence[Domain] = real,
    name: str | None = None,
    backward: str | Callable[..., str] | None = None,
    operator: str | None = None,
    dunder: str | None = None,
    method: bool | None = None,
    holomorphic: bool = True,
    chooses: bool | Sequence[bool] = False,
    view: bool = False,
    around: Callable[[Any], Callable[..., Any]] | None = None,
    unsupported: Mapping[str, str] = NOTHING,
) -> Any:
    """Declare an elementwise op by its partial derivatives, one per operand; returns its public function.

    `operator` is the Python operator that evaluates it faster than the ufunc on scalars; `dunder` the
    special method it becomes on Tensors; `holomorphic` whether the value is an analytic function of complex operands;
    `chooses` whether the value is one of the operands, so that nothing flows to the others, however infinite (or that of each);
    `view` whether the result shares memory with x;
    `around` makes, from the ufunc or a quicker one, the function that computes large arrays;
    `unsupported` what cannot be had of this op, and why: laws of `tapegrad.check` or kinds of samples ("complex").
    """
    op = Primitive()
    op.elementwise = True
    op.arity = len(partials)
    op.variadic = op.arity > 2
    op.name = name or ufunc.__name__
    op.of, op.around = ufunc, around
    op.forward = around(ufunc) if around else ufunc
    chooses = (chooses,) * op.arity if isinstance(chooses, bool) else chooses
    op.partials = tuple(map(Partial, partials, chooses))
    op.needs = tuple(p.needs for p in op.partials)
    op.view = view
    op.operator, op.dunder = operator, dunder
    op.domains = (domain,) * op.arity if isinstance(domain, Domain) else tuple(domain)
    op.holomorphic = holomorphic
    op.unsupported = unsupported
    op.met = 0 if isinstance(ufunc, np.ufunc) else None
    op.doc = (ufunc.__doc__ or "").strip().splitlines()
    written = None if around else operator
    function = _finish(op, backward, operator=written)
    if isinstance(ufunc, np.ufunc):
        UFUNCS[ufunc] = function
        for (
            of_ufunc
        ) in _OF_UFUNCS:  # np.add.outer and the like ask tensors, so that they are ours, too
            setattr(function, of_ufunc, getattr(ufunc, of_ufunc))
    else:
        FUNCTIONS[ufunc] = function
    if dunder:
        _operators(op, dunder, written)
    if method or (method is None and op.arity == 1):
        setattr(Tensor, op.name, function)
    return function


def primitive(
    of: Any,
    *other_rules: Callable[..., Any],
    forward: Callable[..., Any] | None = None,
    written: str | None = None,
    name: str | None = None,
    backward: str | Callable[..., str] | None = None,
    linear: bool = False,
    pattern: Literal["", "moves", "same", "along"] = "",
    settled: bool = True,
    view: bool = False,
    jvp: Callable[..., Any] | None = None,
    directions: Callable[..., Any] | None = None,
    adds: Callable[..., None] | None = None,
    clears: Callable[..., None] | None = None,
    samples: Sequence[Call] = (),
    domain: Domain | Sequence[Domain] = real,
    method: bool | str = False,
    holomorphic: bool = True,
    unsupported: Mapping[str, str] = NOTHING,
) -> Callable[[Callable[..., Any]], Any]:
    """Declare a structural op by the VJP of each operand; decorates the first operand's rule.

    `of` is NumPy's function; `forward` a faster way to the same value, if there is one, and `written` the value as an expression of `a`,
    the operand, and the settings. `linear=True`: linear in each operand (jointly, if variadic), so its JVP is the op itself.
    `directions(tangents, values, out, *settings)` is the JVP, on raw values, of several directions at once, along a first axis of the
    tangents; it returns None where they have to go one by one. `pattern` tells on which elements of an operand one of the result
    depends: it is one of them, by its place alone ("moves"), or depends on that at the same place ("same"), or on those along an axis
    or some ("along"); other ops may depend on all. `settled=False`: the result's shape or dtype follows from values, too. `view=True`:
    the result shares memory with x. Ops that read or replace a region of x say how to do x's rule in place: `adds(whole, g, *settings)`
    adds the cotangent of a read into that of x, `clears(g, *settings)` turns the cotangent of a store into that of x.
    """

    def declare(rule: Callable[..., Any]) -> Any:
        """Make an op of a rule: its settings, what it needs saved, its public function, its entries in the tables."""
        rules = (rule, *other_rules)
        op = Primitive()
        op.name = name or of.__name__
        op.of = of
        op.forward = forward or of
        signature = inspect.signature(rule)
        op.settings = tuple(
            p.name for p in signature.parameters.values() if p.kind is p.KEYWORD_ONLY
        )
        positional = [_positional(r) for r in rules]
        op.variadic = any(n.startswith("xs") for n in positional[0])
        op.arity = len(rules)
        op.rules = tuple(_rule(r, names, op) for r, names in zip(rules, positional, strict=True))
        op.needs = tuple(
            frozenset(n for n in names if n in ("x", "y", "xs", "out")) for names in positional
        )
        op.linear, op.pattern, op.settled = linear, pattern, settled
        op.jvp, op.directions = jvp, directions
        op.view = view
        op.adds, op.clears = adds, clears
        op.regional = adds is not None or clears is not None
        op.domains = (domain,) if isinstance(domain, Domain) else tuple(domain)
        op.holomorphic = holomorphic
        op.unsupported = unsupported
        op.samples = tuple(samples)
        op.doc = (rule.__doc__ or of.__doc__ or "").strip().splitlines()
        defaults = {
            p.name: p.default for p in signature.parameters.values() if p.kind is p.KEYWORD_ONLY
        }
        function = _finish(op, backward, operator=written, defaults=defaults)
        if not isinstance(of, np.ufunc):
            FUNCTIONS[of] = function
            STRUCTURAL[of] = op
        else:
            UFUNCS[of] = function
        if method:
            setattr(Tensor, method if isinstance(method, str) else op.name, function)
        return function

    return declare


def _positional(rule: Callable[..., Any]) -> tuple[str, ...]:
    """What a rule asks for by the names of its parameters; TypeError for names that no rule can ask for."""
    code = rule.__code__
    names = getattr(rule, "asks", code.co_varnames[: code.co_argcount])
    allowed = {
        "g",
        "x",
        "y",
        "z",
        "out",
        "xs",
        "x_shape",
        "y_shape",
        "out_shape",
        "xs_shapes",
        "wanted",
    }
    if unknown := set(names) - allowed:
        raise TypeError(
            f"rule {rule.__name__} asks for {sorted(unknown)}; a rule can ask for {sorted(allowed)}."
        )
    return names


_OF_OPERANDS = """
def made({0}):
    try:
        p = partial({1})
    except (ZeroDivisionError, OverflowError):
        p = in_numpys_numbers(partial, {1})
    return {2}
"""


def _in_numpys_numbers(partial: Callable[..., Any], *operands: Any) -> Any:
    """A partial where Python's arithmetic raises, as 1 / y does where y is Python's 0: infinite or NaN, as NumPy's would be.

    The result of Python's numbers alone is again one, which does not decide a dtype.
    """
    weak = [type(x) in (bool, int, float, complex) for x in operands]
    given = [
        np.array(x, complex if type(x) is complex else float)[()] if number else x
        for x, number in zip(operands, weak, strict=True)
    ]
    found = partial(*given)
    return found.item() if all(weak) else found


class Partial:
    """A partial derivative: `of(x, y, z, out)` passes on only what it named.

    `along(t, x, y, out, product)` is its term of the raw tangents of an op of one or two operands: the product of t with the partial.
    It is None where that is t, and `of` where the partial is a number.
    """

    __slots__ = ("along", "chooses", "function", "needs", "of", "value")

    def __init__(self, partial: Any, chooses: bool) -> None:
        """A partial derivative: a number, or a function of operands and result, named by its parameters."""
        self.chooses = chooses
        if callable(partial):
            self.value = None
            self.function = partial
            self.needs = frozenset(_positional(partial))
        else:
            self.value = partial
            self.function = None
            self.needs = frozenset()

    def __getattr__(self, name: str) -> Any:
        """`of` or `along`, which are made when they are first asked for: of most partials nobody does."""
        if name not in ("of", "along"):
            raise AttributeError(name)
        parameters = "x, y, z, out" if name == "of" else "t, x, y, out, product, z=None"
        known = {"partial": self.function or self.value, "zeros_like": np.zeros_like}
        known["in_numpys_numbers"] = _in_numpys_numbers
        made: Any = None
        if self.function is not None:
            operands = ", ".join(_positional(self.function))
            factor = "p" if name == "of" else "product(p, t)" if self.chooses else "product(t, p)"
            exec(_OF_OPERANDS.format(parameters, operands, factor), known)
            made = known["made"]
        elif name == "along" and self.value != 1:
            text = "-t" if self.value == -1 else "t * partial" if self.value else "zeros_like(t)"
            made = eval(f"lambda {parameters}: {text}", known)
        setattr(self, name, made)
        return made


def _rule(rule: Callable[..., Any], names: tuple[str, ...], op: Primitive) -> Callable[..., Any]:
    """`rule` as a function of all that an entry holds: (g, x, y, out, kw) or (g, xs, out, kw, wanted)."""
    values = {"x_shape": "shape(x)", "y_shape": "shape(y)", "out_shape": "shape(out)"}
    values["xs_shapes"] = "[shape(x) for x in xs]"
    arguments = [values.get(n, n) for n in names]
    arguments += [f"{n}=kw[{i}]" for i, n in enumerate(op.settings)]
    parameters = "g, xs, out, kw, wanted" if op.variadic else "g, x, y, out, kw"
    text = f"lambda {parameters}: rule({', '.join(arguments)})"
    return eval(text, {"rule": rule, "shape": np.shape})


def _finish(
    op: Primitive,
    backward: str | Callable[..., str] | None,
    *,
    operator: str | None = None,
    defaults: dict[str, Any] | None = None,
) -> Callable[..., Any]:
    """Register the op, generate its function, and make that callable in every way the op is reached."""
    with _declaring:
        op.code = len(OPS)
        OPS.append(op)
    op.saves = any(op.needs)
    op.backward_name = backward or "".join(word.capitalize() for word in op.name.split("_"))
    op.evaluate = _evaluator(op)
    op.function = _generate(op, operator, defaults or {})
    if op.function.__code__.co_flags & inspect.CO_VARKEYWORDS:
        signatures.in_both_words(op.function)
    op.function.primitive = op
    for told in WHEN_DECLARED:
        told(op)
    return op.function


def _evaluator(op: Primitive) -> Callable[..., Any]:
    """`evaluate(raw operands, kw)` -> raw result."""
    settings = "".join(f", {n}=kw[{i}]" for i, n in enumerate(op.settings))
    operands = "raw" if op.variadic and not op.elementwise else "*raw"
    return eval(f"lambda raw, kw: forward({operands}{settings})", {"forward": op.forward})


# --------------------------------------------------------------------------------------------- generated code
#
# The cost of an op's hot path is decided here. Measured at n = 1: a generic apply(op, *args) takes four
# times what generated code takes, which reads slots once, makes the result by `next(blank)`
# (10 ns more than calling a class without `__new__`, 17 less than `object.__new__(Tensor)`), and appends one tuple.

_TRACK = """
{i}record = recorder()
{i}if not record:
{i}    if record is not None:
{i}        return untracked(t, record)
{i}    record = begin()
{i}if v.nbytes > BIG{operands}:
{i}    return track_big(t, record, {code}, {n0}, {n1}, {x}, {y}, v, {kw})
{i}try:
{i}    slot = next(slots)
{i}except StopIteration:
{i}    slot = renew()
{i}t._node = slot
{i}record(({code}, slot, {n0}, {n1}, {x}, {y}, v, {kw}))
{i}return t
"""

_UNARY = """
def {name}(x{signature}):{reworded}
    if type(x) is not Tensor:
        return apply(op_{code}, (x,), {kw})
    a = x._value
    {computed}
    t = next(blank)
    t._value = v
    {link}node = x._node
    if node is None:
        t._node = None
        return t
    {track}
"""

# A setting that the function cannot read is named by whoever reads its error; where there is none, this costs nothing.
_COMPUTED = """
try:
    v = {value}
except (TypeError, IndexError) as error:
    raise misread(op_{code}, {kw}, error)
"""

# A call that names a setting otherwise; an empty dict costs a call 15 ns.
_REWORDED = """
    if others:
        return in_other_words(op_{code}, {operand}, {given}, others)"""

_BINARY = """
def {name}(x, y{signature}):
    if type(x) is Tensor:
        if type(y) is Tensor:
            a = x._value
            b = y._value
            v = {value}
            t = next(blank)
            t._value = v
            n0 = x._node
            n1 = y._node
            if n0 is None and n1 is None:
                t._node = None
                return t
            {track}
        kind = type(y)
        if kind is int and x._node is not None:
            y = float(y)
            kind = float
        if kind is float or (kind is ndarray and not y.dtype.hasobject):
            a = x._value
            v = {value_right}
            t = next(blank)
            t._value = v
            n0 = x._node
            if n0 is None:
                t._node = None
                return t
            {keep_right}
            {track_right}
    {left}
    return {otherwise}
"""

_LEFT = """
elif type(y) is Tensor and (type(x) is float or (type(x) is ndarray and not x.dtype.hasobject)):
    b = y._value
    v = {value_left}
    t = next(blank)
    t._value = v
    n1 = y._node
    if n1 is None:
        t._node = None
        return t
    {keep_left}
    {track_left}
"""

_REFLECTED = """
def {name}(y, x):
    if type(x) is int and y._node is not None:
        x = float(x)
    if type(x) is float:
        b = y._value
        v = {value}
        t = next(blank)
        t._value = v
        n1 = y._node
        if n1 is None:
            t._node = None
            return t
        {track}
    return {otherwise}
"""

_VARIADIC = """
def {name}({signature}):{reworded}
    return apply(op_{code}, {operands}, {kw})
"""

_TERNARY = """
def {name}(x, y, z):
    kind_x, kind_y, kind_z = type(x), type(y), type(z)
    {each_x}
    {each_y}
    {each_z}
    if kind_x is not Tensor and kind_y is not Tensor and kind_z is not Tensor:
        return apply(op_{code}, (x, y, z), None)
    v = forward_{code}(a, b, c)
    if type(v) not in ARRAYS:
        v = as_array(v)
    t = next(blank)
    t._value = v
    if (n0 is None and n1 is None and n2 is None) or v.dtype.kind not in "fc":
        t._node = None
        return t
    {keep}
    {track}
"""

_EACH = """
if kind_{x} is Tensor:
    {a}, {n} = {x}._value, {x}._node
elif kind_{x} is float or (kind_{x} is ndarray and not {x}.dtype.hasobject):
    {a}, {n} = {x}, None
else:
    return apply(op_{code}, (x, y, z), None)
"""

_SEQUENCE = """
def {name}(xs{signature}):{reworded}
    if type(xs) is not list and type(xs) is not tuple:
        return apply(op_{code}, xs, {kw})
    raw = []
    nodes = []
    tracked = False
    for x in xs:
        if type(x) is Tensor:
            node = x._node
            raw.append(x._value)
            nodes.append(node)
            if node is not None:
                tracked = True
        elif type(x) is ndarray and not x.dtype.hasobject:
            raw.append(x)
            nodes.append(None)
        else:
            return apply(op_{code}, xs, {kw})
    if not tracked:
        return apply(op_{code}, xs, {kw})
    {computed}
    t = next(blank)
    t._value = v
    if v.dtype.kind not in "fc":
        t._node = None
        return t
    nodes = tuple(nodes)
    raw = tuple(raw)
    {track}
"""


def _indented(text: str, by: int) -> str:
    pad = " " * by
    return ("\n" + pad).join(line for line in text.strip("\n").splitlines())


_TRACK_SHAPES = """
{i}record = recorder()
{i}if not record:
{i}    if record is not None:
{i}        return untracked(t, record)
{i}    record = begin()
{i}try:
{i}    slot = next(slots)
{i}except StopIteration:
{i}    slot = renew()
{i}t._node = slot
{i}if a.nbytes > BIG:
{i}    a = shape_token(a)
{i}if v.nbytes > BIG:
{i}    v = shape_token(v)
{i}record(({code}, slot, {n0}, None, a, None, v, {kw}))
{i}return t
"""


def _track(
    op: Primitive, by: int, *, n0: str, n1: str = "None", x: str = "a", y: str = "None", kw: str
) -> str:
    if not op.saves and op.arity == 1 and not op.variadic:
        return _indented(_TRACK_SHAPES.format(i="", code=op.code, n0=n0, kw=kw), by)
    # An elementwise result is as big as the biggest operand; a sum of a big array is small.
    operands = (
        ""
        if op.elementwise
        else "".join(f" or {v}.nbytes > BIG" for v in (x, y) if v in ("a", "b"))
    )
    return _indented(
        _TRACK.format(i="", code=op.code, n0=n0, n1=n1, x=x, y=y, kw=kw, operands=operands), by
    )


def _generate(op: Primitive, operator: str | None, defaults: dict[str, Any]) -> Callable[..., Any]:
    """The public function of an op as generated source, with the checks of its kind written out."""
    code = op.code
    namespace[f"op_{code}"] = op
    namespace[f"forward_{code}"] = op.forward
    kw = "None" if not op.settings else "(" + "".join(f"{n}, " for n in op.settings) + ")"
    settings = "".join(f", {n}={n}" for n in op.settings)
    signature = ""
    for setting in op.settings:
        default = defaults[setting]
        if default is inspect.Parameter.empty:
            signature += f", {setting}"
        else:
            namespace[f"default_{code}_{setting}"] = default
            signature += f", {setting}=default_{code}_{setting}"
    reworded = ""
    if "axis" in op.settings and (op.variadic or op.arity == 1):
        given = "{" + ", ".join(f"'{n}': {n}" for n in op.settings) + "}"
        reworded = _REWORDED.format(code=code, operand="xs" if op.variadic else "x", given=given)
        signature += ", **others"
    if op.variadic:
        text = _of_several(op, kw, settings, signature, reworded)
    elif op.arity == 1:
        value = f"forward_{code}(a{settings})"
        if operator:
            value = f"{operator}a" if op.elementwise else operator
        text = _UNARY.format(
            name=op.name, signature=signature, code=code, kw=kw, computed=_computed(op, value, kw), reworded=reworded,
            track=_track(op, 4, n0="node", kw=kw),
            # asked of __class__, since what is traced shares memory as well
            link=f"if v.__class__ is ndarray:\n        link(t, x, {code}, {kw})\n    " if op.view else "",
        )  # fmt: skip
    else:
        value = f"{{}} {operator} {{}}" if operator else f"forward_{code}({{}}, {{}}{settings})"
        left = _LEFT.format(
            value_left=value.format("x", "b"), keep_left=_keep(op, 1, "x"),
            track_left=_track(op, 4, n0="None", n1="n1", x="x", y="b", kw=kw),
        )  # fmt: skip
        text = _binary(op, op.name, value, f"apply(op_{code}, (x, y), {kw})", signature, kw, left)
    return _compile(op, op.name, text)


def _of_several(op: Primitive, kw: str, settings: str, signature: str, reworded: str) -> str:
    """Text of a function of three operands, or of a sequence of them."""
    code = op.code
    if op.elementwise:
        names = (("x", "a", "n0"), ("y", "b", "n1"), ("z", "c", "n2"))
        each = {
            f"each_{x}": _indented(_EACH.format(x=x, a=a, n=n, code=code), 4) for x, a, n in names
        }
        keep = [
            f"{a} = kept({a}) if kind_{x} is ndarray else {a}"
            for x, a, _ in names
            if any(x in needs for needs in op.needs)
        ]
        track = _track(op, 4, n0="(n0, n1, n2)", x="(a, b, c)", kw="None")
        return _TERNARY.format(
            name=op.name, code=code, keep="\n    ".join(keep) or "pass", track=track, **each
        )
    if op.saves:
        return _VARIADIC.format(
            name=op.name,
            signature="xs" + signature,
            code=code,
            kw=kw,
            operands="xs",
            reworded=reworded,
        )
    track = _track(op, 4, n0="nodes", x="raw", kw=kw)
    return _SEQUENCE.format(
        name=op.name, signature=signature, code=code, kw=kw, track=track,
        computed=_computed(op, f"forward_{code}(raw{settings})", kw), reworded=reworded,
    )  # fmt: skip


def _computed(op: Primitive, value: str, kw: str) -> str:
    """Text that computes the value of an op, and of one with settings says which setting it could not read."""
    if not op.settings:
        return f"v = {value}"
    return _indented(_COMPUTED.format(value=value, code=op.code, kw=kw), 4)


def _binary(
    op: Primitive,
    name: str,
    value: str,
    otherwise: str,
    signature: str = "",
    kw: str = "None",
    left: str = "",
) -> str:
    """Text of a function of two operands, of which the first is a Tensor (or, with `left`, the second)."""
    return _BINARY.format(
        name=name, signature=signature, value=value.format("a", "b"), value_right=value.format("a", "y"),
        otherwise=otherwise, left=_indented(left, 4), keep_right=_keep(op, 0, "y"),
        track=_track(op, 12, n0="n0", n1="n1", y="b", kw=kw),
        track_right=_track(op, 12, n0="n0", y="y", kw=kw),
    )  # fmt: skip


def _keep(op: Primitive, operand: int, name: str) -> str:
    """A user's array that the rule of the other operand needs must not change under the tape."""
    return (
        f"{name} = kept({name}) if type({name}) is ndarray else {name}"
        if name in op.needs[operand]
        else "pass"
    )


def _operators(op: Primitive, dunder: str, operator: str | None) -> None:
    """The special methods of an operator: `__add__` and `__radd__`, say, or `__neg__`."""
    if op.arity == 1:
        setattr(Tensor, f"__{dunder}__", op.function)
        return
    code = op.code
    value = f"{{}} {operator} {{}}" if operator else f"forward_{code}({{}}, {{}})"
    text = _binary(op, f"__{dunder}__", value, f"operate(op_{code}, x, y)")
    setattr(Tensor, f"__{dunder}__", _compile(op, f"__{dunder}__", text))
    text = _REFLECTED.format(
        name=f"__r{dunder}__", value=value.format("x", "b"), otherwise=f"operate(op_{code}, x, y)",
        track=_track(op, 8, n0="None", n1="n1", x="x", y="b", kw="None"),
    )  # fmt: skip
    setattr(Tensor, f"__r{dunder}__", _compile(op, f"__r{dunder}__", text))
    # The generated one does not ask what its tensor is; a dual one takes the slow path, which does.
    setattr(DualTensor, f"__r{dunder}__", lambda y, x: operate(op, x, y))


def _compile(op: Primitive, name: str, text: str) -> Any:
    """Compile generated text under a name that tracebacks and `inspect.getsource` resolve."""
    file = f"<tapegrad op {op.name}.{name}>" if name != op.name else f"<tapegrad op {name}>"
    if file in linecache.cache:  # a user's op of this name
        file = file.replace(">", f" {op.code}>")
    text = text.lstrip("\n")
    linecache.cache[file] = (len(text), None, text.splitlines(True), file)
    scope: dict[str, Any] = {}
    exec(compile(text, file, "exec"), namespace, scope)
    function = scope[name]
    function.__module__ = "tapegrad"
    function.__qualname__ = name
    function.__doc__ = _docstring(op)
    function.source = text
    return function


def _docstring(op: Primitive) -> str:
    first = op.doc[0] if op.doc else op.name
    if first.startswith(
        f"{op.name}("
    ):  # a ufunc's docstring opens with its signature, SciPy's with two
        lines = (line.strip() for line in op.doc[1:])
        first = next(
            (line for line in lines if line and not line.startswith(f"{op.name}(")), op.name
        )
    scipys = isinstance(op.of, np.ufunc) and getattr(np, op.of.__name__, None) is not op.of
    library = "SciPy" if scipys else "NumPy"
    told = f"{op.name} of tensors and arrays, as {library}'s function of that name; recorded when an operand is tracked."
    example = _example(op, "tg.special" if scipys else "tg") if op.elementwise else _shown(op)
    return f"{first.strip()}\n\n{told}\n{example}"


POINTS = {
    "above_one": 1.5, "freedom": 1.5, "exponent": 1.5, "divisor": 1.25, "log_share": -0.5, "apart_1": 0.75, "apart_2": 1.0
}  # fmt: skip
"""A point of each domain that does not hold 0.5."""


def _shown(op: Primitive) -> str:
    """The run that the rule's docstring shows."""
    doc = inspect.cleandoc("\n".join(["", *op.doc[1:]])).splitlines()
    starts = [
        k for k, line in enumerate(doc) if line.startswith(">>> import") and "tapegrad" in line
    ]
    return "\n" + "\n".join(doc[starts[0] :]) + "\n" if starts else ""


def _example(op: Primitive, module: str) -> str:
    """A run that follows from the declaration: the slopes by the first operand, at points of the domains."""
    if isinstance(op.of, np.ufunc) and not any(form.endswith("->d") for form in op.of.types):
        return ""  # of complex results no slope is one number
    points = [POINTS.get(domain.name, 0.5) for domain in op.domains]
    operands = ", ".join(f"np.array([{p}, {p + 0.125}])" for p in points)
    return (
        "\n>>> import numpy as np, tapegrad as tg\n"
        f">>> tg.elementwise_grad({module}.{op.of.__name__})({operands}).shape\n(2,)\n"
    )


# ------------------------------------------------------------------------------------------- several outputs


def several(
    of: Any,
    shapes: Callable[..., Sequence[tuple[int, ...]]],
    *,
    forward: Callable[..., Sequence[Any]] | None = None,
    result: Callable[..., Any] | None = None,
    real: Sequence[int] = (),
    **declared: Any,
) -> Callable[[Callable[..., Any]], Any]:
    """Declare an op with several outputs, such as eigh; decorates its VJP.

    The op itself returns all its outputs packed into one flat array, so that the tape, both modes and the kernels need to know
    nothing of tuples; its public function unpacks them by views. The rule gets `g` and `out` as tuples, one element per output
    (zeros for an output that was not used). `shapes(x_shape, **settings)` gives the outputs' shapes; `real` numbers
    the outputs that are real even if the packed array is complex; `result` makes NumPy's named tuple.
    """
    run = forward or of

    def declare(rule: Callable[..., Any]) -> Any:
        """Declare a function with several results as an op whose one result holds all of them in a row."""
        names = _positional(rule)
        keywords = [
            p
            for p in inspect.signature(rule).parameters.values()
            if p.kind is inspect.Parameter.KEYWORD_ONLY
        ]
        defaults = {p.name: p.default for p in keywords}
        name = declared.get("name") or of.__name__

        def packed(x: Any, **kw: Any) -> np.ndarray:
            return np.concatenate([np.ravel(part) for part in run(x, **kw)])

        packed.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
            [inspect.Parameter("x", inspect.Parameter.POSITIONAL_ONLY), *keywords]
        )
        packed.__module__ = getattr(run, "__module__", "numpy")  # whose code it runs
        packed.shapes = shapes  # type: ignore[attr-defined]
        asks = (*names, "x_shape") if "x_shape" not in names else names

        def packed_rule(*asked: Any, **kw: Any) -> Any:
            given = dict(zip(asks, asked, strict=True))
            for packed_name in ("g", "out"):
                if packed_name in given:
                    given[packed_name] = unpacked(
                        given[packed_name], shapes(given["x_shape"], **kw), real
                    )
            return rule(*(given[n] for n in names), **kw)

        packed_rule.__name__ = rule.__name__
        packed_rule.__doc__ = rule.__doc__
        packed_rule.asks = asks  # type: ignore[attr-defined]
        packed_rule.__signature__ = inspect.signature(rule)  # type: ignore[attr-defined]
        op_function = primitive(packed, forward=packed, **{**declared, "name": name})(packed_rule)

        def public(x: Any, *args: Any, **kw: Any) -> Any:
            flat = op_function(x, *args, **kw)
            filled = defaults | dict(zip(defaults, args, strict=False)) | kw
            outputs = unpacked(flat, shapes(np.shape(x), **filled), real)
            return result(*outputs) if result else outputs

        public.__name__ = public.__qualname__ = name
        public.__doc__ = packed_rule.__doc__
        public.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
            [
                inspect.Parameter("x", inspect.Parameter.POSITIONAL_OR_KEYWORD),
                *(p.replace(kind=inspect.Parameter.POSITIONAL_OR_KEYWORD) for p in keywords),
            ]
        )
        public.primitive = op_function.primitive  # type: ignore[attr-defined]
        FUNCTIONS[of] = IN_PARTS[of] = public
        return public

    return declare


IN_PARTS: dict[Any, Callable[..., Any]] = {}
"""Function of several outputs -> the same, as an op that holds them in one array."""


def unpacked(
    flat: Any, shapes: Sequence[tuple[int, ...]], real: Sequence[int] = ()
) -> tuple[Any, ...]:
    """The outputs held in one flat array, each in its shape, as views."""
    outputs = []
    start = 0
    for i, shape in enumerate(shapes):
        stop = start + math.prod(shape)
        part = flat[start:stop] if shape else flat[start]
        if len(shape) > 1:
            part = np.reshape(part, shape)
        outputs.append(np.real(part) if i in real and part.dtype.kind == "c" else part)
        start = stop
    return tuple(outputs)


# ------------------------------------------------------------------------------------------------ slow paths


def apply(op: Primitive, operands: Sequence[Any], kw: tuple[Any, ...] | None = None) -> Any:
    """Evaluate and record an op on any mix of Tensors, arrays and numbers; plain values give plain values."""
    raw: list[Any] = []
    nodes: list[Any] = []
    tensors = duals = inferences = False
    text: Any = None  # the dtype of an array of something else than numbers
    for operand in operands:
        if isinstance(operand, Tensor):
            tensors = True
            duals = duals or type(operand) is DualTensor
            inferences = inferences or type(operand) is InferenceTensor
            raw.append(operand._value)
            nodes.append(operand._node)
        else:
            if isinstance(operand, _SEQUENCES):
                joined = _joined(operands)
                if joined is not None:
                    return apply(op, joined, kw)
            elif not isinstance(operand, _PLAIN) and _knows_ufuncs(op, operand):
                return _by_its_hook(op, operand, operands)
            value = as_given(operand, op.name)
            if type(value) is np.ndarray:
                text = value.dtype if value.dtype.kind in "USV" else text
            elif op.arity == 1 and not (op.elementwise or op.variadic) and type(value) in _NUMBERS:
                value = np.asarray(value)  # what it is computed by asks for its shape
            raw.append(value)
            nodes.append(None)
    if tensors and text is not None:
        raise TypeError(
            f"{op.name} was given {text} beside a tensor, but tensors are computed with numbers and booleans: pass those."
        )
    try:
        out = op.evaluate(raw, kw)
    except (TypeError, IndexError) as error:
        raise misread(op, kw, error)  # noqa: B904  it has its cause
    if not tensors:
        return out
    if type(out) not in _ARRAYS:
        out = as_array(out)
    if op.saves:
        for i, name in enumerate(
            NAMES[: op.arity] if op.elementwise or not op.variadic else ("xs",) * len(raw)
        ):
            # A user's array that a rule needs must not change under the tape.
            if (
                type(raw[i]) is np.ndarray
                and not isinstance(operands[i], Tensor)
                and any(name in needs for needs in op.needs)
            ):
                raw[i] = kept(raw[i])
    t = track(op, nodes, raw, out, kw)
    if op.view and out.__class__ is np.ndarray:
        link(t, operands[0], op.code, kw)
    if duals:
        carry(op, operands, raw, out, kw, t)
    if inferences:
        if t._node is None:
            untracked(t, RECORDER.get())
        elif op.saves:
            raise RuntimeError(
                "Inference tensors cannot be saved for backward: they were made under inference_mode, which "
                f"promised that no gradient would need them, but {op.name} does. To work around you can make "
                "a clone to get a normal tensor and use it in autograd."
            )
    return t


def _joined(operands: Sequence[Any]) -> Sequence[Any] | None:
    """The operands with sequences that hold tensors as one tensor each; None if there are none."""
    sequences = [isinstance(o, _SEQUENCES) and seams.holds_tensor(o) for o in operands]
    if not any(sequences):
        return None
    return [
        seams.gathered(o) if nested else o for o, nested in zip(operands, sequences, strict=True)
    ]


_PLAIN = (np.ndarray, np.generic, int, float, complex)
_NUMBERS = (int, float, complex, bool)
_SEQUENCES = (list, tuple)
_ARRAYS = (
    np.ndarray, np.float64, np.float32, np.complex128, np.complex64, np.bool_,
    np.int8, np.int16, np.int32, np.int64, np.uint8, np.uint16, np.uint32, np.uint64,
)  # fmt: skip
"""The types of values that tensors hold as they are. A number of NumPy's is no array of no axes: a list is repeated by one of them."""


def constant(value: Any, asker: str = "an op") -> Any:
    """An operand that is no Tensor, as an array; nested Tensors and objects are refused with the remedy."""
    if isinstance(value, np.matrix | np.ma.MaskedArray):
        raise TypeError(
            f"{asker} was given a {type(value).__name__}, whose operators mean something else than an array's (products of "
            "matrices, hidden entries), which the rules do not know. Pass np.asarray(matrix), or array.filled(0.0)."
        )
    array = np.asarray(value)
    if array.dtype.hasobject:
        raise TypeError(
            f"{asker} was given {type(value).__name__!r}, which NumPy can only hold as an array of objects. "
            "Pass a tensor, an array or a number; join tensors with tg.stack or tg.concatenate."
        )
    return array


def _knows_ufuncs(op: Primitive, operand: Any) -> bool:
    """Whether ufuncs are the operand's business: xarray's objects keep labels, numbers traced for vector code leave instructions."""
    kind = type(operand)
    return isinstance(op.of, np.ufunc) and (
        kind.__module__.partition(".")[0] == "xarray" or hasattr(kind, "leaves_instructions")
    )


def _by_its_hook(op: Primitive, operand: Any, operands: Sequence[Any]) -> Any:
    """Not by NumPy, which would ask a tensor to the left of the operand first, and that led here."""
    hook = getattr(operand, "__array_ufunc__", None)
    result = NotImplemented if hook is None else hook(op.of, "__call__", *operands)
    if result is NotImplemented:
        kinds = ", ".join(type(x).__name__ for x in operands)
        raise TypeError(
            f"{op.name} was asked of {kinds}, which xarray does not join: pass the values alone (array.data)."
        )
    return result


def as_given(operand: Any, asker: str) -> Any:
    """An operand that is no Tensor: arrays and numbers as they are, for a number of Python's takes the dtype of what it meets."""
    strange = isinstance(operand, np.ndarray) and (
        (type(operand) is not np.ndarray and not isinstance(operand, StandIn))
        or operand.dtype.hasobject
    )
    return operand if isinstance(operand, _PLAIN) and not strange else constant(operand, asker)


def in_other_words(op: Primitive, operand: Any, given: Any, others: Any) -> Any:
    """A call with settings that the op has not: PyTorch's names for those it has, or NumPy's for which there is an extended form."""
    parameters = inspect.signature(op.function).parameters
    set_already = {k: v for k, v in given.items() if v is not parameters[k].default}
    settings = set_already | synonyms.numpys(op.name, others | set_already)
    extended: Any = FUNCTIONS.get(op.of, op.function)
    unknown = settings.keys() - given.keys()
    if unknown and extended is op.function:
        raise TypeError(f"{op.name}() got an unexpected keyword argument {min(unknown)!r}")
    return extended(operand, **settings)


_KINDS: tuple[tuple[Any, str], ...] = (
    (type(None), "None"),
    ((bool, np.bool_), "True or False"),
    ((int, np.integer), "a whole number"),
    ((float, np.floating), "a number"),
    ((str, bytes), "a word"),
    ((tuple, list), "a tuple"),
    (np.ndarray, "an array"),
)
"""What settings are, and how they are told."""


def _kind(value: Any) -> str:
    """What a setting is; "" for what is none of `_KINDS`."""
    if isinstance(value, Tensor):
        value = np.asarray(value._value)
    return next((told for kind, told in _KINDS if isinstance(value, kind)), "")


def misread(op: Primitive, kw: tuple[Any, ...] | None, error: Exception) -> Exception:
    """The error to raise for one that an op raised: it names the setting that is wrong.

    That is one of a kind that no sample of the op has, or an axis that a shape has not: NumPy's transforms say "tuple index out of range".
    """
    if isinstance(error, TapegradError):
        return error
    parameters = inspect.signature(op.function).parameters
    if (
        isinstance(error, IndexError)
        and str(error) == "tuple index out of range"
        and "axis" in op.settings
    ):
        axis = dict(zip(op.settings, kw or (), strict=True))["axis"]
        if isinstance(axis, int):
            made: Exception = IndexError(
                f"{op.name} was given axis={axis}, but its operand has fewer axes: name one that it has."
            )
            made.__cause__ = error
            return made
    for name, value in zip(op.settings, kw or (), strict=True):
        known = [s.settings[name] for s in op.samples if name in s.settings]
        known += [p.default for p in [parameters[name]] if p.default is not p.empty]
        kinds = {_kind(x): None for x in known}
        inside = {_kind(y) for x in known if isinstance(x, tuple | list) for y in x}
        wrong = _kind(value) not in kinds
        if isinstance(value, tuple | list) and inside:
            wrong = wrong or not inside.issuperset(map(_kind, value))
        if wrong and "" not in {*kinds, _kind(value), *inside} and kinds:
            of = " or ".join(sorted(inside - {""})).replace("a whole number", "whole numbers")
            told = [f"a tuple of {of}" if kind == "a tuple" and of else kind for kind in kinds]
            made = TypeError(
                f"{op.name} was given {name.rstrip('_')}={value!r}, but that is {' or '.join(told)}: write one."
            )
            made.__cause__ = error
            return made
    return error


def operate(op: Primitive, x: Any, y: Any) -> Any:
    """A binary operator on operands other than (Tensor, Tensor) and (Tensor, float)."""
    for operand in (x, y):
        if not isinstance(operand, (Tensor, *_PLAIN, list, tuple)):
            module = type(operand).__module__
            if module.startswith("scipy.sparse."):
                return seams.met_sparse(op.name, x, y)
            if module.partition(".")[0] != "pandas":
                if library_of(operand) and library_of(operand) not in UNITS:
                    raise TypeError(f"{op.name} was given a tensor and {foreign(operand)}.")
                return NotImplemented
            # A Series is data: it counts by its values, as it would inside np.multiply.
            x, y = (np.asarray(v) if v is operand else v for v in (x, y))
    if op.dunder == "mul" and (_repeats(x, y) or _repeats(y, x)):
        return NotImplemented
    # An int constant of a float program is kept as a float: that is how NumPy uses it.
    if type(y) is int and x._value.dtype.kind in "fc":
        y = float(y)
    elif type(x) is int and y._value.dtype.kind in "fc":
        x = float(x)
    return apply(op, (x, y))


def _repeats(sequence: Any, count: Any) -> bool:
    """Whether a product is Python's: a list or tuple so many times, as by a whole number of NumPy's (which an array of no axes is not)."""
    if not isinstance(sequence, list | tuple) or not isinstance(count, Tensor):
        return False
    value = count._value
    return value.dtype.kind in "iu" and (
        value.number() if isinstance(value, StandIn) else isinstance(value, np.generic)
    )


def track(op: Primitive, nodes: Sequence[Any], raw: Sequence[Any], out: Any, kw: Any) -> Tensor:
    """The result `out` as a Tensor, with an entry on the current tape if it depends on something tracked."""
    t = next(blank)
    t._value = out
    t._node = None
    if all(node is None for node in nodes):
        return t
    record = RECORDER.get()
    if not record:
        if record is not None:
            return untracked(t, record)
        record = begin()
    if out.dtype.kind not in "fc":
        return t
    if op.variadic:
        slot = new_slot()
        in0: Any = tuple(nodes)
        in1 = y = None
        x: Any = tuple(raw)
    else:
        in0, in1 = nodes if len(nodes) == 2 else (nodes[0], None)
        x, y = raw if len(raw) == 2 else (raw[0], None)
    if out.nbytes > BIG or any(getattr(value, "nbytes", 0) > BIG for value in raw):
        return track_big(t, record, op.code, in0, in1, x, y, out, kw)
    slot = new_slot()
    t._node = slot
    record((op.code, slot, in0, in1, x, y, out, kw))
    return t


def untracked(t: Tensor, mode: Any) -> Tensor:
    """A result made while nothing is recorded."""
    t._node = None
    if mode is INFERENCE:
        t.__class__ = InferenceTensor
    return t


def track_big(
    t: Tensor, record: Any, code: int, in0: Any, in1: Any, x: Any, y: Any, out: Any, kw: Any
) -> Tensor:
    """Record an op on big arrays: keep a value only if a rule of a tracked operand asks for it."""
    op = OPS[code]
    if op.met is not None:
        op.met += out.size
        if op.met > MANY:
            quicken(op, out.dtype.char)
    whole = (x, y, out)
    if op.variadic:
        needs: set[str] = set()
        names = NAMES if op.elementwise else ("xs",) * len(in0)
        for i, node in enumerate(in0):
            if node is not None:
                needs |= op.needs[i if op.elementwise else 0]
        x = tuple(
            value if name in needs else shape_token(value)
            for name, value in zip(names, x, strict=False)
        )
        saved: tuple[Any, ...] = x
    else:
        needs = set()
        if in0 is not None:
            needs |= op.needs[0]
        if in1 is not None:
            needs |= op.needs[1]
        if "x" not in needs:
            x = shape_token(x)
        if y is not None and "y" not in needs:
            y = shape_token(y)
        saved = (x, y)
    size = sum(value.nbytes for value in saved if type(value) is np.ndarray and any(value.strides))
    if "out" not in needs:
        out = shape_token(out)
    elif not isinstance(out, StandIn):
        size += out.nbytes
    tapes.current().weigh(size)
    slot = new_slot()
    t._node = slot
    entry = (code, slot, in0, in1, x, y, out, kw)
    if type(record) is Attended:
        record.append(entry, (code, slot, in0, in1, *whole, kw))
    else:
        record(entry)
    return t


MANY = 2_000_000
"""Elements in large arrays that an op meets before vector loops are loaded for it: some 10 ms of NumPy's time."""


def quicken(op: Primitive, letter: str) -> None:
    """Let vecmath's loop take over an op's large arrays of a type, once it is loaded in the background.

    When the op has met many elements (`track_big`), or when replay first needs its kernel for an array of some size.
    """
    if op.met is None:
        return
    op.met = 0

    def done(quicker: np.ufunc) -> None:
        op.forward = namespace[f"forward_{op.code}"] = op.around(quicker) if op.around else quicker
        op.evaluate = _evaluator(op)

    seams.quick_loops().request(op.of, letter, done)


def shape_token(value: Any) -> Any:
    """An array of the same shape and dtype without memory; small values stand for themselves."""
    if type(value) is not np.ndarray or value.nbytes <= BIG:
        return value
    return _token(value.shape, value.dtype)


def shape_of(value: Any) -> Any:
    """A shape token for an array of any size; numbers stand for themselves."""
    return _token(value.shape, value.dtype) if type(value) is np.ndarray else value


@lru_cache(256)
def _token(shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    return np.broadcast_to(np.zeros((), dtype), shape)


def entry_name(entry: Sequence[Any]) -> str:
    """PyTorch's name for the backward of an entry, such as "MulBackward0"."""
    if entry[OP] == FREED:
        return entry[X]
    name = OPS[entry[OP]].backward_name
    return f"{name}Backward0" if isinstance(name, str) else name(entry[X], entry[Y], entry[KW])


def refuse(of: Any, reason: str) -> None:
    """Register that NumPy's function has no derivative here, and why: using it on a tracked tensor raises."""
    REFUSED[of] = reason


REFUSED: dict[Any, str] = {}
CONSTANTS: set[Any] = set()
"""NumPy functions whose result carries no derivative (comparisons, argmax, counts): plain evaluation."""


def missing(function: Any, operand: str) -> NotDifferentiable:
    """The error for a function that has no rule here."""
    name = getattr(function, "__name__", str(function))
    module = getattr(function, "__module__", None) or "numpy"
    if isinstance(function, np.ufunc) and getattr(np, name, None) is not function:
        module = "scipy.special" if name in vars(sys.modules.get("scipy.special", np)) else ""
    if not module or type(function).__module__.startswith("numba."):
        return NotDifferentiable(
            f"{name} was called on a tracked tensor ({operand}), but it is a compiled ufunc (as numba.vectorize, guvectorize and "
            "np.frompyfunc make them), whose source is not at hand. Leave the decorator out and call the Python function on the tensor; "
            "if that has branches, loop over the entries in a function of tg.njit. Or use t.detach() where no gradient is wanted."
        )
    reason = REFUSED.get(function, "no derivative rule is declared for it")
    return NotDifferentiable(
        f"{module}.{name} was called on a tracked tensor ({operand}), but {reason}. Write it with functions that have "
        "a rule (see tapegrad.ops), declare one (tapegrad.ops says how), or use t.detach() where no "
        "gradient is wanted."
    )


freed = Primitive()
"""Stands at code 0."""
freed.code = 0
freed.name = "freed"
freed.backward_name = "Freed"
OPS.append(freed)

namespace.update(
    np=np,
    ndarray=np.ndarray,
    ARRAYS=_ARRAYS,
    as_array=as_array,
    kept=kept,
    link=link,
    shape_token=shape_token,
    Tensor=Tensor,
    blank=blank,
    recorder=RECORDER.get,
    begin=begin,
    renew=renew,
    BIG=BIG,
    apply=apply,
    in_other_words=in_other_words,
    misread=misread,
    operate=operate,
    untracked=untracked,
    track_big=track_big,
)
