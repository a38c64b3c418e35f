"""The compiler: `tg.compile(f)` runs `f` once per signature of its arguments and keeps what it does as a program.

    tracing    the run: every NumPy call on a traced value is recorded, whatever transforms are inside
    graph      what was recorded: nodes and guards
    callout    a graph as a list of NumPy calls: the executor that computes everything
    lowering   calls as array expressions, where there is one; arrays: these expressions, simplified as they are made
    partition  which calls become machine code, and what stays a NumPy call
    sharing    what several calls compute of one matrix, once; summing: sums of products of matrices, of which one factor is summed first
    schedule   loops, blocks and memory for expressions; emit: LLVM IR of a schedule; arithmetic: elementwise
    keeping    what the loops of a derivative need again, as rows that the loops before keep; outer: sums of outer products behind loops
    turns      a part of the tape that repeats, as one entry before the walk back; rolling: a stretch of calls that repeats as a loop
    triangles  loops over growing slices, and steps of stencils in place, as programs of the form (`tapegrad.program`); regions: their
               calls as instructions on parts of arrays; windings: these as loops
    sources    functions that would make a long trace, read from their source as programs of the form
    stores     what is written to one row of an array, read from where it was computed; guards: those as calls
    iteration  loops that say they are loops, by one step
    team       threads that share large loops; support: that and the rest of what all programs call, compiled once
    native     a module; entrance: its entry from Python
    nesting    loops, and loops in their steps, as one; islands: such modules between NumPy's calls
    routines   calls that are machine code of their own: linear systems, running sums, orders; writer: their text; exponential: of matrices
    borrowed   loops of NumPy's ufuncs, called by address: fourier (transforms), products (of large matrices), decompositions, ufuncs
    lapack     linear systems of more than a few rows; sparse: products and triangular systems of sparse matrices
    program    signatures, guards, which program a call gets; surroundings: what a function reads beside its arguments
    entry      a call on tracked tensors: one entry of the outer tape
    cfunctions a program at an address, with a C signature

Invariant: a compiled function returns what the function itself would, or raises.
"""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, TypeVar, overload

import numpy as np

from ..core import markup, seams, storage
from ..errors import demand_callable
from .program import Program, Programs, taken_apart
from .report import Report
from .tracing import traced_in

if TYPE_CHECKING:
    from .cfunctions import CFunction
    from .clocks import Timings

P = ParamSpec("P")
R = TypeVar("R")

MOST_SIGNATURES = 64
"""Signatures of one function that are kept; the least recently used goes first."""


def _in_order(a: Any) -> Any:
    """An array in C order; of any other argument nothing is asked."""
    return a.copy() if type(a) is np.ndarray and not a.flags.c_contiguous else a


class _Others:
    """Where an entry sends calls that it does not take: to the compiled function, which holds the entry and is held weakly."""

    __slots__ = ("compiled", "settings")

    def __init__(self, compiled: Compiled) -> None:
        self.compiled = weakref.ref(compiled)
        self.settings = (compiled.f, compiled.static, compiled.programs.most)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        compiled = self.compiled()
        if compiled is None:  # somebody kept the entry alone, as in `call = tg.compile(f).__call__`
            compiled = Compiled(*self.settings)
            self.compiled = weakref.ref(compiled)
        return compiled.dispatch(*args, **kwargs)


def _prefer(compiled: weakref.ref[Compiled], program: Program) -> None:
    """Let calls go to this program's entry at once; it sends back what is not for it."""
    entry = seams.clock(program.direct) if seams.clock else program.direct
    if (of := compiled()) is not None:
        type(of).__call__ = entry  # type: ignore[method-assign]


ALIVE: weakref.WeakSet[Any] = weakref.WeakSet()
"""Compiled functions, whose calls a profile looks at."""


class Compiled(Generic[P, R]):
    """A compiled function; made by `tg.compile`. Called like the function itself.

    Each has a class of its own, since what a call runs is looked up there: once there is a native entry it is the
    class's `__call__`, so that no Python code stands between the caller and the machine code.

    >>> import numpy as np, tapegrad as tg
    >>> norm = tg.compile(lambda x: np.sqrt(np.sum(x**2)))
    >>> norm(np.array([3.0, 4.0]))
    np.float64(5.0)
    >>> print(norm.source)
    native part 0:
      for [2]:
        add into %4:reduce[] over axes (0,)
      for []:
        store %5:sqrt[]
    >>> "define" in norm.ir, norm.report().loops
    (True, 2)
    """

    def __new__(cls, *args: Any) -> Any:
        return object.__new__(type("Compiled", (cls,), {"__module__": cls.__module__}))

    def __init__(self, f: Callable[P, R], static: frozenset[int], most: int) -> None:
        functools.update_wrapper(self, f, updated=())
        self.f = f
        self.static = static
        ALIVE.add(self)
        self.programs = Programs(f, getattr(f, "__name__", type(f).__name__), most)
        self.programs.slow = _Others(self)
        self.programs.prefer = functools.partial(_prefer, weakref.ref(self))
        self._pulls: dict[Any, Any] = {}
        self._derived: dict[Any, Compiled] = {}
        self.numbers: tuple[int, ...] = ()
        """Positions of arguments to differentiate by, of which Python's ints are numbers like any other, and not a program each."""

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        return self.dispatch(*args, **kwargs)

    def __del__(self) -> None:
        # A class is freed by the cyclic collector alone: what it holds would wait for that, with all that the function closes over.
        if "__call__" in vars(type(self)):
            del type(self).__call__

    def dispatch(self, *args: Any, **kwargs: Any) -> Any:
        """A call, by the program that its signature has."""
        if storage.tracing.get() and traced_in((args, tuple(kwargs.values()))) is not None:
            return self.f(*args, **kwargs)  # part of the program that is being traced
        if type(self).__call__ is not Compiled.__call__ and not (kwargs or self.programs.laid):
            # The entry takes arrays in C order: a copy is made in a hundredth of the time that a call takes from here on.
            laid = tuple(_in_order(a) for a in args)
            if any(a is not b for a, b in zip(laid, args, strict=True)):
                return self(*laid)  # type: ignore[arg-type, call-arg]
        if self.numbers:
            args = self._with_floats(args)
        call = taken_apart(args, kwargs, self._static(len(args)), self.programs.compares)
        if call.tensors and call.tracked:
            from .entry import recorded

            return recorded(self, call, self._pulls)
        return self.programs.run(call)

    def _with_floats(self, args: tuple[Any, ...]) -> tuple[Any, ...]:
        import optree

        n = len(args)
        chosen = {i % n for i in self.numbers if -n <= i < n} - self._static(n)

        def number(x: Any) -> Any:
            return float(x) if type(x) is int else x

        return tuple(optree.tree_map(number, x) if i in chosen else x for i, x in enumerate(args))

    def _static(self, n: int) -> frozenset[int]:
        return frozenset(i % n for i in self.static if -n <= i < n) if self.static else self.static

    def sibling(self, f: Callable[..., Any]) -> Compiled:
        """Another function compiled in the same way."""
        return Compiled(f, frozenset(), self.programs.most)

    def __reduce__(self) -> tuple[Any, ...]:
        """The function: programs are made again where it arrives, from the object code on that machine's disk if it is there."""
        return Compiled, (self.f, self.static, self.programs.most)

    def derived(
        self, transform: Callable[..., Any], key: Any = None, numbers: tuple[int, ...] = ()
    ) -> Compiled:
        """`transform` of the function, compiled as a whole, forward and backward; made once for a `key`, or a transform."""
        key = transform if key is None else key
        if key not in self._derived:
            whole = Compiled(transform(self.f), self.static, self.programs.most)
            whole.numbers = numbers
            whole.programs.before_trace = self.programs.before_trace
            self._derived[key] = whole
        return self._derived[key]

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        """As a method: the instance is a first argument, and static unless it is a pytree."""
        return self if instance is None else functools.partial(self, instance)

    def program(self, *args: Any, **kwargs: Any) -> Program:
        """The program for these arguments, traced if there is none yet.

        The function is run once more where its first run changed what it reads beside its arguments, since no program is kept of
        such a run. Raises TraceError where it changes that each time.
        """
        while True:
            call = taken_apart(args, kwargs, self._static(len(args)), self.programs.compares)
            if known := self.programs.fitting(call):
                return known[0]
            self.programs.trace(call)

    def cfunc(self, x: Any, /, *data: Any, form: str = "status") -> CFunction:
        """A C function of a vector: the program for `x` (a vector) and `data`, at an address that other compiled code can call.

        The result has `address`, `signature` (the C prototype) and `ctypes` (callable from Numba's nopython code, and what
        `scipy.LowLevelCallable` takes). `form` is the signature:

            "status"  int64_t f(int64_t n, const double *x, double *result0, double *result1, ...)
            "nutpie"  int64_t f(uint64_t n, const double *x, double *gradient, double *value, void *data)
            "quad"    double f(int n, double *x, void *data)
            "filter"  int f(double *x, intptr_t n, double *value, void *data)

        It takes vectors of the length of `x`. `data` and what the function reads beside its arguments are copied: later changes are not
        seen. Status: 0 done, -1 another length, -2 no memory, -3 values for which Python would take another branch or raise, -4 Ctrl-C
        in a loop; "nutpie" also 1, where the value or the gradient is not finite. "quad" returns NaN where the status is not 0, "filter"
        0 there and else 1. Threads may call it at once; it does not need the interpreter lock. `x` and the results are contiguous, and none
        overlaps another. The address stays valid until the process ends: machine code and copies of `data` are never freed, so what
        changes often belongs in `x`. The same program with equal data gives the same object.

        Raises TypeError for another argument than a vector or for results that are not float64, TraceError where part of the program
        calls Python.

        >>> import numpy as np, tapegrad as tg
        >>> gradient = tg.compile(tg.grad(lambda x: np.sum(x * x * x))).cfunc(np.zeros(2))
        >>> gradient.signature
        'int64_t f(int64_t n, const double *x, double *result0)'
        >>> from ctypes import c_double
        >>> x, out = (c_double * 2)(1.0, 2.0), (c_double * 2)()
        >>> gradient.ctypes(2, x, out), list(out)
        (0, [3.0, 12.0])
        """
        from .cfunctions import made

        return made(self.programs, self._static(1 + len(data)), x, data, form)

    @property
    def latest(self) -> Program:
        """The program that was used last. Raises ValueError before the first call."""
        for programs in reversed(self.programs.by_key.values()):
            return programs[0]
        raise ValueError("nothing is compiled yet: call the function once, or ask program(*args).")

    @property
    def ir(self) -> str:
        """LLVM IR of the program used last: one module for each native part."""
        return markup.Lines("\n".join(native.text for native in self.latest.natives))

    def report(self) -> Report:
        """What the program used last consists of: calls, loops, memory, work, compile time."""
        return self.latest.report(self.programs.name)

    def profile(self, *args: P.args, **kwargs: P.kwargs) -> Timings:
        """Where the time of a call with these arguments goes, by loop nest: prints as a table, the costliest first.

        The function is traced and compiled once more, with a reading of the processor's counter before and behind each loop nest and each
        routine (products of matrices, factorisations), and run for about 0.2 s. A row has the lines of your code, what is computed, how
        often the nest runs in a call, and its seconds. A nest of the reverse pass names the lines whose values it reads. A reading takes
        some 20 ns, so rows that run many thousand times a call look slower than they are.

        Raises what a call raises; NotImplementedError where the processor has no counter that programs may read.

        >>> import numpy as np, tapegrad as tg
        >>> fast = tg.compile(tg.value_and_grad(lambda x: np.sum(np.exp(-x * x))))
        >>> timings = fast.profile(np.ones(1000))
        >>> timings.rows[0].runs, timings.seconds > 0.0
        (1.0, True)
        """
        from .clocks import measured

        return measured(self, args, kwargs)

    @property
    def source(self) -> str:
        """A readable listing of the program used last."""
        return markup.Lines(self.latest.source)

    def __repr__(self) -> str:
        return f"<compiled {self.programs.name}: {len(self.programs.by_key)} signature(s)>"

    def _repr_html_(self) -> str | None:
        """The report of the program used last, under the function's name; None (the plain repr) before there is one."""
        return self.report()._repr_html_() if self.programs.by_key else None


@overload
def compile(
    f: Callable[P, R],
    *,
    static_argnums: int | tuple[int, ...] = (),
    max_signatures: int = MOST_SIGNATURES,
) -> Compiled[P, R]: ...
@overload
def compile(
    f: None = None,
    *,
    static_argnums: int | tuple[int, ...] = (),
    max_signatures: int = MOST_SIGNATURES,
) -> Callable[[Callable[P, R]], Compiled[P, R]]: ...
def compile(
    f: Callable[..., Any] | None = None,
    *,
    static_argnums: int | tuple[int, ...] = (),
    max_signatures: int = MOST_SIGNATURES,
) -> Any:
    """The function, compiled: it runs once per signature of its arguments, and then as a program of what it did.

    Arguments and results are pytrees of arrays, tensors and numbers. Arrays, tensors, NumPy scalars and Python's floats and complex
    numbers are dynamic: their values may change from call to call. Python's ints, bools, strings and everything else are
    part of the signature, as are `static_argnums`; for another value the function is traced again. Transforms go inside:
    `tg.compile(tg.value_and_grad(loss))`; around a compiled function they do as if they were (`tg.grad(tg.compile(loss))`). A compiled
    function called on tracked tensors is one entry of their tape.

    A value that Python looks at while tracing (`if x > 0`, `float(x)`, `range(n)`) is checked at each call, and leads to
    another trace where it differs; so does what it reads beside its arguments. `compiler.surroundings.WAYS` says, way by way, what is
    guarded, refused and not seen. Effects other than the result (printing, a log) happen only while tracing, and so do NumPy's
    warnings about values: `np.errstate` is not seen by later calls. A step of `scan`,
    `fori_loop` and `while_loop` is traced for all, unless it has effects on what it closes over. Raises TraceError for what
    cannot be compiled: a write into an argument, random numbers, a function traced again and again because Python reads values that
    always change.

    >>> import numpy as np, tapegrad as tg
    >>> f = tg.compile(tg.value_and_grad(lambda x: np.sum(x * x * x)))
    >>> f(np.array([0.0, 1.0, 2.0]))
    (np.float64(9.0), array([ 0.,  3., 12.]))
    """
    if f is None:
        return functools.partial(
            compile, static_argnums=static_argnums, max_signatures=max_signatures
        )
    demand_callable(f, "compile")
    static = static_argnums if isinstance(static_argnums, tuple | list) else (static_argnums,)
    if not all(isinstance(i, int | np.integer) for i in static):
        raise TypeError(
            f"static_argnums={static_argnums!r} was given, but it is the position of an argument, or a tuple of positions."
        )
    return Compiled(f, frozenset(static), max(1, int(max_signatures)))


__all__ = ["Compiled", "Program", "compile"]
