"""Compositions: NumPy functions that need no rule, being written in ops that have one.

    @composed(np.ediff1d, "ary", "to_end", "to_begin")
    def ediff1d(ary, to_end=None, to_begin=None): ...

declares a function under NumPy's name, for `np.<name>` on tensors and as `tg.<name>`. It names the parameters in
which a tracked tensor is followed; a leading star marks one that is a sequence of operands. Without a tracked tensor
NumPy's own function is evaluated, so values, dtypes, warnings and errors there are NumPy's by construction.

Invariant: the function sees only arguments that it can differentiate by or that are settings. A tracked tensor anywhere
else, `out`, and whatever NumPy's signature has but the function has not are refused by name before it runs.
"""

from __future__ import annotations

import functools
import inspect
import itertools
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any, TypeVar

import numpy as np

from ..core import seams
from ..core.dual import holds_dual, tangent_of
from ..core.mode import NO_GRAD
from ..core.primitive import FUNCTIONS, UFUNCS, constant, signature_of
from ..core.storage import StandIn, as_array, tracing
from ..core.synonyms import SYNONYMS, numpys
from ..core.tape import RECORDER
from ..core.tensor import Tensor, wrap
from ..errors import GradientLost, NotDifferentiable
from .indexing import take
from .joining import array, concatenate
from .shaping import laid_like

F = TypeVar("F", bound=Callable[..., Any])

# ----------------------------------------------------------------------------------- tensors among arguments


_SEQUENCES = (tuple, list)  # a union of types takes five times as long to ask


def holds_tensor(value: Any) -> bool:
    """Whether a tensor stands anywhere in nested arguments."""
    if isinstance(value, Tensor):
        return True
    if isinstance(value, dict):
        value = value.values()
    elif not isinstance(value, _SEQUENCES):
        return False
    for x in value:
        if type(x) is not np.ndarray and holds_tensor(x):
            return True
    return False


def holds_tracked(value: Any) -> bool:
    """Whether a tracked tensor, or one with a tangent, stands anywhere in nested arguments."""
    if isinstance(value, Tensor):
        return value._node is not None or tangent_of(value) is not None
    if isinstance(value, tuple | list):
        return any(map(holds_tracked, value))
    return isinstance(value, dict) and any(map(holds_tracked, value.values()))


def raw(value: Any) -> Any:
    """Nested arguments with the value of each tensor in its place."""
    if isinstance(value, Tensor):
        return value._value
    if type(value) is tuple or type(value) is list:
        return type(value)(map(raw, value))
    if type(value) is dict:
        return {k: raw(v) for k, v in value.items()}
    return value


def wrapped(value: Any) -> Any:
    """A result of NumPy's with untracked tensors in place of its arrays."""
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*map(wrapped, value))
    if type(value) is tuple or type(value) is list:
        return type(value)(map(wrapped, value))
    return wrap(value)


# ------------------------------------------------------------------------------------------------- declaring


def composed(
    of: Any, *by: str, also: tuple[Any, ...] = (), plain: Any = None
) -> Callable[[Any], Any]:
    """Declare the decorated function as NumPy's `of` on tracked tensors; returns the public function.

    `by` names the parameters that may be tracked: "a" is made a tensor or array, "*tup" is left a sequence. `also` are
    further NumPy functions of the same meaning and signature. `plain` is the op (or function) of which this is the extended
    form: a call with no more than its settings goes to it at once.
    """

    def declare(function: Callable[..., Any]) -> Any:
        public = _public(of, function, plain, _Binding(of, function, by))
        table = UFUNCS if isinstance(of, np.ufunc) else FUNCTIONS
        for numpy_function in (of, *also):
            table[numpy_function] = public
        return public

    return declare


def _public(
    of: Callable[..., Any], function: Callable[..., Any], plain: Any, binding: _Binding
) -> Any:
    """The function of NumPy's name around a composition: NumPy's own where nothing is tracked, else the composition."""
    settings = frozenset(plain.primitive.settings) if plain else frozenset()
    most = 2 if settings else 1
    taken = binding.theirs.parameters
    reworded = SYNONYMS.keys() - taken.keys() if "axis" in taken else frozenset()
    fits = binding.fits

    @functools.wraps(function)
    def public(*args: Any, **kwargs: Any) -> Any:
        """NumPy's function where nothing is tracked, else the composition."""
        # The sums and extrema of a program's inner loop must not pay for the forms that it does not use.
        if (
            plain is not None
            and 1 <= len(args) <= most
            and type(args[0]) is Tensor
            and kwargs.keys() <= settings
            and kwargs.get("keepdims") is not np._NoValue  # type: ignore[attr-defined]
        ):
            return plain(*args, **kwargs)
        if kwargs and not reworded.isdisjoint(kwargs):
            kwargs = numpys(of.__name__, kwargs)
        by_numpy = False
        if not (args and type(args[0]) is Tensor and args[0]._node is not None):
            if not holds_tensor(args) and not (kwargs and holds_tensor(kwargs)):
                return of(*args, **kwargs)
            if not (holds_tracked(args) or holds_tracked(kwargs)):
                trace = tracing.get()
                by_numpy = trace is None or not _inexact((args, kwargs))
                # Compositions are machine code where NumPy's own function is none.
                if not (by_numpy or trace.trying):
                    return trace.tried(
                        lambda: public(*args, **kwargs), lambda: plainly(of, args, kwargs)
                    )
        if by_numpy or (RECORDER.get() is NO_GRAD and not holds_dual((args, kwargs))):
            found = plainly(of, args, kwargs)
            if not _shows(found, (args, kwargs)):
                return found
        if fits(args, kwargs):
            return function(*args, **kwargs)
        bound = binding.bound(args, kwargs)
        return function(*bound.args, **bound.kwargs)

    public.__name__ = public.__qualname__ = of.__name__
    public.operands = binding.operands  # type: ignore[attr-defined]
    if plain is not None:
        public.primitive = plain.primitive  # type: ignore[attr-defined]
    return public


class _Binding:
    """NumPy's arguments as those of a composition: operands as tensors, arrays or numbers, settings as values, the rest refused."""

    __slots__ = ("in_order", "kinds", "lone", "name", "operands", "own", "places", "sequences", "theirs", "variadic")  # fmt: skip

    def __init__(
        self, of: Callable[..., Any], function: Callable[..., Any], by: Sequence[str]
    ) -> None:
        """For a composition `function` of NumPy's `of`; `by` names the operands, with a star those that are sequences."""
        self.name = f"np.{of.__name__}"
        self.operands = frozenset(name.lstrip("*") for name in by)
        self.sequences = frozenset(name[1:] for name in by if name.startswith("*"))
        own = self.own = inspect.signature(function)
        try:
            theirs = signature_of(of)
        except ValueError:  # before NumPy 2.4, ufuncs told none
            theirs = own
        self.theirs = theirs
        first = next(iter(own.parameters.values()))
        self.lone = None if isinstance(of, np.ufunc) else first.name
        """The operand that is no bare number: a number takes the dtype of what it meets in a ufunc only."""
        self.variadic = first.kind is first.VAR_POSITIONAL and first.name in self.operands
        self.kinds = {p: self._kinds(p) for p in own.parameters.keys() & theirs.parameters.keys()}
        """The types of arguments that each parameter takes as they are."""
        places = [] if _variable(own) or _variable(theirs) else _alike(own, theirs)
        self.places = [p for p in places if theirs.parameters[p].kind is not inspect.Parameter.KEYWORD_ONLY]  # fmt: skip
        self.in_order = [self.kinds[p] for p in self.places]

    def _kinds(self, key: str) -> frozenset[type]:
        if key not in self.operands:
            return _PLAIN
        arrays = {Tensor} if key in self.sequences else _ARRAYS | {Tensor}
        return frozenset(arrays if key == self.lone else arrays | _PLAIN - {str})

    def fits(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
        """Whether the composition takes these arguments as they are: binding them would take ten times as long."""
        if self.variadic:
            return not kwargs and _OPERANDS.issuperset(map(type, args))
        if len(args) > len(self.in_order):
            return False
        for value, kinds in zip(args, self.in_order, strict=False):
            if type(value) not in kinds:
                return False
        if kwargs:
            for key, value in kwargs.items():
                if type(value) not in self.kinds.get(key, ()):
                    return False
            return kwargs.keys().isdisjoint(self.places[: len(args)])
        return True

    def bound(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> inspect.BoundArguments:
        """Any arguments that NumPy's function has, as the composition takes them; what has no rule is refused by name."""
        bound = self.theirs.bind(*args, **kwargs)
        given = bound.arguments
        for key, value in list(given.items()):
            parameter = self.theirs.parameters[key]
            if value is np._NoValue:  # type: ignore[attr-defined]
                del given[key]
            elif key in self.operands:
                if key not in self.sequences and parameter.kind is not parameter.VAR_POSITIONAL:
                    given[key] = self._operand(key, value, parameter.default)
            elif key in self.own.parameters:
                if holds_tracked(value):
                    if parameter.kind is parameter.VAR_KEYWORD:
                        key = next(k for k, v in value.items() if holds_tracked(v))
                    raise _untold(self.name, key, self.operands)
                given[key] = raw(value)
            elif parameter.kind is parameter.VAR_KEYWORD:
                raise _unknown(self.name, next(iter(value)))
            elif _is_default(value, parameter.default):
                del given[key]
            else:
                raise _unknown(self.name, key)
        return bound

    def _operand(self, key: str, value: Any, default: Any) -> Any:
        if value is None and default is inspect.Parameter.empty:
            raise TypeError(f"{self.name} was given None as {key}: pass an array, a tensor or a number.")  # fmt: skip
        found = operand(value, self.name)
        return as_array(found) if key == self.lone and type(value) in _NUMBERS else found


def _inexact(value: Any) -> bool:
    """Whether all tensors in nested arguments hold floating-point numbers, as tracked ones do."""
    if isinstance(value, Tensor):
        return value.dtype.kind in "fc"
    if isinstance(value, dict):
        value = value.values()
    return not isinstance(value, _NESTED) or all(map(_inexact, value))


_NESTED: tuple[type, ...] = (tuple, list, type({}.values()))
_NUMBERS = frozenset({int, float, complex, bool})
_PLAIN: frozenset[type] = frozenset({int, float, bool, str, type(None)})
_ARRAYS: frozenset[type] = frozenset({np.ndarray, np.float64})
_OPERANDS = _ARRAYS | {Tensor, str, float}


def _variable(signature: inspect.Signature) -> bool:
    """Whether a function takes arguments without number or name, or ones that have no name."""
    P = inspect.Parameter
    return any(
        p.kind in (P.VAR_POSITIONAL, P.VAR_KEYWORD, P.POSITIONAL_ONLY)
        for p in signature.parameters.values()
    )


def _alike(own: inspect.Signature, theirs: inspect.Signature) -> list[str]:
    """Names of the first parameters, as far as they are the same in both."""
    pairs = zip(own.parameters, theirs.parameters, strict=False)
    return [a for a, _ in itertools.takewhile(lambda pair: pair[0] == pair[1], pairs)]


def operand(value: Any, asker: str = "a function") -> Any:
    """An argument that may be tracked: a tensor, array or number; nested sequences are joined."""
    if isinstance(value, list | tuple):
        return array(value) if holds_tensor(value) else as_array(value)
    if value is None or isinstance(value, _OPERAND):
        return value
    found = as_array(value)
    if found.dtype.kind in "OUSV":
        raise TypeError(
            f"{asker} was given {type(value).__name__}, which holds no numbers: pass a tensor, an array or a number."
        )
    return found


_OPERAND = (Tensor, np.ndarray, np.generic, int, float, complex, StandIn)


def plainly(of: Callable[..., Any], args: Any, kwargs: Any) -> Any:
    """NumPy's own evaluation on the values; arrays come back as tensors. `out=` tensors are written to, with a note."""
    out = kwargs.get("out")
    for target in out if isinstance(out, tuple) else (out,):
        if isinstance(target, Tensor):
            seams.before_write(target, f"{getattr(of, '__name__', of)}(out=)", args)
    try:
        result = of(*raw(args), **raw(kwargs))
    except AttributeError:  # NumPy asks objects for a method of the function's name
        for value in (*args, *kwargs.values()):
            if np.asarray(raw(value)).dtype.hasobject:
                constant(value, f"np.{getattr(of, '__name__', of)}")  # it refuses
        raise
    if isinstance(out, tuple) and len(out) == 1:
        return out[0]
    return wrapped(result) if out is None else out


def _shows(found: Any, given: Any) -> bool:
    """Whether a result has the memory of an operand: then the composition makes it, whose ops link the two (see views.py)."""
    if isinstance(found, tuple | list):
        return any(_shows(part, given) for part in found)
    return type(getattr(found, "_value", None)) is np.ndarray and _has_memory_of(found, given)


def _has_memory_of(found: Tensor, given: Any) -> bool:
    if isinstance(given, Tensor):
        if given is found:  # as `out=` comes back
            return False
        own, data = given._value, found._value
        if data is own or data.base is None:
            return data is own
        return type(own) is np.ndarray and np.may_share_memory(own, data)
    if isinstance(given, dict):
        given = given.values()
    elif not isinstance(given, _SEQUENCES):
        return False
    return any(_has_memory_of(found, part) for part in given)


def _is_default(value: Any, default: Any) -> bool:
    if value is None or value is np._NoValue or value is default:  # type: ignore[attr-defined]
        return True
    return isinstance(value, str | int | float) and value == default


def _unknown(name: str, key: str) -> Exception:
    if key == "out":
        return GradientLost(
            f"{name}(..., out=...) was asked to write a tracked result into an array, which would not be tracked. "
            "Use the result.",
            name="plain-array",
        )
    return NotDifferentiable(
        f"{name}(..., {key}=...) was asked of a tracked tensor, but it has no derivative rule for {key}. Write it another "
        "way (astype for dtype=, np.where for where=), or use t.detach() where no gradient is wanted."
    )


def _untold(name: str, key: str, operands: frozenset[str]) -> NotDifferentiable:
    return NotDifferentiable(
        f"{name} was given a tracked tensor as {key}, but it is differentiated only by {', '.join(sorted(operands))}. "
        f"Pass {key}.detach() if no gradient is wanted there."
    )


def scipys(module: str) -> Callable[[F], F]:
    """Declare the decorated composition as SciPy's function of its name: where no argument is a tensor, SciPy's own runs.

    `module` is SciPy's ("scipy.stats"), imported at the first such call. A parameter `nan_policy` is settled here: "omit" is refused,
    since how many entries are left is no function of numbers.
    """

    def declare(function: F) -> F:
        """The public function around a composition of SciPy's arguments."""
        name = function.__name__
        parameters = inspect.signature(function)
        asks_policy = "nan_policy" in parameters.parameters

        @functools.wraps(function)
        def public(*args: Any, **kwargs: Any) -> Any:
            """SciPy's function of arrays, the composition of tensors."""
            if not holds_tensor((args, kwargs)):
                return getattr(import_module(module), name)(*args, **kwargs)
            if asks_policy:
                _settle_policy(name, parameters.bind(*args, **kwargs).arguments.get("nan_policy"))
            return function(*args, **kwargs)

        return public  # type: ignore[return-value]

    return declare


def _settle_policy(name: str, policy: Any) -> None:
    """SciPy's nan_policy of a tensor: "propagate", or an error."""
    if policy in ("omit", "raise"):
        raise NotDifferentiable(
            f"{name} was asked for nan_policy={policy!r} of a tensor, but how many entries are NaN is no function of numbers. "
            "Take them out before, as x[~np.isnan(x.numpy())]."
        )
    if policy not in (None, "propagate"):
        raise ValueError("nan_policy must be one of {'propagate', 'raise', 'omit'}")


# --------------------------------------------------------------------------------- functions that move entries


def moved(of: Callable[..., Any], *operands: Any, whole: bool = False) -> Any:
    """`of(*operands)`, for a function that only moves, repeats or drops entries, or fills in zeros (which one that is `whole` does not).

    Where it takes each entry from is found by handing it the entries' numbers, counted from 1 through all operands, in
    their place; 0 then stands where it filled in. So the derivative is that of reading entries at positions.
    """
    operands = tuple(as_array(x) if isinstance(x, list | tuple) else x for x in operands)
    numbers = []
    count = 1
    for x in operands:
        shape = np.shape(x)
        size = int(np.prod(shape))
        own = np.arange(count, count + size).reshape(shape)
        numbers.append(like_filled(own, x))  # as NumPy's answer for these lies, so does that for x
        count += size
    source = as_array(of(*numbers))
    if len(operands) == 1 and (whole or source.all()):
        return laid_like(take(operands[0], source - 1), source)
    dtype = np.result_type(*map(raw, operands))
    parts = [x if isinstance(x, Tensor) else as_array(x, dtype) for x in operands]
    flat = concatenate([np.zeros(1, dtype), *(np.reshape(x, -1) for x in parts)])
    return laid_like(take(flat, source), source)


def rooted(square: Any) -> Any:
    """The square root, whose derivative at 0 is taken as 0: that of a distance where points coincide."""
    zero = raw(square) == 0
    return np.where(zero, 0.0, np.sqrt(np.where(zero, 1.0, square)))


def like_filled(made: Any, x: Any) -> Any:
    """`laid_like` for what NumPy fills entry by entry: a stretched x leaves it in C order."""
    return made if _stretched(raw(x)) else laid_like(made, x)


def _stretched(x: Any) -> bool:
    x = x.lying() if isinstance(x, StandIn) else x
    return isinstance(x, np.ndarray) and 0 in x.strides


__all__ = [
    "composed", "holds_tensor", "holds_tracked", "like_filled", "moved", "operand", "plainly", "raw", "rooted", "scipys",
    "wrapped",
]  # fmt: skip
