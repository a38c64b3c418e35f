"""Elementwise ops: NumPy's ufuncs, each with its partial derivatives.

A partial is a number, or a function of exactly what it needs (x, y: operands; out: result). Where an op has a kink
the rule states the subgradient: ties of maximum and minimum share the gradient, half each; abs and sign-like
ops have derivative 0 at 0; clip passes the gradient at its bounds. These are PyTorch's choices.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ..core.domain import (
    above_one,
    apart,
    dividend,
    divisor,
    nonzero,
    not_integer,
    positive,
    real,
    truth,
    unit,
)
from ..core.primitive import (
    FUNCTIONS,
    UFUNCS,
    call,
    compiled_as,
    elementwise,
    primitive,
    refined,
    select,
    strong,
)
from ..core.storage import as_array, never
from ..core.tape import FEW
from ..core.tensor import Tensor, value_of, wrap
from .composing import holds_tensor

LN2 = float(np.log(2.0))
LN10 = float(np.log(10.0))
DEGREE = float(np.pi / 180)


def _subtract_name(x: object, y: object, kw: object) -> str:
    return "RsubBackward1" if type(x) is float else "SubBackward0"


def _power_name(x: object, y: object, kw: object) -> str:
    return f"PowBackward{0 if type(y) is float else 2 if type(x) is float else 1}"


def _share(x: Any, y: Any, power: Callable[..., Any] = np.exp) -> Any:
    """The share of e**x in e**x + e**y (compiler/arrays.py knows it by these words): its operand is the difference alone.

    `exp(x - logaddexp(x, y))` would lose a digit for each power of ten of the operands. The exponential is that of a
    number below zero, so nothing overflows; both branches have the same derivatives at a tie, of every order.
    """
    d = x - y
    e = power(select(d >= 0, -d, d))
    return select(d >= 0, 1.0, e) / (1.0 + e)


@refined(lambda x: 1 / (1 + x * x))
def _bell(x: Any) -> Any:
    """The slope of arctan, whose own slope underflows far out if the square of x is in it: of 1 / x there."""
    far = np.abs(x) > 1
    r = 1 / select(far, x, 1.0)
    near = select(far, 0.0, x)
    return select(far, r * r / (1 + r * r), 1 / (1 + near * near))


def _root_of_one_and_square(x: Any) -> Any:
    """sqrt(1 + x²), without a square that overflows."""
    far = np.abs(x) > 1e8
    near = select(far, 1.0, x)
    return select(far, select(np.real(x) < 0, -x, x), np.sqrt(1 + near * near))


@compiled_as(
    lambda x, y, out: select(
        (out == np.inf) & (np.abs(y) < np.inf), np.nan, x / select(out == 0, 1.0, out)
    )
)
def _quotient_leg(x: Any, y: Any, out: Any) -> Any:
    """x / out, and NaN where `out` has overflowed."""
    leg = x / select(out == 0, 1.0, out)
    beyond = out == np.inf
    return leg if never(beyond) else select(beyond & (np.abs(y) < np.inf), np.nan, leg)


@refined(_quotient_leg)
def _leg(x: Any, y: Any, out: Any) -> Any:
    """x / hypot(x, y) by the quotient of the smaller operand and the larger: the slope of x / out cancels where y is small."""
    large = np.abs(x) > np.abs(y)
    d = select(large, x, y)
    d = select(d == 0, 1.0, d)
    r = select(large, y, x) / d
    leg = select(large, np.sign(x), r * np.sign(d)) / np.sqrt(1 + r * r)
    return select(np.abs(d) == np.inf, x / out, leg)


def _turn(x: Any, y: Any) -> Any:
    """y / (x² + y²) by the quotient of the smaller operand and the larger: no square overflows, or underflows; 0 at the origin."""
    large = np.abs(1.0 * x) > np.abs(1.0 * y)
    d = select(large, x, y)
    r = select(large, y, x) / select(d == 0, 1.0, d)
    return select(large, r, select(d == 0, 0.0, 1.0)) / (select(d == 0, 1.0, d) * (1 + r * r))


def _turns(x: Any, y: Any, out: Any) -> Any:
    """How many times y goes into x, where `out` is left: x / y itself may round up to the next whole number (1 / 0.1 is 10.0, and 0.1 is left)."""
    return np.floor(x / y - select(out == y, 1.0, out / y) + 0.5)


_PYTHONS = frozenset((bool, int, float, complex))


def _by_products(power: Callable[..., Any]) -> Callable[..., Any]:
    """x ** y of large arrays: cubes and fourth powers as products, which take a twentieth of the time and err as little.

    Two numbers of Python's are NumPy's: Python's own power of them may be complex, an integer of any length, or an error.
    """

    def raised(x: Any, y: Any) -> Any:
        if type(x) is np.ndarray and x.dtype.char in "fd" and x.size > FEW:
            if type(y) is int or type(y) is float:
                if y == 3 or y == 4:
                    square = x * x
                    return square * (x if y == 3 else square)
                if y in (-1, 0, 0.5, 1, 2):  # NumPy has ways of its own
                    return x**y
            return power(x, y)
        return power(x, y) if type(x) in _PYTHONS and type(y) in _PYTHONS else x**y

    return raised


@compiled_as(lambda out: 1.0 + 0.0 * out)
def _one(out: Any) -> Any:
    """1, complex where `out` is: beside it a negative real base has the logarithm that its complex powers have."""
    dtype = getattr(out, "dtype", None)
    return 1.0 + 0.0j if dtype is not None and dtype.kind == "c" else 1.0


@compiled_as(lambda p, y: select(y != 0, p, select(np.abs(p) < np.inf, p, 0.0)))
def _bounded(p: Any, y: Any) -> Any:
    """p = x ** (y - 1), but 0 where y is 0 and p no number: y p is 0 there, and so are its slopes; elsewhere those stay."""
    zero = y == 0
    return p if zero is False else select(zero & ~np.isfinite(p), 0.0, p)


# The slopes of x ** y: by x it is 0 where y = 0 (the value is 1 for every x), by y it is 0 where x = 0 and y >= 0. Both have the
# slope x ** (y - 1) (1 + y log x) by the other operand, which at x = 0 is -inf for 0 < y <= 1; plain formulas make 0 or NaN of it.


def _of_first_power(y: Any) -> Any:
    """1, whose slope at y = 1 is -inf."""
    return 1.0 - np.sqrt(select(y == 1, y - 1.0, 0.0))


@compiled_as(lambda y, p: y * p)
def _product(y: Any, p: Any) -> Any:
    """y p, whose slope where y = 0 is p alone, though the slope of p may have overflowed."""
    return strong_product(y, p) if isinstance(y, Tensor) or isinstance(p, Tensor) else y * p


def _meets_zero(*operands: Any) -> bool:
    """Whether an operand is 0 somewhere, or may be."""
    return not all(never(value_of(x) == 0) for x in operands)


def _meets_end(x: Any, *others: Any) -> bool:
    """Whether an operand is 0 somewhere, or the base infinite, or may be."""
    return _meets_zero(x, *others) or not never(value_of(x) == np.inf)


def power_log_at_infinity(x: Any, y: Any) -> Any:
    """x ** y log(x) at x = inf, where the logarithm counts for nothing beside the power: limits are the value and the slopes."""
    steep = select(np.real(y) >= 1, np.inf, 1.0)  # then the slope by x is infinite, else 0
    return x**y * steep + select(y == 0, np.inf, 0.0)


@refined(lambda x, y: x ** (y - 1.0), special=_meets_zero)
def power_below(x: Any, y: Any) -> Any:
    """x ** (y - 1)"""
    return select((x == 0) & (y == 1), _of_first_power(y), x ** (y - 1.0))


@refined(lambda x, y: y * _bounded(x ** (y - 1.0), y), special=_meets_zero)
def power_by_base(x: Any, y: Any) -> Any:
    """y x ** (y - 1)"""
    pole = (x == 0) & (np.real(y) > 0) & (np.real(y) < 1)
    p = _bounded(select((x == 0) & (y == 1), _of_first_power(y), x ** (y - 1.0)), y)
    infinite = 1.0 / select(pole, 0.0 + x, 1.0) / select(pole, y, 1.0)
    return select(pole, infinite, _product(y, p))


@refined(
    lambda x, y, out: (
        out
        * np.log(
            select(
                ((x == 0) & (np.real(y) >= 0)) | ((x == np.inf) & (np.real(y) < 0)), _one(out), x
            )
        )
    ),
    special=_meets_end,
)
def power_by_exponent(x: Any, y: Any, out: Any) -> Any:
    """x ** y log(x), 0 where the power is 0 and the logarithm infinite"""
    end = (x == 0) & (np.real(y) >= 0)
    cusp = end & (y != 0) & (np.real(y) <= 1)
    far = x == np.inf
    part = select(far, 0.0, out) * np.log(select(end | far, _one(out), x))
    beyond = power_log_at_infinity(select(far, x, 1.0), select(far, y, 1.0))
    return select(cusp, -np.sqrt(select(cusp, 0.0 + x, 0.0)), select(far, beyond, part))


def _clip_name(xs: tuple[object, ...], y: object, kw: object) -> str:
    return f"ClampBackward{int(all(type(bound) is float for bound in xs[1:]))}"


# fmt: off
# -------------------------------------------------------------------------------------------- arithmetic
add         = elementwise(np.add,        1, 1,                                 operator="+", dunder="add")
subtract    = elementwise(np.subtract,   1, -1,                                operator="-", dunder="sub", backward=_subtract_name)
multiply    = elementwise(np.multiply,   lambda y: y, lambda x: x,             operator="*", dunder="mul", backward="Mul")
divide      = elementwise(np.divide,     lambda y: 1 / y, lambda y, out: -out / y,
                          operator="/", dunder="truediv", backward="Div", domain=(real, nonzero))
negative    = elementwise(np.negative,   -1,                                   operator="-", dunder="neg", backward="Neg")
positive_   = elementwise(np.positive,   1,                                    operator="+", dunder="pos")
square      = elementwise(np.square,     lambda x: 2 * x, backward="Pow")
reciprocal  = elementwise(np.reciprocal, lambda out: -out * out,               domain=nonzero)
sqrt        = elementwise(np.sqrt,       lambda out: 0.5 / out,                domain=positive)
cbrt        = elementwise(np.cbrt,       lambda out: 1 / (3 * out * out),      domain=nonzero, holomorphic=False)

power       = elementwise(np.power,      lambda x, y: power_by_base(x, y), lambda x, y, out: power_by_exponent(x, y, out),
                          operator="**", dunder="pow", backward=_power_name, domain=(positive, real), around=_by_products)
float_power = elementwise(np.float_power, lambda x, y: power_by_base(x, y), lambda x, y, out: power_by_exponent(x, y, out),
                          domain=(positive, real), unsupported={"dtype": "it computes in float64, as its name says"})
remainder   = elementwise(np.remainder,  1, lambda x, y, out: -_turns(x, y, out),
                          operator="%", dunder="mod", domain=(dividend, divisor), holomorphic=False)
fmod        = elementwise(np.fmod,       1, lambda x, y, out: -_turns(x, y, out), domain=(dividend, divisor), holomorphic=False)
floor_divide = elementwise(np.floor_divide, 0, 0, operator="//", dunder="floordiv", domain=(dividend, divisor), holomorphic=False)

# ------------------------------------------------------------------------------- exponentials and logarithms
exp         = elementwise(np.exp,        lambda out: out)
exp2        = elementwise(np.exp2,       lambda out: out * LN2)
expm1       = elementwise(np.expm1,      lambda x: np.exp(x))
log         = elementwise(np.log,        lambda x: 1 / x,                      domain=positive)
log2        = elementwise(np.log2,       lambda x: 1 / (x * LN2),              domain=positive)
log10       = elementwise(np.log10,      lambda x: 1 / (x * LN10),             domain=positive)
log1p       = elementwise(np.log1p,      lambda x: 1 / (1 + x),                domain=positive, backward="Log1P")
# If x is infinite and y is not, the larger has the whole gradient. If both are the same infinity, the slope is undefined: NaN.
logaddexp   = elementwise(np.logaddexp,  lambda x, y: _share(x, y), lambda x, y: _share(y, x), holomorphic=False)
logaddexp2  = elementwise(np.logaddexp2, lambda x, y: _share(x, y, np.exp2), lambda x, y: _share(y, x, np.exp2), holomorphic=False)

# ------------------------------------------------------------------------------------------ trigonometry
sin         = elementwise(np.sin,        lambda x: np.cos(x))
cos         = elementwise(np.cos,        lambda x: -np.sin(x))
tan         = elementwise(np.tan,        lambda out: 1 + out * out)
arcsin      = elementwise(np.arcsin,     lambda x: 1 / np.sqrt(1 - x * x),     domain=unit, backward="Asin")
arccos      = elementwise(np.arccos,     lambda x: -1 / np.sqrt(1 - x * x),    domain=unit, backward="Acos")
arctan      = elementwise(np.arctan,     lambda x: _bell(x), backward="Atan")
sinh        = elementwise(np.sinh,       lambda x: np.cosh(x))
cosh        = elementwise(np.cosh,       lambda x: np.sinh(x))
tanh        = elementwise(np.tanh,       lambda out: 1 - out * out)
arcsinh     = elementwise(np.arcsinh,    lambda x: 1 / _root_of_one_and_square(x), backward="Asinh")
arccosh     = elementwise(np.arccosh,    lambda x: 1 / (np.sqrt(x - 1) * np.sqrt(x + 1)), domain=above_one, holomorphic=False, backward="Acosh")
arctanh     = elementwise(np.arctanh,    lambda x: 1 / (1 - x * x),            domain=unit, backward="Atanh")
# The angle of the origin is any, its distance has a kink: both have the subgradient 0 there.
arctan2     = elementwise(np.arctan2,    lambda x, y: _turn(x, y), lambda x, y: -1.0 * _turn(y, x), holomorphic=False, backward="Atan2")
hypot       = elementwise(np.hypot,      lambda x, y, out: _leg(x, y, out), lambda x, y, out: _leg(y, x, out), holomorphic=False)
deg2rad     = elementwise(np.deg2rad,    DEGREE,                               holomorphic=False, backward="Deg2Rad")
rad2deg     = elementwise(np.rad2deg,    1 / DEGREE,                           holomorphic=False, backward="Rad2Deg")
radians     = elementwise(np.radians,    DEGREE,                               holomorphic=False)
degrees     = elementwise(np.degrees,    1 / DEGREE,                           holomorphic=False)

# --------------------------------------------------------------------------------------- kinks and steps
# A NaN makes the result NaN, and neither operand the smaller one: both get the gradient.
maximum     = elementwise(np.maximum,    lambda x, y: select(x < y, 0.0, select(x == y, 0.5, 1.0)),
                                         lambda x, y: select(y < x, 0.0, select(x == y, 0.5, 1.0)),
                          domain=apart(2), holomorphic=False, chooses=True)
minimum     = elementwise(np.minimum,    lambda x, y: select(x > y, 0.0, select(x == y, 0.5, 1.0)),
                                         lambda x, y: select(y > x, 0.0, select(x == y, 0.5, 1.0)),
                          domain=apart(2), holomorphic=False, chooses=True)
# fmax and fmin ignore a NaN operand: the other one gets the whole gradient.
fmax        = elementwise(np.fmax,       lambda x, y: select((x > y) | (y != y), 1.0, select(x == y, 0.5, 0.0)),
                                         lambda x, y: select((y > x) | (x != x), 1.0, select(x == y, 0.5, 0.0)),
                          domain=apart(2), holomorphic=False, chooses=True)
fmin        = elementwise(np.fmin,       lambda x, y: select((x < y) | (y != y), 1.0, select(x == y, 0.5, 0.0)),
                                         lambda x, y: select((y < x) | (x != x), 1.0, select(x == y, 0.5, 0.0)),
                          domain=apart(2), holomorphic=False, chooses=True)
fabs        = elementwise(np.fabs,       lambda x: np.sign(x),                 holomorphic=False)
copysign    = elementwise(np.copysign,   lambda x, out: select(x == 0, 0.0, np.sign(x) * np.sign(out)), 0,
                          domain=(nonzero, nonzero), holomorphic=False)
floor       = elementwise(np.floor,      0,                                    domain=not_integer, holomorphic=False)
ceil        = elementwise(np.ceil,       0,                                    domain=not_integer, holomorphic=False)
trunc       = elementwise(np.trunc,      0,                                    domain=not_integer, holomorphic=False)
rint        = elementwise(np.rint,       0,                                    domain=not_integer, holomorphic=False, backward="Round")
heaviside   = elementwise(np.heaviside,  0, lambda x: select(x == 0, 1.0, 0.0), domain=(nonzero, nonzero), holomorphic=False)
nextafter   = elementwise(np.nextafter,  1, 0,                                 holomorphic=False)
where       = elementwise(np.where,      0, lambda x: select(x, 1.0, 0.0), lambda x: select(x, 0.0, 1.0),
                          domain=(truth, real, real), chooses=True)
# fmt: on


def _clipped(x: np.ndarray, lower: object, upper: object) -> np.ndarray:
    """Values limited to an interval, the upper bound winning."""
    return np.clip(x, lower, upper)


# Operands of clip that are None are no bounds: see `clip` below, which never passes None here. A NaN that is the result gets the
# gradient, as in maximum, so that NaN among the data shows in the gradient as it does in the value (PyTorch and JAX give 0).
_clip = elementwise(
    _clipped,
    lambda x, y, z: select((x < y) | (x > z), 0.0, 1.0),
    lambda x, y, z: select(((x < y) & (y <= z)) | (y != y), 1.0, 0.0),
    lambda x, y, z: select((x > z) | ((y > z) & (x == x)) | (z != z), 1.0, 0.0),
    name="clip",
    backward=_clip_name,
    domain=apart(3),
    holomorphic=False,
    chooses=True,
)


def _tracked(x):
    return isinstance(x, Tensor) and x._node is not None


def _exact(x):
    """Whether these are integers or truth values, by their dtype."""
    if isinstance(x, list | tuple):
        x = np.asarray(x) if not holds_tensor(x) else x[0]
    dtype = getattr(x, "dtype", None)
    return dtype.kind not in "fc" if isinstance(dtype, np.dtype) else isinstance(x, int)


def clip(x, a_min=None, a_max=None, *, min=None, max=None):
    """Limit the values to an interval; NumPy's clip. The gradient passes at the bounds, and is 0 outside.

    >>> import tapegrad as tg
    >>> tg.grad(lambda x: tg.clip(x, 0.0, 1.0).sum())(tg.tensor([-1.0, 0.5, 1.0]))
    tensor([0., 1., 1.])
    """
    lower = a_min if min is None else min
    upper = a_max if max is None else max
    if not any(map(_tracked, (x, lower, upper))) and _exact(x):
        # An infinite bound would make floats of integers.
        clipped = np.clip(value_of(x), value_of(lower), value_of(upper))
        return wrap(as_array(clipped)) if holds_tensor((x, lower, upper)) else clipped
    if lower is None:
        lower = -np.inf
    if upper is None:
        upper = np.inf
    return _clip(x, lower, upper)


FUNCTIONS[np.clip] = Tensor.clip = Tensor.clamp = clip


# The product that rules are multiplied by, where a walk is itself recorded: 0 wherever x is 0, in all its derivatives.
strong_product = elementwise(
    strong, lambda y: y, lambda x: x, name="strong_product", backward="Mul", chooses=(False, True)
)


# fmt: off
# ------------------------------------------------------------------------------------------- complex parts
#
# For a real-valued function of a complex x the partial p is the one with dL = Re(p dx): a VJP multiplies by conj(p), a JVP
# takes the real part, and for real x both are the usual derivative. At 0 abs and angle have the subgradient 0.
absolute    = elementwise(np.absolute,   lambda x: np.conj(np.sign(x)), name="abs", dunder="abs", domain=nonzero, holomorphic=False)
real_part   = elementwise(np.real,       1,                             name="real",              holomorphic=False, view=True)
imag_part   = elementwise(np.imag,       -1j,                           name="imag",              holomorphic=False, view=True)
angle       = elementwise(np.angle,      lambda x: select(x == 0, 0.0, -1j / select(x == 0, 1.0, x)),
                          domain=nonzero, holomorphic=False)
sign_of_real = elementwise(np.sign,      0,                             name="sign", domain=nonzero, holomorphic=False,
                          unsupported={"complex": "x / |x| has a derivative: `sign` below writes it so"})
# fmt: on


def real_of(x):
    """Real part; x itself if it is real.

    >>> import tapegrad as tg
    >>> tg.real(tg.tensor([1 + 2j]))
    tensor([1.])
    """
    return x if isinstance(x, Tensor) and x.dtype.kind != "c" else real_part(x)


FUNCTIONS[np.real] = real_of


def _store_real(t: Tensor, value: Any) -> None:
    real_of(t)[...] = value


def _store_imag(t: Tensor, value: Any) -> None:
    if t.dtype.kind != "c":
        raise TypeError(
            f"a tensor of dtype {t.dtype} does not have imaginary part to set: make it complex."
        )
    imag_part(t)[...] = value


Tensor.real = property(real_of, _store_real, doc="Real part; the tensor itself if it is real.")
Tensor.imag = property(imag_part, _store_imag, doc="Imaginary part; zeros if the tensor is real.")


@primitive(
    np.conjugate,
    name="conj",
    pattern="same",
    method=True,
    jvp=lambda ts, xs, out: np.conj(ts[0]),
    samples=[call((3,)), call(())],
    holomorphic=False,
)
def conjugate(g):
    """Complex conjugate."""
    return np.conj(g)


def _conj_method(self: Tensor) -> Tensor:
    """Complex conjugate; the tensor itself if it is real, as NumPy's method and PyTorch's."""
    return conjugate(self) if self.dtype.kind == "c" else self


Tensor.conj = Tensor.conjugate = _conj_method


def sign(x):
    """Sign of x, with derivative 0; for complex x it is x / |x|, which is differentiated.

    >>> import tapegrad as tg
    >>> tg.sign(tg.tensor([-2.0, 0.0, 3.0]))
    tensor([-1.,  0.,  1.])
    """
    if isinstance(x, Tensor) and x.dtype.kind == "c":
        return x / where(x == 0, 1.0, absolute(x))
    return sign_of_real(x)


UFUNCS[np.sign] = Tensor.sign = sign
