"""Every way in which the library runs a program, each as a function that raises Wrong, Unclear, or the library's refusal.

`Case` holds a program with what all engines are compared with: NumPy's value, differences, and the gradient by the sweep, itself held
against the differences.
"""

from __future__ import annotations

import ast
import copy
import math
import traceback
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import tapegrad as tg
from tapegrad.compiler import tracing
from tests.fuzz.judge import (
    Unclear,
    Wrong,
    arrays,
    duplicate,
    flat,
    inner,
    largest,
    ordered,
    same,
    slope,
    spread,
    stretched_alike,
)
from tests.fuzz.program import Program, leaves, mapped

WIDER = {"float32": "float64", "complex64": "complex128"}


class Case:
    def __init__(self, program: Program, scope: dict[str, Any] | None = None) -> None:
        self.program = program
        self.scope = scope
        self.f = program.function(scope)
        self.argnums = program.argnums
        named = any(name in program.source for name in WIDER)
        self.single = named or any(x.dtype in WIDER for p in program.parameters for x in leaves(p))
        self.eps = float(np.finfo(np.float32 if self.single else np.float64).eps)
        self._known: dict[tuple[int, bool], Any] = {}

    def wide(self) -> Case:
        """The same program in double precision, also where its source names narrower types."""
        wide = copy.copy(self)
        wide._known = {}
        source = self.program.source
        for narrow, name in WIDER.items():
            source = source.replace(narrow, name)
        if source != self.program.source:
            wide.f = replace(self.program, source=source).function(self.scope)
        return wide

    def plain(self, arguments: list[Any]) -> Any:
        """NumPy's result; Unclear where NumPy refuses, or writes an argument."""
        given = duplicate(arguments)
        try:
            value = self.f(*given)
        except Exception as error:
            raise Unclear(f"NumPy refuses: {type(error).__name__}") from None
        pairs = zip(arrays(given), arrays(arguments), strict=True)
        if not all(np.array_equal(x, y) for x, y in pairs):
            raise Unclear("NumPy writes an argument")
        if not all(np.all(np.isfinite(x)) for x in arrays(value) if x.dtype.kind in "fc"):
            raise Unclear("not finite")
        if any(x.dtype == np.float16 for x in arrays(value)):
            raise Unclear("half precision, as the sine of a mask has")
        return value

    @property
    def loss(self) -> Callable[..., Any]:
        """A weighted sum of all results, complex ones as pairs: a function that sees the program, and nothing of the case."""
        return summed(self.f)

    def gradient(self, arguments: list[Any]) -> tuple[Any, Any]:
        """(value, gradients) by the sweep."""
        tg.set_engine("sweep")
        return tg.value_and_grad(self.loss, self.argnums)(*arguments)

    def spread(self, arguments: list[Any], gradient: Any) -> list[float]:
        """How far rounding alone may move gradients by the sweep: that of arguments, and that of each cotangent on the way."""
        return spread(lambda *a: self.gradient(list(a))[1], arguments, gradient, self.eps)

    def known(self, call: int, other: bool) -> tuple[Any, list[float]]:
        """What the sweep gives for a call, and the bounds: computed once for all engines. Unclear where NumPy's result is."""
        if (call, other) not in self._known:
            arguments = self.program.arguments(call, other_layout=other)
            try:
                self.plain(arguments)
                expected = self.gradient(arguments)
                bounds = spread(lambda *a: self.gradient(list(a)), arguments, expected, self.eps)
                self._known[call, other] = expected, bounds
            except Unclear as why:
                self._known[call, other] = why
        found = self._known[call, other]
        if isinstance(found, Unclear):
            raise found
        return found

    def moved(self, arguments: list[Any], direction: list[Any], h: float) -> list[Any]:
        moved = list(arguments)
        for i, d in zip(self.argnums, direction, strict=True):
            moved[i] = plus(moved[i], d, h)
        return moved

    def direction(self, arguments: list[Any], seed: int = 0) -> list[Any]:
        rng = np.random.default_rng([seed, 11])

        def draw(x: Any) -> Any:
            x = np.asarray(x)
            d = rng.uniform(-1, 1, x.shape)
            if x.dtype.kind == "c":
                d = d + 1j * rng.uniform(-1, 1, x.shape)
            # Beside a reshape, a stretched array moves as such: another layout may be another program.
            d = stretched_alike(x, d) if views_shown(self.program.source) else d
            return np.asarray(d).astype(x.dtype)[()] if x.ndim == 0 else d.astype(x.dtype)

        return [mapped(draw, arguments[i]) for i in self.argnums]

    def along(
        self, function: Callable[..., Any], arguments: list[Any], direction: list[Any]
    ) -> Any:
        def value(h: float) -> np.ndarray:
            try:
                parts = [x.ravel() for x in arrays(function(*self.moved(arguments, direction, h)))]
            except tg.TapegradError:
                raise
            except Exception as error:
                raise Unclear(f"NumPy refuses next to this point: {type(error).__name__}") from None
            parts = [np.concatenate([p.real, p.imag]) if p.dtype.kind == "c" else p for p in parts]
            return np.concatenate([np.zeros(0), *parts])

        return slope(value)


def summed(f: Callable[..., Any]) -> Callable[..., Any]:
    def loss(*arguments: Any) -> Any:
        total = 0.0
        for _, leaf in flat(f(*arguments)):
            total = total + weighted(leaf)
        return total

    return loss


def weighted(leaf: Any) -> Any:
    if isinstance(leaf, str | type(None)):
        return 0.0
    kind = np.dtype(getattr(leaf, "dtype", type(leaf))).kind
    n = np.shape(leaf)
    w = np.cos(1.3 + np.arange(math.prod(n), dtype=float)).reshape(n)
    if kind == "c":
        return np.sum(np.real(leaf) * w) + np.sum(np.imag(leaf) * (w + 0.4))
    return np.sum(leaf * w) if kind == "f" else 0.0


def plus(x: Any, d: Any, h: float) -> Any:
    if isinstance(x, dict):
        return {k: plus(x[k], d[k], h) for k in x}
    if isinstance(x, tuple | list):
        return type(x)(plus(a, b, h) for a, b in zip(x, d, strict=True))
    return ordered(x, x + h * d) if isinstance(x, np.ndarray) else x + h * d


def calls(case: Case) -> list[tuple[int, bool]]:
    """Numbers of calls, and whether their arguments lie in memory in other ways than those of the first.

    Each other way is compiled anew, which costs most of all, so that every second program stays with one.
    """
    if case.program.number % 2:
        return [(0, False), (1, False), (2, True), (0, False)]
    return [(0, False), (1, False), (2, False)]


def untouched(arguments: list[Any], before: list[Any]) -> None:
    same(arguments, before, None, "an argument was written: ")


# ------------------------------------------------------------------------------------------------ engines


def sweep(case: Case) -> None:
    """The value is NumPy's and the gradient that of differences; single precision is near double precision."""
    arguments = case.program.arguments()
    before = duplicate(arguments)
    case.plain(arguments)
    value, gradient = case.gradient(arguments)
    untouched(arguments, before)
    expected = case.loss(*duplicate(arguments))
    same(value, expected, spread(case.loss, arguments, expected, case.eps), "value", types=False)
    for i, g in zip(case.argnums, gradient, strict=True):
        shapes_and_types(g, arguments[i])
    wide = case.program.arguments(wide=True)
    reference, whole = gradient, case
    if case.single:
        whole = case.wide()
        there, reference = whole.gradient(wide)
        if abs(value - there) > 1e-2 * (
            1 + abs(there)
        ):  # 0.2 is not greater than 0.2, but its float32 is
            raise Unclear("another branch in double precision")
        bounds = whole.spread(wide, reference)
        same(gradient, reference, bounds, "gradient in single precision", types=False)
    direction = case.direction(wide)
    expected, off = whole.along(whole.loss, wide, direction)
    got = inner(list(reference), direction)
    if not abs(got - expected[0]) <= off:
        raise Wrong(
            f"gradient: {got!r} along a direction, differences give {expected[0]!r} within {off:.2g}"
        )


def shapes_and_types(gradient: Any, argument: Any) -> None:
    mine, theirs = flat(gradient), flat(argument)
    if [p for p, _ in mine] != [p for p, _ in theirs]:
        raise Wrong(f"gradient has structure {mine}")
    for (_, g), (_, x) in zip(mine, theirs, strict=True):
        if np.shape(g) != np.shape(x) or np.asarray(g).dtype != np.asarray(x).dtype:
            raise Wrong(
                f"gradient is {np.asarray(g).dtype}{np.shape(g)} of {np.asarray(x).dtype}{np.shape(x)}"
            )


def agrees(
    case: Case,
    engine: Callable[..., Any],
    calls: list[tuple[int, bool]],
    what: str,
    reference: Callable[[list[Any]], Any] | None = None,
) -> None:
    """What an engine computes (by default value and gradients) is the sweep's at each of the calls; earlier results stay as they were."""
    held: list[tuple[Any, Any]] = []
    clear = 0
    for call, other in calls:
        arguments = case.program.arguments(call, other_layout=other)
        before = duplicate(arguments)
        try:
            if reference is None:
                expected, bounds = case.known(call, other)
            else:
                case.plain(arguments)
                expected = reference(arguments)
                bounds = spread(lambda *a: reference(list(a)), arguments, expected, case.eps)
        except Unclear:
            if call == 0:
                raise
            continue
        got = engine(*arguments)
        where = f"{what}, call {call}{' in other layouts' if other else ''}: "
        same(got, expected, bounds, where)
        untouched(arguments, before)
        held.append((got, duplicate(got)))
        clear += 1
    for got, kept in held:
        same(got, kept, None, f"{what}: a result of an earlier call was written: ")
    if not clear:
        raise Unclear("no call is clear")


def replay(case: Case) -> None:
    def engine(*arguments: Any) -> Any:
        tg.set_engine("replay")
        try:
            return tg.value_and_grad(case.loss, case.argnums)(*arguments)
        finally:
            tg.set_engine("sweep")

    agrees(case, engine, [(0, False), (1, False), (2, True)], "replay")


def compiled(case: Case) -> None:
    """The gradient, compiled: traced once, then called with other values and in other layouts."""
    f = tg.compile(tg.value_and_grad(case.loss, case.argnums))
    agrees(case, f, calls(case), "compiled gradient")


def entry(case: Case) -> None:
    """The compiled program as one entry of a tape: the walk back is a program, too."""
    inner = copy.copy(case)
    inner.f = tg.compile(case.f)
    f = tg.value_and_grad(inner.loss, case.argnums)
    agrees(
        case, f, [(0, False), (0, False), (1, False), (2, True)], "gradient through a compiled call"
    )


def tangents(case: Case) -> None:
    """Tangents of the gradient, compiled: forward over reverse by one program."""

    def along(arguments: list[Any]) -> Any:
        direction = case.direction(arguments)

        def of_primals(*given: Any) -> Any:
            full = list(arguments)
            for i, x in zip(case.argnums, given, strict=True):
                full[i] = x
            return tg.grad(case.loss, case.argnums)(*full)

        return tg.jvp(of_primals, tuple(arguments[i] for i in case.argnums), tuple(direction))

    directions = case.direction(case.program.arguments())
    if any(np.asarray(x).dtype.kind == "c" for _, x in flat(directions)):
        raise Unclear("complex")
    fixed = copy.copy(case)
    fixed.direction = lambda arguments, seed=0: directions  # type: ignore[method-assign]
    case = fixed
    tg.set_engine("sweep")
    agrees(case, tg.compile(lambda *a: along(list(a))), calls(case), "compiled tangents", along)


def again(case: Case) -> None:
    """The program under `tg.checkpoint`, run again by the walk: gradient, and the slope that forward mode gives."""
    inner = copy.copy(case)
    inner.f = tg.checkpoint(case.f)
    tg.set_engine("sweep")
    agrees(
        case, tg.value_and_grad(inner.loss, case.argnums), [(0, False), (1, False)], "checkpoint"
    )
    forward(inner)


def entries(case: Case) -> None:
    """`tg.vmap` over calls of other values, as it is and compiled: a loop over them."""
    calls = [case.program.arguments(k) for k in range(3)]
    mapped_over = [stacked(column) for column in zip(*calls, strict=True)]
    picked = [[mapped(lambda x, k=k: x[k], m) for m in mapped_over] for k in range(3)]

    def loop(arguments: list[Any]) -> Any:
        results = [
            case.plain(a)
            for a in [[mapped(lambda x, k=k: x[k], m) for m in arguments] for k in range(3)]
        ]
        trees = [[(p, np.shape(x), np.asarray(x).dtype) for p, x in flat(r)] for r in results]
        if trees[0] != trees[1] or trees[0] != trees[2] or not trees[0]:
            raise Unclear("results of other shapes")
        return [
            np.stack([np.asarray(x) for _, x in parts])
            for parts in zip(*map(flat, results), strict=True)
        ]

    for arguments in picked:
        case.plain(arguments)
    expected = loop(mapped_over)
    bounds = spread(lambda *a: loop(list(a)), mapped_over, expected, case.eps)
    for what, f in (("vmap", tg.vmap(case.f)), ("compiled vmap", tg.compile(tg.vmap(case.f)))):
        for _ in range(2):
            got = [x for _, x in flat(f(*duplicate(mapped_over)))]
            same(got, expected, bounds, f"{what}: ", types=False)


def stacked(trees: Any) -> Any:
    """One tree with the leaves of several, stacked."""
    first = trees[0]
    if isinstance(first, dict):
        return {k: stacked([t[k] for t in trees]) for k in first}
    if isinstance(first, tuple | list):
        return type(first)(map(stacked, zip(*trees, strict=True)))
    return np.stack([np.asarray(t) for t in trees])


def program(case: Case) -> None:
    """The program itself, compiled: its results are NumPy's, in structure, shapes, types and values."""
    f = tg.compile(case.f)
    held = []
    # Every third program is called with its last argument by keyword.
    keyword = f.__wrapped__.__code__.co_varnames[len(case.program.parameters) - 1]
    named = case.program.number % 3 == 0
    for call, other in calls(case):
        arguments = case.program.arguments(call, other_layout=other)
        before = duplicate(arguments)
        try:
            expected = case.plain(arguments)
            bounds = spread(case.f, arguments, expected, case.eps)
        except Unclear:
            if call == 0:
                raise
            continue
        got = f(*arguments[:-1], **{keyword: arguments[-1]}) if named else f(*arguments)
        same(
            got, expected, bounds, f"compiled, call {call}{' in other layouts' if other else ''}: "
        )
        untouched(arguments, before)
        held.append((got, duplicate(got)))
    for got, kept in held:
        same(got, kept, None, "compiled: a result of an earlier call was written: ")


def real_leaves(case: Case) -> Callable[..., Any]:
    """The program as a function of the arguments that are differentiated by, to a tuple of its results."""
    arguments = case.program.arguments()

    def function(*given: Any) -> Any:
        full = list(arguments)
        for i, x in zip(case.argnums, given, strict=True):
            full[i] = x
        return tuple(
            x for _, x in flat(case.f(*full)) if np.dtype(getattr(x, "dtype", type(x))).kind in "fc"
        )

    return function


def forward(case: Case) -> None:
    """jvp of all results: the value is NumPy's, the tangents are those that the reverse gives: <w, J d> = <J' w, d>."""
    arguments = case.program.arguments()
    case.plain(arguments)
    direction = case.direction(arguments)
    primals = tuple(arguments[i] for i in case.argnums)
    tg.set_engine("sweep")
    value, tangent = tg.jvp(real_leaves(case), primals, tuple(direction))
    expected = real_leaves(case)(*duplicate(primals))
    same(
        value,
        expected,
        spread(real_leaves(case), list(primals), expected, case.eps),
        "value of jvp",
        types=False,
    )
    _, gradient = case.gradient(arguments)
    bounds = case.spread(arguments, gradient)
    reverse = inner(list(gradient), direction)
    sizes = [max(1, np.size(d)) for _, d in flat(direction)]
    size = sum(abs(float(np.sum(np.abs(np.asarray(t))))) for _, t in flat(tangent))
    allowed = sum(b * n for b, n in zip(bounds, sizes, strict=True)) + 64 * case.eps * max(
        1.0, size
    )
    along = sum(float(np.real(weighted(np.asarray(t)))) for _, t in flat(tangent))
    if not abs(along - reverse) <= allowed:
        raise Wrong(f"forward: <w, J d> = {along!r}, reverse: {reverse!r}, allowed {allowed:.2g}")


def jacobian(case: Case) -> None:
    """Forward and reverse Jacobians are equal."""
    arguments = case.program.arguments()
    case.plain(arguments)
    primals = tuple(arguments[i] for i in case.argnums)
    f = real_leaves(case)
    if any(
        np.asarray(x).dtype.kind == "c" for _, x in [*flat(primals), *flat(f(*duplicate(primals)))]
    ):
        raise Unclear("complex")
    every = tuple(range(len(primals)))
    tg.set_engine("sweep")
    made = {m: lambda *a, m=m: tg.jacobian(f, every, mode=m)(*a) for m in ("forward", "reverse")}
    expected = made["reverse"](*primals)
    bounds = spread(made["reverse"], list(primals), expected, case.eps)
    same(made["forward"](*primals), expected, bounds, "forward Jacobian")


def second(case: Case) -> None:
    """Hessian times direction by reverse over reverse and forward over reverse: differences of the gradient."""
    case = case.wide()
    arguments = case.program.arguments(wide=True)
    case.plain(arguments)
    direction = case.direction(arguments)

    def gradient(*given: Any) -> Any:
        return tg.grad(case.loss, case.argnums)(*given)

    tg.set_engine("sweep")
    expected, off = case.along(gradient, arguments, direction)
    if any(np.asarray(x).dtype.kind == "c" for _, x in flat(direction)):
        raise Unclear("complex")

    def joined(tree: Any) -> np.ndarray:
        return np.concatenate([np.zeros(0), *(np.ravel(x) for x in arrays(tree))])

    def of_primals(*given: Any) -> Any:
        full = list(arguments)
        for i, x in zip(case.argnums, given, strict=True):
            full[i] = x
        return gradient(*full)

    def product(*given: Any) -> Any:
        total = 0.0
        for (_, g), (_, d) in zip(flat(list(of_primals(*given))), flat(direction), strict=True):
            total = total + np.sum(g * d)
        return total

    every = tuple(range(len(case.argnums)))
    ways: dict[str, Callable[..., Any]] = {
        "forward over reverse": lambda *x: tg.jvp(of_primals, x, tuple(direction))[1],
        "reverse over reverse": tg.grad(product, every),
    }
    for what, way in ways.items():
        got = joined(way(*(arguments[i] for i in case.argnums)))
        if got.shape == expected.shape and np.max(np.abs(got - expected), initial=0.0) <= 10 * off:
            continue
        # A smooth function of a standard deviation that is 0 has another second derivative next to this point than the conventions give here.
        near = case.moved(arguments, case.direction(arguments, 1), 1e-6)
        jump = largest(joined(way(*(near[i] for i in case.argnums))) - got)
        if "std(" in case.program.source and jump > 1e-3 * largest(expected):
            raise Unclear("a function of the standard deviation of equal numbers")
        raise Wrong(
            f"{what}: {got.tolist()}, differences give {expected.tolist()} within {10 * off:.2g}"
        )


def tracked(case: Case) -> None:
    """PyTorch's spelling: tensors, `backward`, `.grad`; the value is NumPy's."""
    given = case.program.arguments()
    for i in case.argnums:
        given[i] = mapped(lambda x: tg.tensor(x, requires_grad=True), given[i])
    # A tensor is a copy, and a copy of a stretched array lies otherwise.
    arguments = mapped(lambda x: x.detach().numpy() if isinstance(x, tg.Tensor) else x, given)
    case.plain(arguments)
    value, gradient = case.gradient(arguments)
    bounds = case.spread(arguments, gradient)
    loss = case.loss(*given)
    if not isinstance(loss, tg.Tensor) or not loss.requires_grad:
        raise Unclear("nothing is tracked")
    loss.backward()
    allowed = 64 * case.eps * max(1.0, abs(float(value))) + max(bounds, default=0.0)
    same(loss.detach(), value, [allowed], "value", types=False)
    for i, g in zip(case.argnums, gradient, strict=True):
        for (_, x), (_, e) in zip(flat(given[i]), flat(g), strict=True):
            mine = np.zeros(np.shape(e)) if x.grad is None else np.asarray(x.grad)
            same(mine, e, [max(bounds, default=0.0)], "backward", types=False)


ARRAYS: dict[str, Callable[[Case], None]] = {
    f.__name__: f for f in (sweep, forward, second, jacobian, tracked, again, replay, program, compiled, entry, tangents, entries)
}  # fmt: skip
# How often a program of the array dialect meets an engine; machine code takes longest to make.
SHARES = {"sweep": 1.0, "forward": 0.5, "second": 0.3, "jacobian": 0.2, "tracked": 0.2, "again": 0.2, "replay": 0.2, "program": 0.2, "compiled": 0.2, "entry": 0.08, "tangents": 0.05, "entries": 0.1}  # fmt: skip


REORDERED = "einsum nanmedian qr( cross("
"""Functions whose results the library lays out in C order whatever their operands' is, where NumPy's order follows from its code
(tests/test_layouts.py tells why)."""


def views_shown(source: str) -> bool:
    """Whether what a store reaches may follow from the order in memory."""
    return "reshape" in source or "ravel" in source


def reordered(source: str) -> bool:
    """Whether a store beside a reshape may reach something else than in NumPy for the order in memory alone."""
    return views_shown(source) and any(name in source for name in REORDERED.split())


class _Ordered(ast.NodeTransformer):
    """Wraps each call of a function of REORDERED: its result lies in C order, whoever computes it."""

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        if any(name in ast.unparse(node.func) + "(" for name in REORDERED.split()):
            return ast.Call(ast.Name("in_c_order", ast.Load()), [node], [])
        return node


def in_c_order(tree: Any) -> Any:
    """The arrays of a tree copied in C order, tensors as well."""
    return mapped(lambda x: np.array(x, order="C") if np.ndim(x) else x, tree)


def settled(case: Case) -> Case:
    """The program with copies in C order where the library's layout may differ from NumPy's: the two have to agree on it."""
    tree = ast.fix_missing_locations(_Ordered().visit(ast.parse(case.program.source)))
    program = replace(case.program, source=ast.unparse(tree))
    return Case(program, {**(case.scope or {}), "in_c_order": in_c_order})


_BY_NUMPY = "Error setting single item of array"
"""What NumPy says instead of the error of `a.flat[i] = t`."""


@contextmanager
def _put_off(case: Case) -> Iterator[None]:
    """In every other program all arrays are as large ones are to a trace: computed if somebody asks for entries."""
    with pytest.MonkeyPatch.context() as patch:
        if case.program.number % 2:
            patch.setattr(tracing, "PUT_OFF", 2)
        yield


def run(engine: Callable[[Case], None], case: Case) -> tuple[str, str]:
    """(state, text): passed, refused, unclear, or failed."""
    before = tg.engine()
    with warnings.catch_warnings(), np.errstate(all="ignore"), _put_off(case):
        warnings.simplefilter("ignore")
        try:
            try:
                engine(case)
            except Wrong:
                if not reordered(case.program.source):
                    raise
                engine(settled(case))
                return "unclear", "a reshape of what lies in memory in another order than NumPy's"
        except Wrong as error:
            return "failed", f"wrong: {error}"
        except Unclear as error:
            return "unclear", str(error)
        except tg.CheckedAccessError as error:
            return "failed", f"{type(error).__name__}: {error}"
        except tg.TapegradError as error:
            return "refused", f"{type(error).__name__}: {error}"
        except (NotImplementedError, np.linalg.LinAlgError) as error:
            return "refused", f"{type(error).__name__}: {error}"
        except Exception as error:
            last = traceback.extract_tb(error.__traceback__)[-1]
            if isinstance(error, TypeError | AttributeError) and last.filename.startswith(
                "<program"
            ):
                return "refused", f"a tensor has no such method or setting: {error}"
            lost = isinstance(error.__cause__, tg.TapegradError) or _BY_NUMPY in str(error)
            if isinstance(error, ValueError) and lost:
                return "refused", f"GradientLost, in NumPy's words: {error}"
            return (
                "failed",
                f"{type(error).__name__} in {last.name} ({last.filename.rsplit('/', 1)[-1]}:{last.lineno}): {error}",
            )
        finally:
            tg.set_engine(before)
    return "passed", ""
