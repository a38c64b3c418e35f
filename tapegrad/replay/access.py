"""Raw memory in nopython code: loads, stores, allocation and calls through addresses.

Everything the machine touches is an int64 address, so no Numba array (and none of Numba's runtime) is
involved, and the object code depends on nothing but libc and libm. This module imports Numba: it is itself
imported only where something is compiled.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from llvmlite import ir
from numba import cfunc, njit, types
from numba.core.codegen import JITCodeLibrary, JITCPUCodegen
from numba.core.compiler_lock import global_compiler_lock
from numba.extending import intrinsic

from .layout import COMPLEX128, FLOAT32, FLOAT64, SIZES

_I8, _I32, _I64 = ir.IntType(8), ir.IntType(32), ir.IntType(64)
int64, float64, float32, complex128 = types.int64, types.float64, types.float32, types.complex128
ADDRESS = types.int64

# numpy: division by zero gives inf and nan, as in the sweep, instead of raising. No NRT: nothing is managed.
# No wrappers: nobody calls these functions from Python.
_OPTIONS: dict[str, Any] = {
    "error_model": "numpy",
    "_nrt": False,
    "no_cpython_wrapper": True,
    "no_cfunc_wrapper": True,
}
_C_OPTIONS: dict[str, Any] = {"error_model": "numpy", "_nrt": False}
native = njit(**_OPTIONS)
inlined = njit(**_OPTIONS, forceinline=True)
# Only sums may be reordered: eight lanes at a time instead of one after another.
summing = njit(**_OPTIONS, fastmath={"reassoc"})


@dataclass(frozen=True, slots=True)
class EntryPoint:
    """A C function to be: called by Python through ctypes, or by the machine through its address."""

    function: Any
    signature: Any

    def compile(self) -> tuple[str, bytes, list[str]]:
        """Its symbol, its object code, and the symbols the object code asks for."""
        symbol, library = self.lowered()
        asks = asked_for(library.get_llvm_str())
        return symbol, library._codegen._tm.emit_object(library._final_module), asks

    def lowered(self) -> tuple[str, Any]:
        """Its symbol, and Numba's library with its module in LLVM's language."""
        with _unemitted():
            compiled = cfunc(self.signature, **_C_OPTIONS)(self.function)
        return compiled.native_name, compiled._library


@contextmanager
def _unemitted() -> Iterator[None]:
    """While this package's functions are compiled, their helpers stay in LLVM's language until all is inlined.

    Numba would emit machine code for every helper at once. That takes time, and it is not safe: LLVM's code generator changes
    a module into a form that must not be optimised again, which is what happens to a helper when it is inlined. (Seen with
    Numba 0.68 and LLVM 22: base + offset became a pointer made of the offset, indexed by the base; where the offset is 0 that
    is an access by way of NULL, and the path was removed as impossible.)
    """
    libraries: Any = JITCodeLibrary
    codegens: Any = JITCPUCodegen
    finish, emit = libraries._finalize_final_module, libraries.get_pointer_to_function
    set_env = codegens.set_env

    def finish_others(library: Any) -> None:
        if any(_OURS in f.name for f in library._final_module.functions if not f.is_declaration):
            library._finalized = True
        else:
            finish(library)

    def emit_others(library: Any, name: str) -> int:
        if _OURS not in name:
            return emit(library, name)
        library._ensure_finalized()
        return 0

    def set_env_of_others(codegen: Any, name: str, env: Any) -> None:
        if _OURS not in name:
            set_env(codegen, name, env)

    with global_compiler_lock:
        libraries._finalize_final_module = finish_others
        libraries.get_pointer_to_function = emit_others
        codegens.set_env = set_env_of_others
        try:
            yield
        finally:
            libraries._finalize_final_module = finish
            libraries.get_pointer_to_function = emit
            codegens.set_env = set_env


_OURS = "8tapegrad6replay"
"""Part of the mangled names of functions of this package."""


def asked_for(text: str) -> list[str]:
    """Symbols that a module of LLVM's language needs from outside; its intrinsics end as calls of libm."""
    names = set(re.findall(r'^declare [^@]*@"?([^"(\s]+)', text, re.MULTILINE))
    names |= set(re.findall(r'^@"?([^"\s]+)"? = external [^\n]*global', text, re.MULTILINE))
    symbols = {name for name in names if not name.startswith("llvm.")}
    for name, width in re.findall(r"@llvm\.(\w+)\.f(32|64)\(", text):
        if name in _LIBM:
            symbols.add(name if width == "64" else name + "f")
    return sorted(symbols)


_LIBM = frozenset(
    "sin cos tan exp exp2 exp10 log log2 log10 pow floor ceil trunc rint round nearbyint copysign fma".split()
)


def entry_point(signature: Any) -> Any:
    """Decorator: a nopython function with a C signature, compiled when asked."""
    return lambda function: EntryPoint(function, signature)


def _loader(
    name: str, memory: ir.Type, result: types.Type, *, signed: bool = True, indexed: bool = False
) -> Any:
    """An intrinsic that reads memory: `load(address)`, or element `load(base, i)` of a dense array."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        pointer = builder.inttoptr(args[0], memory.as_pointer())
        if indexed:
            pointer = builder.gep(pointer, [args[1]])
        value = builder.load(pointer)
        if isinstance(memory, ir.IntType) and memory.width < 64:
            value = (builder.sext if signed else builder.zext)(value, _I64)
        return value

    if indexed:

        def load(typing: Any, base: Any, i: Any) -> Any:
            return result(ADDRESS, int64), generate
    else:

        def load(typing: Any, address: Any) -> Any:
            return result(ADDRESS), generate

    load.__name__ = name
    return intrinsic(load)


def _storer(name: str, memory: ir.Type, value: types.Type, *, indexed: bool = False) -> Any:
    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        pointer = builder.inttoptr(args[0], memory.as_pointer())
        if indexed:
            pointer = builder.gep(pointer, [args[1]])
        stored = args[-1]
        if isinstance(memory, ir.IntType) and memory.width < 64:
            stored = builder.trunc(stored, memory)
        builder.store(stored, pointer)
        return context.get_dummy_value()

    if indexed:

        def store(typing: Any, base: Any, i: Any, v: Any) -> Any:
            return types.void(ADDRESS, int64, value), generate
    else:

        def store(typing: Any, address: Any, v: Any) -> Any:
            return types.void(ADDRESS, value), generate

    store.__name__ = name
    return intrinsic(store)


load_i64 = _loader("load_i64", _I64, int64)
load_i32 = _loader("load_i32", _I32, int64)
load_u32 = _loader("load_u32", _I32, int64, signed=False)
load_u8 = _loader("load_u8", _I8, int64, signed=False)
load_f64 = _loader("load_f64", ir.DoubleType(), float64)
load_f32 = _loader("load_f32", ir.FloatType(), float32)
store_i64 = _storer("store_i64", _I64, int64)
store_i32 = _storer("store_i32", _I32, int64)
store_u8 = _storer("store_u8", _I8, int64)
store_f64 = _storer("store_f64", ir.DoubleType(), float64)
store_f32 = _storer("store_f32", ir.FloatType(), float32)

# Words of a block of memory: `get(block, word)`, `put(block, word, value)`. As intrinsics rather than functions they
# halve what LLVM has to inline, and so the time to compile.
get = _loader("get", _I64, int64, indexed=True)
put = _storer("put", _I64, int64, indexed=True)

item_f64 = _loader("item_f64", ir.DoubleType(), float64, indexed=True)
item_f32 = _loader("item_f32", ir.FloatType(), float32, indexed=True)
put_f64 = _storer("put_f64", ir.DoubleType(), float64, indexed=True)
put_f32 = _storer("put_f32", ir.FloatType(), float32, indexed=True)


@native
def load_c128(address):
    return complex(load_f64(address), load_f64(address + 8))


@native
def store_c128(address, v):
    v = complex128(v)
    store_f64(address, v.real)
    store_f64(address + 8, v.imag)


@native
def item_c128(base, i):
    return complex(item_f64(base, 2 * i), item_f64(base, 2 * i + 1))


@native
def put_c128(base, i, v):
    v = complex128(v)
    put_f64(base, 2 * i, v.real)
    put_f64(base, 2 * i + 1, v.imag)


def _caller(name: str, result: types.Type, arguments: Sequence[types.Type]) -> Any:
    """An intrinsic that calls the C function at an address: `call(address, *arguments)`."""
    irs = {int64: _I64, types.int32: _I32, float64: ir.DoubleType(), types.void: ir.VoidType()}
    signature = result(ADDRESS, *arguments)
    parameters = ", ".join(f"a{i}" for i in range(len(arguments)))

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        function = ir.FunctionType(irs[result], [irs[a] for a in arguments])
        value = builder.call(builder.inttoptr(args[0], function.as_pointer()), args[1:])
        return context.get_dummy_value() if result is types.void else value

    # An intrinsic's parameters are named, so a variable number of them takes generated text.
    scope = {"signature": signature, "generate": generate}
    exec(f"def {name}(typing, address, {parameters}): return signature, generate", scope)
    return intrinsic(scope[name])


# What is called through addresses: kernels (kernels.py says what the arguments are), the steps, how those of one operand begin, and
# three loops that would otherwise be compiled into each of their many callers, which takes LLVM most of a minute.
KERNEL_SIGNATURE = types.void(*[int64] * 8)
STEP_SIGNATURE = int64(*[ADDRESS] * 7)
SOLE_SIGNATURE = int64(*[ADDRESS] * 5)
LOOP_SIGNATURE = types.void(ADDRESS, ADDRESS, int64, int64, ADDRESS, float64, int64)
SCALED_SIGNATURE = types.void(int64, int64, int64, float64, *[int64] * 4)
GATHER_SIGNATURE = types.void(*[int64] * 6)
call_kernel = _caller("call_kernel", types.void, KERNEL_SIGNATURE.args)
call_step = _caller("call_step", int64, STEP_SIGNATURE.args)
call_sole = _caller("call_sole", int64, SOLE_SIGNATURE.args)
call_loop = _caller("call_loop", types.void, LOOP_SIGNATURE.args)
call_scaled = _caller("call_scaled", types.void, SCALED_SIGNATURE.args)
call_gather = _caller("call_gather", types.void, GATHER_SIGNATURE.args)

# Functions of the machine itself and of NumPy, by the addresses that the world has.
call_void = _caller("call_void", types.void, [ADDRESS])
call_1 = _caller("call_1", int64, [int64])
call_2 = _caller("call_2", int64, [int64] * 2)
call_3 = _caller("call_3", int64, [int64] * 3)
NEW_ARRAY: list[Any] = [
    ADDRESS,
    types.int32,
    ADDRESS,
    types.int32,
    ADDRESS,
    ADDRESS,
    types.int32,
    types.int32,
    ADDRESS,
]
call_gemm = _caller("call_gemm", types.void, [ADDRESS] * 13)
call_new_array = _caller("call_new_array", ADDRESS, NEW_ARRAY)

# What makes and holds Python objects.
new_int = types.ExternalFunction("PyLong_FromLongLong", ADDRESS(int64))
new_tuple = types.ExternalFunction("PyTuple_New", ADDRESS(int64))
new_object = types.ExternalFunction("PyType_GenericAlloc", ADDRESS(ADDRESS, int64))
as_float = types.ExternalFunction("PyNumber_Float", ADDRESS(ADDRESS))
hold = types.ExternalFunction("Py_IncRef", types.void(ADDRESS))
new_list = types.ExternalFunction("PyList_New", ADDRESS(int64))
item_of_dict = types.ExternalFunction("PyDict_GetItemWithError", ADDRESS(ADDRESS, ADDRESS))
value_of_variable = types.ExternalFunction(
    "PyContextVar_Get", types.int32(ADDRESS, ADDRESS, ADDRESS)
)
append = types.ExternalFunction("PyList_Append", types.int32(ADDRESS, ADDRESS))
differs = types.ExternalFunction("PyUnicode_CompareWithASCIIString", types.int32(ADDRESS, ADDRESS))

# What calls Python's objects, and its exceptions.
call_with_none = types.ExternalFunction("PyObject_CallNoArgs", ADDRESS(ADDRESS))
call_with_one = types.ExternalFunction("PyObject_CallOneArg", ADDRESS(ADDRESS, ADDRESS))
call_with_tuple = types.ExternalFunction("PyObject_Call", ADDRESS(ADDRESS, ADDRESS, ADDRESS))
call_with_some = types.ExternalFunction(
    "PyObject_Vectorcall", ADDRESS(ADDRESS, ADDRESS, int64, ADDRESS)
)
exception_is = types.ExternalFunction("PyErr_ExceptionMatches", types.int32(ADDRESS))
clear_exception = types.ExternalFunction("PyErr_Clear", types.void())

# The processor's flags of floating-point errors.
raised_flags = types.ExternalFunction("fetestexcept", types.int32(types.int32))
clear_flags = types.ExternalFunction("feclearexcept", types.int32(types.int32))
no_memory = types.ExternalFunction("PyErr_NoMemory", ADDRESS())
set_item = types.ExternalFunction("PyDict_SetItem", types.int32(ADDRESS, ADDRESS, ADDRESS))
release_object = types.ExternalFunction("Py_DecRef", types.void(ADDRESS))

# Python's raw allocator: malloc, the same on every platform, seen by tracemalloc and by PYTHONMALLOC=debug.
raw_malloc = types.ExternalFunction("PyMem_RawMalloc", ADDRESS(int64))
raw_calloc = types.ExternalFunction("PyMem_RawCalloc", ADDRESS(int64, int64))
raw_free = types.ExternalFunction("PyMem_RawFree", types.void(ADDRESS))
memset = types.ExternalFunction("memset", ADDRESS(ADDRESS, types.int32, int64))
memcpy = types.ExternalFunction("memcpy", ADDRESS(ADDRESS, ADDRESS, int64))

# Per kind with kernels: element access by address and by index, and the size of an element.
ACCESS = {
    FLOAT64: (load_f64, store_f64, item_f64, put_f64, SIZES[FLOAT64]),
    FLOAT32: (load_f32, store_f32, item_f32, put_f32, SIZES[FLOAT32]),
    COMPLEX128: (load_c128, store_c128, item_c128, put_c128, SIZES[COMPLEX128]),
}

REAL = FLOAT64, FLOAT32
ALL = FLOAT64, FLOAT32, COMPLEX128


def by_kind(make: Any, kinds: Sequence[int] = ALL) -> Any:
    """A nopython function of several kinds, whose first argument is the kind: it calls what `make(kind)` gives, the last kind's for others.

    Where `make` gives several functions, so are these.
    """
    made = [make(kind) for kind in kinds]
    if isinstance(made[0], tuple):
        return tuple(_chosen(each, kinds) for each in zip(*made, strict=True))
    return _chosen(made, kinds)


def _chosen(functions: Sequence[Any], kinds: Sequence[int]) -> Any:
    names = functions[0].py_func.__code__.co_varnames[: functions[0].py_func.__code__.co_argcount]
    passed = ", ".join(names)
    lines = [f"def chosen(kind, {passed}):"]
    lines += [f"    if kind == {k}: return f{k}({passed})" for k in kinds[:-1]]
    lines += [f"    return f{kinds[-1]}({passed})"]
    scope = {f"f{k}": f for k, f in zip(kinds, functions, strict=True)}
    scope["__name__"] = __name__  # by which `_unemitted` knows it
    exec("\n".join(lines), scope)
    return native(scope["chosen"])
