"""Kernels: the text of a compiled share, generated from a declared partial.

A kernel adds one operand's share of a cotangent to that operand's adjoint:

    kernel(n, add, g, x, y, z, out, adjoint)        adjoint[i] (+)= g[i] * conj(partial(x[i], y[i], ...))

All are addresses of n dense elements of one dtype. `add` says whether to add or to write; `adjoint` may be `g` itself
(the share is then formed in place). Strides, broadcasting and sums are the business of loops.py. The text is readable:
`source("multiply", 0, "float64")` shows it. vectors.py says the same in LLVM's language where it can, with vector instructions and
without Numba; what it cannot say (loops of a series, say), and only that, is compiled from this text by Numba, here or beforehand
(shipped.py).
"""

from __future__ import annotations

import contextlib
import dis
import hashlib
import inspect
import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from .. import vecmath
from ..core import handlers, headroom
from ..core.primitive import OPS, UFUNCS, Primitive
from ..llvm import cache, named
from .layout import KIND_NAMES

if TYPE_CHECKING:
    from ..llvm.linker import Module
    from .access import EntryPoint

_TEMPLATE = '''
def {name}(n, add, g, x, y, z, out, adjoint):
    """{doc}"""
    if add:
        for i in range(n):
            put(adjoint, i, item(adjoint, i) + {share})
    elif adjoint == g:
        for i in range(n):
            put(adjoint, i, {share_in_place})
    else:
        for i in range(n):
            put(adjoint, i, {share})
'''


def source(op_name: str, operand: int, dtype: str) -> str:
    """The text of the kernel for one operand of an elementwise op.

    >>> print(source("multiply", 0, "float64"))  # doctest: +ELLIPSIS
    def multiply_0_float64(n, add, g, x, y, z, out, adjoint):
        ...
    """
    for op in OPS:
        if op.name == op_name and op.elementwise:
            partial = op.partials[operand]
            if partial.function is None:
                raise ValueError(
                    f"{op_name} has the constant partial {partial.value} in operand {operand}: it needs no kernel."
                )
            return text_of(op, operand, dtype)
    raise ValueError(
        f"the kernel of {op_name!r} was asked, but there is no elementwise op of that name; see tapegrad.ops."
    )


def name_of(op: Primitive, operand: int, dtype: str) -> str:
    return f"{op.name}_{operand}_{dtype}"


def text_of(op: Primitive, operand: int, dtype: str) -> str:
    """The source of a kernel: the share of one operand's cotangent, by its partial."""
    arguments = ", ".join(
        f"item({name}, i)" for name in arguments_of(op.partials[operand].function)
    )
    partial = f"partial({arguments})"
    if dtype == "complex128":
        partial = f"conj({partial})"
    # Where an op chooses among its operands, 0 times an infinite cotangent is 0; elsewhere a cotangent of 0 stays 0.
    product = "chosen({g}, {p})" if op.partials[operand].chooses else "strong({g}, {p})"
    return _TEMPLATE.lstrip("\n").format(
        name=name_of(op, operand, dtype),
        doc=f"Operand {operand} of {op.name}: add g * partial to its adjoint.",
        share=product.format(g="item(g, i)", p=partial),
        share_in_place=product.format(g="item(adjoint, i)", p=partial),
    )


def arguments_of(function: Callable[..., Any]) -> tuple[str, ...]:
    code = function.__code__
    return code.co_varnames[: code.co_argcount]


def compile_kernel(op: Primitive, operand: int, dtype: str) -> tuple[str, bytes, list[str]]:
    """Symbol, object code, and the symbols it asks for; raises what Numba raises where nothing can compile the rule."""
    from . import vectors

    try:
        return vectors.compile_kernel(name_of(op, operand, dtype), op, operand, dtype)
    except Exception as error:  # Numba has the last word, and the better error
        handlers.hand_on(error)
    module = as_shipped(op, operand, dtype)
    return lowered(op, operand, dtype).compile() if module is None else module.compile()


def as_shipped(op: Primitive, operand: int, dtype: str) -> Module | None:
    """The text that Numba made of the kernel, where that is shipped and was made from the sources here."""
    from . import shipped

    name = name_of(op, operand, dtype)
    return shipped.kernel(name, lambda: source_fingerprint(op, operand, dtype))


def needs_numba(op: Primitive, operand: int, dtype: str) -> bool:
    """Whether Numba has to compile a kernel: it has no form as vector code, and is not shipped."""
    return not has_vector_form(op, operand, dtype) and as_shipped(op, operand, dtype) is None


def has_vector_form(op: Primitive, operand: int, dtype: str) -> bool:
    from . import vectors

    try:
        vectors.text_of("kernel", op, operand, dtype)
    except Exception as error:  # whatever a rule of a user's raises
        handlers.hand_on(error)
        return False
    return True


def lowered(op: Primitive, operand: int, dtype: str) -> EntryPoint:
    """A kernel as a function that Numba compiles; raises Unspeakable."""
    headroom.numba()
    from .access import ACCESS, KERNEL_SIGNATURE, EntryPoint, inlined

    _, _, item, put, _ = ACCESS[KIND_NAMES.index(dtype)]

    @inlined
    def conj(p):
        return np.conj(p)

    @inlined
    def chosen(g, p):
        return g * p if p != 0 else 0 * p

    @inlined
    def strong(g, p):
        return g * p if g != 0 else g

    scope = {
        "__name__": __name__, "item": item, "put": put, "conj": conj, "chosen": chosen, "strong": strong,
    }  # fmt: skip
    scope["partial"] = nopython(op.partials[operand].function)
    exec(text_of(op, operand, dtype), scope)
    return EntryPoint(scope[name_of(op, operand, dtype)], KERNEL_SIGNATURE)


def nopython(function: types.FunctionType, done: dict[Any, Any] | None = None) -> Any:
    """A rule, jitted, with the functions that it calls in their forms for compiled code; raises Unspeakable.

    The rule itself is left alone: the copy has globals and closure of its own.
    """
    from .access import inlined

    done = {} if done is None else done
    if done.get(function, function) is None:
        raise Unspeakable(f"{function.__name__} calls itself, which a kernel cannot.")
    if function not in done:
        done[function] = None

        def translated(value: Any) -> Any:
            form = _form_of(value)
            if isinstance(form, types.FunctionType):
                return nopython(form, done)
            return named.compiled(form) if _foreign(form) else form

        scope = {"__builtins__": __builtins__, "__name__": __name__}
        scope |= {name: translated(value) for name, value in _globals_of(function).items()}
        cells = tuple(
            types.CellType(translated(c.cell_contents)) for c in function.__closure__ or ()
        )
        copy = types.FunctionType(
            function.__code__, scope, function.__name__, function.__defaults__, cells or None
        )
        done[function] = inlined(copy)
    return done[function]


class Unspeakable(TypeError):
    """A rule calls what has no form in compiled code; says what."""


def _form_of(value: Any) -> Any:
    """What stands in compiled code for something that a rule refers to: for a function of the library that is a ufunc, the ufunc."""
    form = getattr(value, "nopython", value)
    if form is value and isinstance(value, types.FunctionType):
        form = next((u for u, function in UFUNCS.items() if function is value), value)
        if form is value and hasattr(value, "primitive"):
            raise Unspeakable(f"{value.__name__} has no form in compiled code.")
    if _foreign(form) and named.symbol_of(form) is None:
        raise Unspeakable(f"SciPy has no C function {form.__name__} of real numbers.")
    return form


def _foreign(form: Any) -> bool:
    """Whether it is a ufunc that Numba does not know."""
    return isinstance(form, np.ufunc) and getattr(np, form.__name__, None) is not form


def obstacle(function: types.FunctionType, seen: set[types.FunctionType] | None = None) -> str:
    """Why a rule cannot be compiled, as far as that is seen without trying; empty where nothing is seen.

    `seen` are functions that were looked at already: what a rule refers to may refer to each other.
    """
    seen = set() if seen is None else seen
    seen.add(function)
    try:
        if any(i.opname == "IMPORT_NAME" for i in dis.get_instructions(function)):
            raise Unspeakable(f"{function.__name__} imports a module while it runs.")
        for form in map(_form_of, _referred(function).values()):
            if isinstance(form, types.FunctionType) and form not in seen:
                if why := obstacle(form, seen):
                    return why
    except Unspeakable as error:
        return str(error)
    return ""


def _globals_of(function: types.FunctionType) -> dict[str, Any]:
    return {
        n: function.__globals__[n]
        for n in sorted(_names(function.__code__))
        if n in function.__globals__
    }


def _referred(function: types.FunctionType) -> dict[str, Any]:
    """What a rule refers to: globals, and what it closes over."""
    cells = enumerate(function.__closure__ or ())
    return _globals_of(function) | {f"cell {i}": cell.cell_contents for i, cell in cells}


def _names(code: types.CodeType) -> set[str]:
    """Global names that a function, or one nested in it, loads. (`co_names` has attributes too: the cos of np.cos.)

    Should a later Python spell the instruction differently, Numba will not find the name and the kernel is unavailable.
    """
    names = {i.argval for i in dis.get_instructions(code) if i.opname == "LOAD_GLOBAL"}
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            names |= _names(constant)
    return names


def fingerprint(op: Primitive, operand: int, dtype: str) -> str:
    """What a kernel depends on besides the environment: its text, the rule, and whatever the rule refers to."""
    digest = hashlib.sha256(text_of(op, operand, dtype).encode())
    digest.update(
        cache.text_of("replay/kernels", "replay/vectors", "llvm/named", "llvm/assembly").encode()
    )
    digest.update(vecmath.fingerprint().encode())
    _digest(
        op.partials[operand].function, digest, set(), lambda f: _digest_code(f.__code__, digest)
    )
    return digest.hexdigest()


def source_fingerprint(op: Primitive, operand: int, dtype: str) -> str:
    """What a kernel is made from, in every Python the same: the modules of all functions in it, as text."""
    digest = hashlib.sha256(text_of(op, operand, dtype).encode())
    digest.update(cache.text_of("replay/access", "replay/kernels", "llvm/named").encode())
    modules: set[str] = set()
    _digest(op.partials[operand].function, digest, set(), lambda f: modules.add(f.__module__))
    for module in sorted(modules):
        digest.update(Path(sys.modules[module].__file__ or "").read_bytes())
    return digest.hexdigest()


def _digest(
    function: types.FunctionType, digest: Any, seen: set[int], tell: Callable[[Any], Any]
) -> None:
    """Have each function that a rule is made of told, and digest what else they refer to."""
    if id(function) in seen:
        return
    seen.add(id(function))
    tell(function)
    for name, value in _referred(function).items():
        with contextlib.suppress(
            Unspeakable
        ):  # an op by what stands for it: a tape has no place in the key
            value = _form_of(value)
        digest.update(name.encode())
        if isinstance(value, types.FunctionType):
            _digest(value, digest, seen, tell)
        elif inspect.ismodule(value):
            digest.update(value.__name__.encode())
        else:
            digest.update(repr(value).encode())


def _digest_code(code: types.CodeType, digest: Any) -> None:
    digest.update(code.co_code)
    digest.update(repr((code.co_names, code.co_varnames, code.co_freevars)).encode())
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            _digest_code(constant, digest)
        else:
            digest.update(repr(constant).encode())
