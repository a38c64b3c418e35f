"""The sanitizer of derivatives: checked mode (checking.py) for generated Python.

`instrumented` goes over the text of a derivative once more, in its last form. Indices of arrays go through `inside`, numbers read from
arrays through `seen`, blocks read from stacks through `all_seen`, and arrays without values through `poisoned`, which fills them with the
pattern. Each has the number of its place, which errors in nopython code carry; `Watched` makes a message of it, with the user's line
behind the generated one where that is known. A cotangent that was added to memory that nobody wrote is NaN with the pattern's payload, as
arithmetic passes payloads on: so results that hold one are an error, too.

Invariant: on right programs the instrumented text computes what the text computes, bit for bit.
"""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterator
from typing import Any

import numpy as np
from llvmlite import ir
from numba.core import types
from numba.extending import intrinsic, overload

from ..core import checking
from ..core.parsing import parsed
from ..errors import CheckedAccessError
from .tree import operations, statement

STACKS = ("floats", "ints")

_WIDE, _NARROW = checking.PATTERNS[8], checking.PATTERNS[4]
_QUIET = 1 << 51, 1 << 22
"""The bit that arithmetic sets in a NaN that signals."""

_DOUBLE = np.array([_WIDE], np.uint64).view(np.float64)
_SINGLE = np.array([_NARROW], np.uint32).view(np.float32)


# ---------------------------------------------------------------------------------------- in nopython code


@intrinsic
def _bits(context: Any, x: Any) -> Any:
    """The bits of a float as a whole number."""
    if x not in (types.float64, types.float32):
        return None
    out = types.int64 if x == types.float64 else types.int32

    def emit(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.bitcast(args[0], ir.IntType(out.bitwidth))

    return out(x), emit


def inside(base: Any, i: Any, axis: int, place: int) -> Any:
    """i, an index along an axis; IndexError if it is a number outside."""
    raise NotImplementedError("for compiled code")


@overload(inside)
def _inside(base: Any, i: Any, axis: int, place: int) -> Any:
    """Index i if it lies within axis `axis` of the array; IndexError otherwise."""
    if not (isinstance(base, types.Array) and isinstance(i, types.Integer)):

        def other(base: Any, i: Any, axis: int, place: int) -> Any:
            return i

        return other

    def number(base: Any, i: Any, axis: int, place: int) -> Any:
        n = base.shape[axis]
        if i >= n or i < -n:
            raise IndexError("outside", place, i, n)
        return i

    return number


def seen(x: Any, place: int) -> Any:
    """x, which was read from an array; an error if it holds the pattern."""
    raise NotImplementedError("for compiled code")


@overload(seen)
def _seen(x: Any, place: int) -> Any:
    """A number as it is; CheckedAccessError where it has the pattern of memory that was never written."""
    wide, narrow = _WIDE, _NARROW
    if x == types.float64:

        def double(x: Any, place: int) -> Any:
            if _bits(x) == wide:  # type: ignore[call-arg]
                raise CheckedAccessError("unwritten", place)
            return x

        return double
    if x == types.float32:

        def single(x: Any, place: int) -> Any:
            if _bits(x) == narrow:  # type: ignore[call-arg]
                raise CheckedAccessError("unwritten", place)
            return x

        return single
    if x == types.int64:

        def whole(x: Any, place: int) -> Any:
            if x == wide:
                raise CheckedAccessError("unwritten", place)
            return x

        return whole

    def other(x: Any, place: int) -> Any:
        return x

    return other


def all_seen(x: Any, place: int) -> Any:
    """x, a block of a stack; an error if any of it holds the pattern."""
    raise NotImplementedError("for compiled code")


@overload(all_seen)
def _all_seen(x: Any, place: int) -> Any:
    if not isinstance(x, types.Array):

        def number(x: Any, place: int) -> Any:
            return seen(x, place)

        return number

    def block(x: Any, place: int) -> Any:
        for v in x.flat:
            seen(v, place)
        return x

    return block


def popped(stack: Any, n: int, a: Any, place: int) -> None:
    """`pop_array`, whose elements must have been kept."""
    raise NotImplementedError("for compiled code")


@overload(popped)
def _popped(stack: Any, n: int, a: Any, place: int) -> Any:
    def put_back(stack: Any, n: int, a: Any, place: int) -> None:
        for k in np.ndindex(a.shape):
            a[k] = seen(stack[n], place)
            n += 1

    return put_back


def poisoned(x: Any) -> Any:
    """x, an array without values, filled with the pattern."""
    raise NotImplementedError("for compiled code")


@overload(poisoned)
def _poisoned(x: Any) -> Any:
    """An array filled with the pattern of memory that was never written."""
    if not isinstance(x, types.Array) or x.dtype not in (
        types.float64,
        types.float32,
        types.int64,
    ):

        def other(x: Any) -> Any:
            return x

        return other
    values = {types.float64: _DOUBLE, types.float32: _SINGLE}.get(x.dtype, np.array([_WIDE]))

    def filled(x: Any) -> Any:
        x.fill(values[0])
        return x

    return filled


def refilled(x: Any, n: int) -> Any:
    """x, a stack that has grown beyond n elements, with the pattern there."""
    raise NotImplementedError("for compiled code")


@overload(refilled)
def _refilled(x: Any, n: int) -> Any:
    def filled(x: Any, n: int) -> Any:
        poisoned(x[n:])
        return x

    return filled


SCOPE: dict[str, Any] = {
    "inside": inside, "seen": seen, "all_seen": all_seen, "popped": popped, "poisoned": poisoned, "refilled": refilled,
}  # fmt: skip


# ----------------------------------------------------------------------------------------------- the text


def instrumented(source: str, name: str) -> tuple[str, list[str], list[str]]:
    """The text with checks, the lines that numbers in errors mean, and what the function of a name returns.

    >>> print(instrumented("def f(x, i):\\n    y = np.empty(3)\\n    y[i] = x[0]\\n    return y", "f")[0])
    def f(x, i):
        y = poisoned(np.empty(3))
        y[inside(y, i, 0, 2)] = seen(x[0], 2)
        return y
    """
    tree = parsed(source)
    pass_over = _Pass()
    tree = pass_over.visit(tree)
    returned: list[str] = []
    whole = [x for x in tree.body if isinstance(x, ast.FunctionDef) and x.name == name]
    for node in ast.walk(whole[0]):
        if isinstance(node, ast.Return) and isinstance(node.value, ast.Tuple):
            returned = [ast.unparse(x) for x in node.value.elts]
    return ast.unparse(ast.fix_missing_locations(tree)), pass_over.places, returned


class _Pass(ast.NodeTransformer):
    def __init__(self) -> None:
        self.places: list[str] = []

    def visit(self, node: ast.AST) -> Any:
        if isinstance(node, ast.stmt):
            inner = isinstance(node, ast.For | ast.While | ast.If | ast.FunctionDef)
            self.places.append(ast.unparse(node).split("\n")[0] if inner else ast.unparse(node))
        return super().visit(node)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> Any:
        node.body = [self.visit(x) for x in node.body]  # not its decorators, nor its defaults
        return node

    def _call(self, name: str, *args: Any) -> ast.Call:
        return ast.Call(ast.Name(name, ast.Load()), list(args), [])

    def _place(self) -> ast.Constant:
        return ast.Constant(len(self.places) - 1)

    def visit_Call(self, node: ast.Call) -> Any:
        function = ast.unparse(node.func)
        self.generic_visit(node)
        if function in ("np.empty", "np.empty_like"):
            return self._call("poisoned", node)
        if function == "grown" and isinstance(node.args[0], ast.Name):
            size = parsed(f"{node.args[0].id}.size", mode="eval").body
            return self._call("refilled", node, size)
        if function == "pop_array":
            return self._call("popped", *node.args, self._place())
        return node

    def visit_Subscript(self, node: ast.Subscript) -> Any:
        """An access with its indices checked, and with its value checked where it is read."""
        self.generic_visit(node)
        if not isinstance(node.value, ast.Name):
            return node
        several = isinstance(node.slice, ast.Tuple)
        indices = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        if not any(
            isinstance(x, ast.Constant) and (x.value is None or x.value is ...) for x in indices
        ):
            indices = [
                x
                if isinstance(x, ast.Slice | ast.Constant | ast.Tuple)
                else self._call(
                    "inside",
                    ast.Name(node.value.id, ast.Load()),
                    x,
                    ast.Constant(k),
                    self._place(),
                )
                for k, x in enumerate(indices)
            ]
        node.slice = ast.Tuple(indices, ast.Load()) if several else indices[0]
        if not isinstance(node.ctx, ast.Load):
            return node
        name = "all_seen" if node.value.id in STACKS else "seen"
        return self._call(name, node, self._place())


# --------------------------------------------------------------------------------------------- at run time


def stacks(held: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The stacks of a call, which hold nothing yet."""
    for stack in held.values():
        stack.view(np.int64).fill(_WIDE)
    return held


def _unwritten(x: Any) -> int:
    """How many numbers of a result hold the pattern, or come of it."""
    a = np.asarray(x)
    if a.dtype.kind == "c":
        a = np.ascontiguousarray(a).view(a.real.dtype)
    if a.dtype == np.float64:
        bits = np.atleast_1d(np.ascontiguousarray(a)).view(np.uint64)
        return int(np.count_nonzero((bits | _QUIET[0]) == (_WIDE | _QUIET[0])))
    if a.dtype == np.float32:
        bits = np.atleast_1d(np.ascontiguousarray(a)).view(np.uint32)
        return int(np.count_nonzero((bits | _QUIET[1]) == (_NARROW | _QUIET[1])))
    return 0


class Watched:
    """A compiled derivative, whose errors say where they come from."""

    def __init__(
        self, compiled: Any, name: str, program: Any, places: list[str], returned: list[str]
    ) -> None:
        self.compiled = compiled
        self.name = name
        self.program = program
        self.places = places
        self.returned = returned
        functools.update_wrapper(self, compiled.py_func)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.compiled, name)

    def __call__(self, *args: Any) -> Any:
        """Call the checked derivative; its errors become sentences, and its results are looked at for numbers that were never written."""
        try:
            out = self.compiled(*args)
        except IndexError as error:
            if error.args[:1] != ("outside",):
                raise IndexError(
                    f"{error}, in the derivative of {self.name} (a call in it)."
                ) from None
            _, place, i, n = error.args
            raise IndexError(
                f"index {i} is out of bounds for an axis of length {n}, in the derivative of {self.name}{self._told(place)}."
            ) from None
        except CheckedAccessError as error:
            raise CheckedAccessError(
                f"the derivative of {self.name} read what was never written{self._told(error.args[1])}. {_REMEDY}"
            ) from None
        found = out if isinstance(out, tuple) else (out,)
        names = self.returned if len(self.returned) == len(found) else [""] * len(found)
        for k, (x, name) in enumerate(zip(found, names, strict=True)):
            if name not in STACKS and (n := _unwritten(x)):
                raise CheckedAccessError(
                    f"the derivative of {self.name} left {n} numbers of result {k} ({name}) without a value, or made them of memory that "
                    f"was never written. {_REMEDY}"
                )
        return out

    def _told(self, place: int) -> str:
        line = self.places[place]
        wheres = list(dict.fromkeys(str(op.where) for op in self._behind(line)))
        told = f", at `{line}`"
        if len(wheres) == 1:
            return f"{told}; the user's line is {wheres[0]}"
        return told if not wheres else f"{told}; the user's line is one of {'; '.join(wheres)}"

    def _behind(self, line: str) -> Iterator[Any]:
        """Operations of the program that index what a generated line indexes, in the same way if there are such."""
        wanted = _accesses(line)
        found = [
            (op, _accesses(statement(op)))
            for op in operations(self.program.body)
            if op.kind != "if"
        ]
        exact = [op for op, own in found if own & wanted]
        bases = {base for base, _ in wanted}
        yield from exact or [op for op, own in found if bases & {base for base, _ in own}]


_REMEDY = (
    "Where the function itself reads an element of np.empty before it writes it, write np.zeros; otherwise the fault is tapegrad's: "
    "no result of it can be trusted, please report it."
)


def _accesses(line: str) -> set[tuple[str, str]]:
    """(array, index) of what a line of Python indexes; a cotangent counts as what it belongs to."""
    text = line.rstrip(":")
    try:
        tree = parsed(text if text == line else f"{line} pass")
    except SyntaxError:
        return set()
    return {
        (node.value.id.removesuffix("_bar").removesuffix("_dot"), ast.unparse(node.slice))
        for node in ast.walk(tree)
        if isinstance(node, ast.Subscript) and isinstance(node.value, ast.Name)
    }
