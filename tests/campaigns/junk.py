"""Junk: whatever the public functions are called with, they answer or raise what a user can understand.

A trial calls one public name (a function, a method, what a transform or a compiled function returned, a property that is set) with a mixture
of good arguments and junk: other types, text, None, empty arrays, axes that are not there, huge integers, nested lists, tensors in place of
settings, objects whose every method raises. Calls run in a child process under a limit of memory and of time. Each call ends in a value or in
a documented error. An AttributeError, KeyError, IndexError, AssertionError, ZeroDivisionError or another error of the library's own
lines is a fault, unless a `raise` statement of the library raised it, or NumPy or SciPy raises the same for the same arguments. So is an error that
names a function which the caller has not called, a crash, and a call that does not end. After each call grad mode, engine and tapes are as before.
"""

from __future__ import annotations

import builtins
import contextlib
import inspect
import linecache
import multiprocessing
import os
import re
import resource
import signal
import tempfile
import traceback
import types
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

import tapegrad as tg
from tapegrad.check.samples import samples_of
from tapegrad.core import tape
from tapegrad.core.primitive import OPS
from tapegrad.help import names
from tests.campaigns.runner import main

SECONDS, PATIENCE, BYTES = 20, 180, 6 << 30

EXCUSED = {
    "tapegrad.diff", "tapegrad.numpy.diff", "tapegrad.Tensor.diff",
    "tapegrad.fori_loop", "tapegrad.arange", "tapegrad.numpy.pad", "tapegrad.set_num_threads", "tapegrad.check_op", "tapegrad.check.check_op",
    "tapegrad.special.multigammaln", "tapegrad.Tensor.mvlgamma", "tapegrad.Tensor.mvlgamma_", "tapegrad.special.kvp", "tapegrad.special.ivp",
    "tapegrad.special.jvp", "tapegrad.special.yvp", "tapegrad.special.h1vp", "tapegrad.special.h2vp", "tapegrad.optim.Optimizer.update",
    "tapegrad.numpy.show_runtime", "tapegrad.numpy.show_config", "tapegrad.numpy.test", "tapegrad.numpy.info",
    "tapegrad.native.NativeFunction.inspect_llvm", "tapegrad.native.NativeFunction.inspect_asm",
}  # fmt: skip
"""They run as long as they are asked to, or are no functions that a caller of the library calls."""

INTERNAL = (
    ArithmeticError, AssertionError, AttributeError, LookupError, NameError, RecursionError, ReferenceError, StopIteration, SyntaxError,
    SystemError, UnicodeError,
)  # fmt: skip
NUMPYS = re.compile(
    r"out of bounds|too many indices|only integers, slices|index array|boolean index|arrays used as ind|take from an empty|an index can only|shape mismatch"
)
"""What NumPy says of an index that a user wrote."""


class Boom(Exception):
    """What an object of the user raises comes out as it is."""


class Raises:
    """Every question to it raises."""

    def __getattr__(self, name: str) -> Any:
        raise Boom(name)

    def _boom(self, *_: Any, **__: Any) -> Any:
        raise Boom

    __array__ = __len__ = __iter__ = __getitem__ = __float__ = __int__ = __index__ = __bool__ = (
        __call__
    ) = __eq__ = __add__ = _boom
    __hash__ = object.__hash__


class Sized:
    """It has a length and no entries."""

    def __len__(self) -> int:
        return 3


def f(x: Any) -> Any:
    return np.sum(np.sin(x) * x)


def native(x: Any) -> Any:
    total = 0.0
    for i in range(x.shape[0]):
        total += x[i] * x[i]
    return total


GOOD: tuple[Callable[[], Any], ...] = (
    lambda: tg.tensor([1.0, 2.0, 3.0], requires_grad=True),
    lambda: tg.tensor(np.eye(3) + 0.1, requires_grad=True),
    lambda: tg.tensor(np.arange(6.0).reshape(2, 3), requires_grad=True) * 2,
    lambda: tg.tensor(0.5, requires_grad=True),
    lambda: tg.ones(3),
    lambda: tg.arange(3),
    lambda: np.ones(3),
    lambda: np.eye(3),
    lambda: np.array([0, 1, 2]),
    lambda: np.array([True, False, True]),
    lambda: 0.5,
    lambda: 0,
    lambda: 1,
    lambda: -1,
    lambda: 3,
    lambda: True,
    lambda: (0, 1),
    lambda: (3,),
    lambda: [0, 1],
    lambda: f,
    lambda: np.sin,
    lambda: tg.add,
    lambda: np.float64,
    lambda: "float32",
    lambda: [tg.tensor([1.0, 2.0, 3.0], requires_grad=True), np.ones(3)],
    lambda: [tg.Parameter(np.ones(3))],
)

JUNK: tuple[Callable[[], Any], ...] = (
    lambda: None,
    lambda: "sum",
    lambda: "",
    lambda: b"x",
    lambda: object(),
    lambda: Raises(),
    lambda: Sized(),
    lambda: int,
    lambda: np,
    lambda: ...,
    lambda: slice(None),
    lambda: {},
    lambda: {"a": 1.0},
    lambda: {1, 2},
    lambda: [],
    lambda: (),
    lambda: [[]],
    lambda: [None],
    lambda: [[1.0], [1.0, 2.0]],
    lambda: [[[[1.0]]]],
    lambda: ["a", "b"],
    lambda: (None, None),
    lambda: (1, "x"),
    lambda: [np.ones(2), np.ones(3)],
    lambda: (i for i in range(3)),
    lambda: range(3),
    lambda: iter(()),
    lambda: lambda: None,
    lambda: lambda *args, **kwargs: None,
    lambda: lambda x: "text",
    lambda: np.nan,
    lambda: np.inf,
    lambda: -1.5,
    lambda: 7,
    lambda: -7,
    lambda: 2**31,
    lambda: 2**63,
    lambda: -(2**64),
    lambda: 10**30,
    lambda: 1j,
    lambda: np.float32(2.0),
    lambda: np.int8(-1),
    lambda: np.bool_(True),
    lambda: np.datetime64("2020"),
    lambda: np.array([]),
    lambda: np.zeros((0, 3)),
    lambda: np.zeros((3, 0)),
    lambda: np.zeros((2, 0, 2)),
    lambda: np.full(3, np.nan),
    lambda: np.array([1.0, None]),
    lambda: np.array(["a"]),
    lambda: np.array([1 + 1j, 2.0]),
    lambda: np.ones(3, dtype="f4"),
    lambda: np.ones(3, dtype=">f8"),
    lambda: np.ones(3, dtype="f2"),
    lambda: np.zeros(2, dtype=[("a", "f8")]),
    lambda: np.array("2020", dtype="M8[D]"),
    lambda: np.ma.masked_array([1.0, 2.0], [0, 1]),
    lambda: np.ones((1,) * 9),
    lambda: np.broadcast_to(1.0, (3, 3)),
    lambda: np.array([5, -9]),
    lambda: tg.tensor([]),
    lambda: tg.zeros(0, requires_grad=True) * 1,
    lambda: tg.zeros((2, 0), requires_grad=True),
    lambda: tg.tensor(np.nan, requires_grad=True),
    lambda: tg.tensor([1 + 1j], requires_grad=True),
    lambda: tg.tensor(np.ones((2, 2, 2), dtype="f4"), requires_grad=True),
    lambda: tg.tensor([True]),
    lambda: tg.Tensor,
    lambda: [tg.tensor(1.0, requires_grad=True), None],
    lambda: (tg.tensor(1.0), [tg.ones(2)]),
    lambda: tg.compile(f),
    lambda: tg.SGD if hasattr(tg, "SGD") else tg.optim.SGD,
    lambda: OSError,
    lambda: "float128",
    lambda: "ij->",
    lambda: "ij,jk",
)


def stepper() -> Any:
    return tg.optim.Adam([tg.Parameter(np.ones(3))], lr=0.1)


def called(function: Any, *args: Any) -> Any:
    function(*args)
    return function


HOLDERS: dict[str, Callable[[], Any]] = {
    "tapegrad.Tensor": lambda: tg.tensor(np.eye(3) + 0.1, requires_grad=True) * 1,
    "tapegrad.check.GradientCheck": lambda: tg.check_gradient(f, np.ones(3)),
    "tapegrad.check.AdjointCheck": lambda: tg.check_adjoint(np.sin, np.cos, np.zeros(3)),
    "tapegrad.compiler.Compiled": lambda: called(tg.compile(f), np.ones(3)),
    "tapegrad.native.NativeFunction": lambda: tg.njit(native),
    "tapegrad.optim.Optimizer": stepper,
    "tapegrad.sparse.SparseTensor": lambda: tg.sparse.csr_array(
        tg.tensor(np.eye(3), requires_grad=True)
    ),
    "tapegrad.sparse.linalg.LU": lambda: tg.sparse.linalg.splu(
        tg.sparse.csc_array(np.eye(3) + 0.1)
    ),
    "tapegrad.sparse.linalg.LinearOperator": lambda: tg.sparse.linalg.aslinearoperator(np.eye(3)),
}
"""Of what class a public place is -> one to call methods of."""

LEAVES = (
    lambda: tg.tensor([1.0, 2.0, 3.0], requires_grad=True),
    lambda: tg.tensor(np.eye(3), requires_grad=True),
    lambda: tg.tensor(0.5),
    lambda: tg.zeros((0, 2), requires_grad=True) * 1,
    lambda: tg.tensor([1 + 1j, 2.0], requires_grad=True),
    lambda: tg.arange(6).reshape(2, 3),
)


def surface() -> list[tuple[str, str]]:
    """(place, name) of everything public that can be called or set."""
    found = []
    for place in (*names.PLACES, *names.MODULES):
        if place == "tapegrad.dask":  # it starts schedulers
            continue
        for public, value in names.public_names(place, names.holder_of(place)):
            data = inspect.isdatadescriptor(value)
            if (
                f"{place}.{public}" not in EXCUSED
                and (callable(value) or data)
                and not isinstance(value, types.ModuleType)
            ):
                found.append((place, public))
    return found


SURFACE = surface()
SAMPLED: dict[str, list[Any]] = {}


def samples(op: Any) -> list[Any]:
    if op.name not in SAMPLED:
        SAMPLED[op.name] = [s for s in samples_of(op) if not s.variant]
    return SAMPLED[op.name]


def pick(rng: np.random.Generator, among: Any) -> Any:
    return among[int(rng.integers(len(among)))]


def argument(rng: np.random.Generator) -> Any:
    return pick(rng, GOOD if rng.random() < 0.55 else JUNK)()


def settings(rng: np.random.Generator, function: Any) -> dict[str, Any]:
    """Some keywords that the function has."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return {}
    keywords = [
        p.name
        for p in parameters
        if p.kind in (p.KEYWORD_ONLY, p.POSITIONAL_OR_KEYWORD) and p.default is not p.empty
    ]
    if keywords and rng.random() < 0.5:
        return {str(rng.choice(keywords)): argument(rng) for _ in range(int(rng.integers(1, 3)))}
    return {}


def arguments(
    rng: np.random.Generator, function: Any, method: bool
) -> tuple[list[Any], dict[str, Any]]:
    """A mixture of good arguments and junk: a sample of the op in which something is exchanged, or as many as its signature asks for."""
    op = getattr(function, "primitive", None)
    if op is not None and not method and rng.random() < 0.6 and (drawn := samples(op)):
        sample = pick(rng, drawn)
        given = [
            tg.tensor(x, requires_grad=x.dtype.kind in "fc")
            if isinstance(x, np.ndarray) and rng.random() < 0.6
            else x
            for x in sample.operands
        ]
        if op.variadic and not op.elementwise:
            given = [given]
        keywords = dict(sample.settings)
        places = [*range(len(given)), *keywords]
        for _ in range(int(rng.integers(1, 3))):
            k = pick(rng, places)
            if isinstance(k, int):
                given[k] = argument(rng)
            else:
                keywords[k] = argument(rng)
        return given, keywords
    try:
        parameters = list(inspect.signature(function).parameters.values())
        demanded = sum(
            p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD) and p.default is p.empty
            for p in parameters
        )
        most = sum(p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD) for p in parameters)
        if any(p.kind is p.VAR_POSITIONAL for p in parameters):
            most += 2
    except (TypeError, ValueError):
        demanded, most = 1, 3
    count = (
        int(rng.integers(demanded, max(most, demanded) + 1))
        if rng.random() < 0.9
        else int(rng.integers(0, 5))
    )
    return [argument(rng) for _ in range(count)], settings(rng, function)


# ----------------------------------------------------------------------------------------------- judging


def internal(error: BaseException, public: str) -> str | None:
    """What is wrong with an error, or None if a user can understand it."""
    steps = list(traceback.walk_tb(error.__traceback__))
    frame, line = steps[-1]
    code = frame.f_code
    where = f"{code.co_filename.rpartition('tapegrad/')[2]}:{line} {code.co_name}"
    text = linecache.getline(code.co_filename, line).strip()
    users = code.co_filename == __file__
    if isinstance(error, Boom):
        return None
    if users and not isinstance(error, TypeError):
        return None
    ours = "tapegrad" in code.co_filename and "/tests/" not in code.co_filename
    raised = text.startswith("raise ")
    if isinstance(error, INTERNAL) and not isinstance(
        error, FloatingPointError | OverflowError | np.exceptions.AxisError
    ):
        if raised or NUMPYS.search(str(error)):
            return None
        return f"{type(error).__name__} {where}: {error}"[:300]
    told = re.match(r"((?:[\w.<>]*\.)?[\w<>]+)\(\) (missing|takes|got)", str(error))
    if isinstance(error, TypeError) and told and ours and not raised:
        word = told[1].rpartition(".")[2]
        # The name that the caller wrote, or a function of NumPy's or of the caller's own.
        if (
            told[1] not in USERS
            and not hasattr(builtins, told[1])
            and word.strip("_") != public.strip("_")
            and not hasattr(np, word)
        ):
            return f"TypeError of another name {where}: {error}"[:300]
    return None


USERS = {
    "f",
    "native",
    "Tensor",
    "<lambda>.<locals>.<lambda>",
    "Tensor.__init__",
    "object.__init__",
}
"""Functions that a caller of the library wrote."""


def by_lender(place: str, public: str, args: list[Any], keywords: dict[str, Any]) -> type | None:
    """What NumPy or SciPy, whose name it is, raises for the same call."""
    lenders = [names.holder_of(n) for n in names.PLACES.get(place, ("numpy",))]
    lender = next((module for module in lenders if hasattr(module, public)), np)

    def plain(x: Any) -> Any:
        if isinstance(x, tg.Tensor):
            return x.detach().numpy()
        return type(x)(map(plain, x)) if type(x) in (list, tuple) else x

    try:
        getattr(lender, public)(*map(plain, args), **{k: plain(v) for k, v in keywords.items()})
    except Exception as error:
        return type(error)
    return None


class Late(BaseException):
    """The call has not ended."""


def late(*_: Any) -> None:
    raise Late


@contextlib.contextmanager
def limit(seconds: int) -> Iterator[None]:
    signal.setitimer(signal.ITIMER_PROF, seconds)  # of the processor: a busy machine is no fault
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)


def call(rng: np.random.Generator) -> str | None:
    """One call, judged."""
    place, public = pick(rng, SURFACE)
    full = f"{place}.{public}"
    method = place in HOLDERS
    holder: Any = names.holder_of(place)
    args: list[Any] = []
    keywords: dict[str, Any] = {}
    here, engine = tg.current_tape(), tg.engine()
    found = function = None
    again = False
    try:
        with limit(SECONDS), np.printoptions():
            if method:
                holder = (
                    pick(rng, LEAVES)()
                    if place == "tapegrad.Tensor" and rng.random() < 0.6
                    else HOLDERS[place]()
                )
                if inspect.isdatadescriptor(inspect.getattr_static(type(holder), public, None)):
                    if rng.random() < 0.8:
                        setattr(holder, public, (args := [argument(rng)])[0])
                    else:
                        getattr(holder, public)
                    return None
            function = getattr(holder, public)
            args, keywords = arguments(rng, function, method)
            found = function(*args, **keywords)
            if (
                isinstance(found, types.GeneratorType | contextlib.AbstractContextManager)
                and rng.random() < 0.5
            ):
                with contextlib.ExitStack() as stack:
                    if isinstance(found, contextlib.AbstractContextManager):
                        stack.enter_context(found)
                    else:
                        next(found, None)
            again = (
                callable(found)
                and not isinstance(found, tg.Tensor | type | types.ModuleType)
                and rng.random() < 0.8
            )
            if again:
                args, keywords = arguments(rng, found, False)
                found(*args, **keywords)
    except Boom:
        pass
    except Late as error:
        frames = [
            f"{x.filename.rpartition('/')[2]}:{x.lineno}"
            for x in traceback.extract_tb(error.__traceback__)[-6:]
        ]
        return f"no end after {SECONDS} s: {full}\n{frames} {shown(args, keywords)}"
    except Exception as error:
        wrong = internal(error, public)
        if getattr(function, "__module__", "").startswith("numpy"):  # as it is
            wrong = None
        if wrong is not None and (
            method or again or by_lender(place, public, args, keywords) is not type(error)
        ):
            lines = "".join(traceback.format_tb(error.__traceback__)[-4:])
            return f"{wrong}\n  {full}{' called again' if again else ''} {shown(args, keywords)}\n{lines}"
    finally:
        del found
    for error in (
        tg.is_grad_enabled() is False and "grad mode is off",
        tg.current_tape() is not here and "another tape",
        here.busy and "busy",
    ):
        if error and public not in ("set_grad_enabled", "_enter"):
            return f"{error}: {full}\n {shown(args, keywords)}"
    if tg.engine() != engine and public != "set_engine":
        return f"another engine: {full}\n {shown(args, keywords)}"
    return None


def restored() -> None:
    """Settings that a call may have changed are as before, and a gradient is right."""
    tg.set_grad_enabled(True)
    tg.set_engine("auto")
    tg.autograd.set_detect_anomaly(False)
    tg.current_tape().busy = 0


def right() -> bool:
    x = tg.tensor([0.3, 0.7], requires_grad=True)
    (np.sin(x) * x).sum().backward()
    return bool(
        np.allclose(x.grad.numpy(), np.sin([0.3, 0.7]) + np.array([0.3, 0.7]) * np.cos([0.3, 0.7]))
    )


def shown(args: list[Any], keywords: dict[str, Any]) -> str:
    def one(x: Any) -> str:
        if isinstance(x, np.ndarray):
            return f"array{x.shape}{x.dtype}"
        if isinstance(x, tg.Tensor):
            return f"tensor{tuple(x.shape)}{x.dtype}"
        if type(x) in (list, tuple):
            return f"{type(x).__name__}({', '.join(map(one, x))})"
        return "<Raises>" if isinstance(x, Raises) else repr(x)[:60]

    return f"({', '.join([*map(one, args), *(f'{k}={one(v)}' for k, v in keywords.items())])})"


# ----------------------------------------------------------------------------------------------- the child


def serve(pipe: Any) -> None:
    """The child: calls, one for each generator that comes through the pipe."""
    warnings.simplefilter("ignore")
    np.seterr(all="ignore")
    used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + BYTES, used + BYTES))
    signal.signal(signal.SIGPROF, late)
    os.chdir(tempfile.mkdtemp())
    silent = os.open(os.devnull, os.O_WRONLY)
    os.dup2(silent, 1)
    while True:
        try:
            rng = pipe.recv()
        except EOFError:
            return
        try:
            fault = call(rng)
        finally:
            restored()
        pipe.send(fault if fault or tape is None or right() else "a wrong gradient afterwards")


class Child:
    """A process that is asked for calls; a new one where one died, or has made many."""

    def __init__(self) -> None:
        self.process: Any = None

    def ask(self, rng: np.random.Generator) -> str | None:
        if self.process is None:
            self.pipe, theirs = multiprocessing.Pipe()
            self.process = multiprocessing.get_context("fork").Process(
                target=serve, args=(theirs,), daemon=True
            )
            self.process.start()
            theirs.close()
            self.calls = 0
        self.calls += 1
        self.pipe.send(rng)
        fault = None
        if not self.pipe.poll(PATIENCE):
            fault = f"no answer after {PATIENCE} s"
        else:
            try:
                fault = self.pipe.recv()
            except EOFError:
                self.process.join()
                fault = f"the process died, status {self.process.exitcode}"
        if fault or self.calls > 3000:
            self.process.kill()
            self.process.join()
            self.process = None
        return fault


child = Child()


def trial(rng: np.random.Generator) -> str | None:
    return child.ask(rng)


assert OPS

if __name__ == "__main__":
    main("junk", trial, 50_000)
