"""SciPy's functions in compiled code: the C functions that `scipy.special.cython_special` exports, by name, and BLAS's and LAPACK's.

Of special functions a symbol says which: `tapegrad_special_jv_dd` is jv of two doubles, `tapegrad_special_psi_d` psi of one. Compiled
code asks for it like for a function of libm, and the linker finds its address here in every process anew.

Invariant: an address is given only where the exported signature is the one that the symbol names.
"""

from __future__ import annotations

import ctypes
import re
import sys
from functools import cache
from typing import Any

import numpy as np

PREFIX = "tapegrad_special_"
BLAS = "tapegrad_blas_"
GEMM = "cciiixxixixxi"
"""What dgemm and sgemm are given (`fortran`)."""
LAPACK = {
    "getrf": "iixiii", "getrs": "ciixiixii", "potrf": "cixii", "trtrs": "ccciixixii",
    "syevd": "ccixixxiiii", "gesdd": "ciixixxixixiii", "geqrf": "iixixxii", "orgqr": "iiixixxii", "gelsd": "iiixixixxixiii",
}  # fmt: skip
"""The same of LAPACK's functions that programs call, without the letter of the type."""


def pointer(capsule: Any, name: bytes | None) -> int:
    """The address in a capsule of this name."""
    get = ctypes.pythonapi.PyCapsule_GetPointer
    get.restype, get.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)
    return get(capsule, name) or 0


def exported(module: Any, function: str) -> dict[str, int]:
    """C signature -> address, of the functions that a module of Cython's exports under a name: one, or one for each type."""
    get = ctypes.pythonapi.PyCapsule_GetName
    get.restype, get.argtypes = ctypes.c_char_p, (ctypes.py_object,)
    variant = re.compile(rf"(?:__pyx_fuse(?:_\d+)+)?{function}")
    found = {}
    for name, capsule in getattr(module, "__pyx_capi__", {}).items():
        if variant.fullmatch(name):
            signature = get(capsule)
            found[signature.decode()] = pointer(capsule, signature)
    return found


def fortran(function: str, given: str) -> int:
    """The address of a function of BLAS or LAPACK, by its name (dgemm) and what it is given: letters (c), whole numbers of 32 bits (i) and
    numbers of its type (x); 0 where SciPy exports none like that (there are some of 64-bit integers).
    """
    try:
        from scipy.linalg import cython_blas, cython_lapack
    except ImportError:
        return 0
    for module, of in ((cython_blas, "11cython_blas"), (cython_lapack, "13cython_lapack")):
        kinds = {"c": "char", "i": "int", "x": f"__pyx_t_5scipy_6linalg_{of}_{function[0]}"}
        expected = f"void ({', '.join(kinds[x] + ' *' for x in given)})"
        if address := exported(module, function).get(expected):
            return address
    return 0


def _signature(count: int) -> str:
    return f"double ({'double, ' * count}int __pyx_skip_dispatch)"


@cache
def _address(name: str, count: int) -> int:
    try:
        from scipy.special import cython_special
    except ImportError:
        return 0
    found = exported(cython_special, name).get(_signature(count), 0)
    return _ending(name, found, _address("gammasgn", 1)) if found and name == "hyp1f1" else found


def _ending(name: str, address: int, sign: int) -> int:
    """The address of a function in front of SciPy's hyp1f1, whose series does not end far out: there the value is infinite.

    The condition is that of the eager function (ops/special/hypergeometric.py).
    """
    from . import assembly
    from .cache import Part
    from .linker import link

    symbol = f"tapegrad_ending_{name}"
    code, asks = assembly.assemble(_ENDING.format(symbol=symbol, address=address, sign=sign))
    return link(symbol, [Part("function", symbol, tuple(asks), code)])["function"]


_ENDING = """
define double @{symbol}(double %a, double %b, double %x, i32 %skip) {{
  %out = fcmp ogt double %x, 1.0e5
  br i1 %out, label %look, label %usual
look:
  %root = call double @llvm.sqrt.f64(double %x)
  %few = call double @llvm.sqrt.f64(double %root)
  %size.a = call double @llvm.fabs.f64(double %a)
  %size.b = call double @llvm.fabs.f64(double %b)
  %small.a = fcmp olt double %size.a, %few
  %small.b = fcmp olt double %size.b, %few
  %small = and i1 %small.a, %small.b
  %floor = call double @llvm.floor.f64(double %a)
  %whole = fcmp oeq double %a, %floor
  %positive = fcmp ogt double %a, 0.0
  %fraction = xor i1 %whole, true
  %series = or i1 %positive, %fraction
  %far = and i1 %small, %series
  br i1 %far, label %infinite, label %usual
infinite:
  %sign = inttoptr i64 {sign} to ptr
  %sign.a = call double %sign(double %a, i32 0)
  %sign.b = call double %sign(double %b, i32 0)
  %both = fmul double %sign.a, %sign.b
  %value = fmul double %both, 0x7FF0000000000000
  ret double %value
usual:
  %scipys = inttoptr i64 {address} to ptr
  %result = call double %scipys(double %a, double %b, double %x, i32 0)
  ret double %result
}}
declare double @llvm.sqrt.f64(double)
declare double @llvm.fabs.f64(double)
declare double @llvm.floor.f64(double)
"""


def symbol_of(ufunc: np.ufunc) -> str | None:
    """The symbol of a function of SciPy's with doubles in and a double out; None where there is no such C function."""
    special = sys.modules.get("scipy.special")  # where it is not loaded, no function is SciPy's
    name, count = ufunc.__name__, ufunc.nin
    if ufunc.nout != 1 or getattr(special, name, None) is not ufunc or not _address(name, count):
        return None
    return f"{PREFIX}{name}_{'d' * count}"


def function_of(symbol: str) -> str:
    """The function's name in a symbol; of another name, that."""
    if not symbol.startswith(PREFIX):
        return symbol
    return symbol.removeprefix(PREFIX).rpartition("_")[0]


def address_of(symbol: str) -> int | None:
    """Where the function is that a symbol of `symbol_of`, or of a function of BLAS or LAPACK, names; None where this SciPy has none."""
    if symbol.startswith(BLAS):
        name = symbol.removeprefix(BLAS)
        return fortran(name, LAPACK.get(name[1:], GEMM)) or None
    letters = symbol.rpartition("_")[2]
    return _address(function_of(symbol), len(letters)) or None


def compiled(ufunc: np.ufunc, by_name: bool = True) -> Any:
    """A function for nopython code that calls SciPy's: of real numbers, in double precision.

    By its name, which our linker knows in every process; or by its address, and then Numba keeps no code on disk that would hold it.
    """
    import llvmlite.binding as llvm
    from llvmlite import ir
    from numba import types
    from numba.core import cgutils
    from numba.extending import intrinsic

    symbol = symbol_of(ufunc)
    assert symbol is not None
    address = address_of(symbol)
    if (
        by_name
    ):  # Numba's own linker, for what is not compiled by this package's entry points, is told here.
        llvm.add_symbol(symbol, address)
    double, names = ir.DoubleType(), [f"a{i}" for i in range(ufunc.nin)]

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        made = ir.FunctionType(double, [double] * len(args) + [ir.IntType(32)])
        if by_name:
            function = cgutils.get_or_insert_function(builder.module, made, symbol)
        else:
            pointer = context.add_dynamic_addr(builder, address, info=symbol)
            function = builder.bitcast(pointer, made.as_pointer())
        return builder.call(function, [*args, ir.Constant(ir.IntType(32), 0)])

    def typed(*given: Any) -> Any:
        real = (types.Integer, types.Float, types.Boolean)
        if all(isinstance(t, real) for t in given):
            return types.float64(*[types.float64] * len(given)), generate
        return None

    scope = {"typed": typed}
    # An intrinsic's parameters are named, so a variable number of them takes generated text.
    exec(
        f"def {ufunc.__name__}(typing, {', '.join(names)}): return typed({', '.join(names)})", scope
    )
    return intrinsic(scope[ufunc.__name__])
