"""Losses over data that is too big, or too slow, for one process, and many fits or chains at once: run by Dask.

    loss = lambda params, x, y: np.sum((model(params, x) - y) ** 2)
    value, gradient = tapegrad.dask.value_and_grad(loss)(params, x, y)      # x, y: dask arrays with equal chunks

Each partition is a task that runs `tapegrad.value_and_grad` on NumPy data where the data is; values and gradients are added up
a tree, so what travels is as big as the parameters. The tasks run on the `distributed.Client` that is active, else on threads.

Invariant: the order of additions depends on the partitions only. Who computes what, in which order, and how often because a
worker was lost, changes no bit of the result. For that, parameters are part of the task graph, from which everything can be
computed again; only big ones are scattered, and scattered again if they are lost.

`multistart` and `chains` run whole fits and whole chains of a sampler at once, one task each, by the same rule.
"""

from __future__ import annotations

import copy
import functools
import hashlib
import pickle
import sys
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from .core import locks
from .errors import demand_callable
from .transforms import derivatives
from .transforms.derivatives import _flatten, _unflatten

Tree = Any

FAN_IN = 8
"""Partial sums that one task of the tree adds."""

BIG = 8_000_000
"""Bytes of parameters above which they are scattered to the workers, not kept in the graph."""

ATTEMPTS = 3
"""How often scattered parameters may be lost before that is an error."""


def value_and_grad(
    loss: Callable[..., Any], *, client: Any = None, scheduler: str | None = None
) -> Callable[..., Any]:
    """A function `(params, *data) -> (value, gradient)` of the sum of `loss(params, *parts)` over the partitions of the data.

    `data` are Dask arrays (cut along their first axis, equally), bags (a partition is a list), dataframes, or sequences of parts
    (anything, Dask's delayed values included), all with the same number of partitions. `loss` returns a real number; `params` is
    a pytree, and the gradient has its structure. Runs on `client`; or by `scheduler` ("threads", "processes" or "synchronous");
    or, by default, on the active `distributed.Client`, else on threads. Raises ValueError where partitions do not match; what
    `loss` raises on a worker is raised here.

    >>> import dask.array as da, numpy as np, tapegrad.dask  # doctest: +SKIP
    >>> x = da.random.normal(size=(1_000_000, 3), chunks=(100_000, 3))  # doctest: +SKIP
    >>> tapegrad.dask.value_and_grad(lambda w, x: np.sum((x @ w - 1) ** 2))(np.zeros(3), x)  # doctest: +SKIP
    (np.float64(1000000.0), array([...]))
    """
    dask = _dask()
    demand_callable(loss, "value_and_grad", "pass the loss of a partition")

    @functools.wraps(loss, updated=())
    def summed(params: Tree, *data: Any) -> tuple[Any, Tree]:
        """Value and gradient summed over the partitions of `data`, computed by the scheduler."""
        if not data:
            raise TypeError(
                "no data was given: pass it after the parameters, or use tapegrad.value_and_grad, which needs none."
            )
        parts = _partitions(data)
        chosen = _client(client, scheduler)
        leaves, structure = _flatten(params)
        nbytes = sum(np.asarray(_raw(leaf)).nbytes for leaf in leaves)
        scattered = chosen is not None and nbytes > BIG
        for attempt in range(ATTEMPTS if scattered else 1):
            if scattered:
                held = chosen.scatter(params, broadcast=True, hash=False)
            else:
                held = dask.delayed(params, traverse=False, pure=False)
            one = dask.delayed(_part, pure=False)
            function = dask.delayed(
                Shipped(loss) if _leaves(chosen, scheduler) else loss, traverse=False, pure=False
            )
            total = _added(
                [one(function, held, *part) for part in parts], dask.delayed(_add, pure=False)
            )
            try:
                value, gradients = _computed(total, chosen, scheduler)
                break
            except Exception as problem:
                lost = type(problem).__name__ in (
                    "CancelledError",
                    "FutureCancelledError",
                    "FuturesCancelledError",
                )
                if not (scattered and lost) or attempt == ATTEMPTS - 1:
                    raise
        return value, _unflatten(structure, gradients)

    return summed


def grad(
    loss: Callable[..., Any], *, client: Any = None, scheduler: str | None = None
) -> Callable[..., Any]:
    """The gradient alone: `value_and_grad(loss)(params, *data)[1]`."""
    both = value_and_grad(loss, client=client, scheduler=scheduler)

    @functools.wraps(loss, updated=())
    def gradient(params: Tree, *data: Any) -> Tree:
        return both(params, *data)[1]

    return gradient


def multistart(
    f: Callable[..., Any],
    starts: Iterable[Tree],
    solver: Callable[..., Any] | None = None,
    *,
    client: Any = None,
    scheduler: str | None = None,
    **settings: Any,
) -> list[Any]:
    """Run a solver from many starts at once: the results, best first (least `fun`, or `cost` of least squares).

    `solver(f, start, **settings)` is `tapegrad.minimize` unless another is given, such as `tapegrad.least_squares`. A start
    from which it raises gives a result with `success=False`, `fun=inf` and the error as `message`, behind all others; a
    TypeError from every start, which no start can be the cause of, is raised.

    >>> import numpy as np, tapegrad.dask  # doctest: +SKIP
    >>> best, *_ = tapegrad.dask.multistart(lambda x: np.cos(x) + x**2 / 50, np.linspace(-9, 9, 8))  # doctest: +SKIP
    """
    if solver is None:
        from .interop.solvers import minimize as solver
    for given in (f, solver):
        demand_callable(given, "multistart")
    jobs = [(solver, f, start, settings) for start in _points(starts, "multistart")]
    results = _each(_solved, jobs, client, scheduler)
    problems = [result.pop("problem", None) for result in results]
    if isinstance(problems[0], TypeError) and all(type(p) is type(problems[0]) for p in problems):
        problems[0].add_note("raised from every start of tapegrad.dask.multistart")
        raise problems[0]
    return sorted(results, key=_rank)


def chains(
    sampler: Callable[..., Any],
    starts: Iterable[Tree],
    *,
    seed: int | None = 0,
    client: Any = None,
    scheduler: str | None = None,
    **settings: Any,
) -> list[Any]:
    """Run a sampler from many starts at once: what `sampler(start, rng, **settings)` returns, in the order of the starts.

    Each chain has a `numpy.random.Generator` of its own, a child of `seed` (`SeedSequence.spawn`; None: other numbers every
    time). So the draws depend on the seed and the chain's place alone, not on who runs it, or how often because a worker was
    lost. An error of a sampler is raised here, with the number of its chain.

    >>> import numpy as np, tapegrad.dask  # doctest: +SKIP
    >>> def walk(x, rng, steps):  # doctest: +SKIP
    ...     return x + np.cumsum(rng.normal(size=steps))
    >>> four = tapegrad.dask.chains(walk, np.zeros(4), seed=1, steps=1000)  # doctest: +SKIP
    """
    demand_callable(sampler, "chains", "pass a function of a start and a Generator")
    points = _points(starts, "chains")
    seeds = np.random.SeedSequence(seed).spawn(len(points))
    jobs = [(k, sampler, *pair, settings) for k, pair in enumerate(zip(points, seeds, strict=True))]
    return _each(_sampled, jobs, client, scheduler)


def _points(starts: Iterable[Tree], name: str) -> list[Tree]:
    if not isinstance(starts, Iterable) or isinstance(starts, dict | str):
        raise TypeError(
            f"{name} was given {type(starts).__name__} as starts: give a list of them, or an array with one in each row."
        )
    points = list(starts)
    if not points:
        raise ValueError(f"{name} was given no start: give at least one.")
    return points


def _each(
    of: Callable[..., Any], jobs: Sequence[tuple[Any, ...]], client: Any, scheduler: str | None
) -> list[Any]:
    """`of` of each job's arguments, which stay as they are, one task a job."""
    dask = _dask()
    chosen = _client(client, scheduler)
    one = dask.delayed(of, pure=False)
    if _leaves(chosen, scheduler):
        shipped: dict[int, Any] = {}
        jobs = [tuple(_shipped(x, shipped) for x in job) for job in jobs]
    tasks = [one(dask.delayed(job, traverse=False, pure=False)) for job in jobs]
    return _computed(dask.delayed(list, pure=False)(tasks), chosen, scheduler)


# ------------------------------------------------------------------------------------ tasks, run by workers


KEPT = 32
"""Functions that a worker keeps, the least recently used dropped first."""

_received: OrderedDict[bytes, Any] = OrderedDict()
_lock = locks.lock()


class Shipped:
    """A function on its way to workers: each makes it once, however many tasks of however many calls it comes with.

    Programs of a compiled and derivatives of a native function belong to the object, so a worker that made it anew for each
    task would compile for each task. Functions are told apart by what they pickle to, closures and defaults included.
    """

    __slots__ = ("digest", "pickled")

    def __init__(self, function: Callable[..., Any]) -> None:
        import cloudpickle

        self.pickled = cloudpickle.dumps(function)
        self.digest = hashlib.blake2b(self.pickled, digest_size=16).digest()

    def arrived(self) -> Any:
        """The function, on the worker."""
        with _lock:
            function = _received.get(self.digest)
            if function is None:
                function = _received[self.digest] = pickle.loads(self.pickled)
            _received.move_to_end(self.digest)
            while len(_received) > KEPT:
                _received.popitem(last=False)
            return function


def _leaves(client: Any, scheduler: str | None) -> bool:
    """Whether tasks run in other processes."""
    return client is not None or scheduler in ("processes", "multiprocessing")


def _shipped(value: Any, done: dict[int, Any]) -> Any:
    """A job's argument with its functions made ready for the way, each once."""
    if isinstance(value, dict):
        return {key: _shipped(v, done) for key, v in value.items()}
    if not callable(value):
        return value
    if id(value) not in done:
        done[id(value)] = Shipped(value)
    return done[id(value)]


def _arrived(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _arrived(v) for key, v in value.items()}
    return value.arrived() if isinstance(value, Shipped) else value


def _part(function: Any, params: Tree, *data: Any) -> tuple[Any, list[Any]]:
    """Value and gradient of one partition."""
    loss = _arrived(function)
    both = derivatives.value_and_grad(loss)
    try:
        value, gradient = both(params, *map(_locked, data))
    except ValueError as problem:
        if "read-only" not in str(problem):
            raise
        raise ValueError(
            f"the loss writes into the data of a partition ({problem}), which it may not, since a task may run twice: let it work "
            "on a copy (x = x.copy())."
        ) from problem
    return value, _flatten(gradient)[0]


def _locked(part: Any) -> Any:
    """A partition's array without the right to write: it may be the user's own, and a task may run twice."""
    if type(part) is not np.ndarray or not part.flags.writeable:
        return part
    view = part.view()
    view.flags.writeable = False
    return view


def _add(parts: Sequence[tuple[Any, list[Any]]]) -> tuple[Any, list[Any]]:
    """The sum of some partitions, in their order."""
    value, gradients = parts[0]
    for other, more in parts[1:]:
        value = value + other
        gradients = [a + b for a, b in zip(gradients, more, strict=True)]
    return value, gradients


def _solved(job: tuple[Callable[..., Any], Any, Tree, dict[str, Any]]) -> Any:
    """One start of a multistart: SciPy's result, or an OptimizeResult that holds the problem."""
    from scipy.optimize import OptimizeResult

    solver, f, start, settings = map(_arrived, job)
    try:
        result = solver(f, start, **settings)
        if not isinstance(result, dict):
            raise TypeError(
                f"the solver returned {type(result).__name__}, but multistart ranks results of SciPy's kind: return an "
                "OptimizeResult with fun or cost."
            )
        return result
    except Exception as problem:
        message = f"{type(problem).__name__}: {problem}"
        return OptimizeResult(x=start, fun=np.inf, success=False, message=message, problem=problem)


def _sampled(job: tuple[int, Callable[..., Any], Tree, Any, dict[str, Any]]) -> Any:
    number, sampler, start, seed, settings = map(_arrived, job)
    # Spawning counts on in a SeedSequence, and a task may run twice: each run has a copy.
    rng = np.random.default_rng(copy.deepcopy(seed))
    try:
        return sampler(start, rng, **settings)
    except Exception as problem:
        problem.add_note(f"raised in chain {number} of tapegrad.dask.chains")
        raise


def _rank(result: Any) -> float:
    value = result["cost"] if "cost" in result else result["fun"]
    size = float(np.sum(np.abs(value))) if np.ndim(value) else float(value)
    return np.inf if np.isnan(size) else size


# ------------------------------------------------------------------------------------ the graph


def _dask() -> Any:
    try:
        import dask
        import dask.delayed
    except ImportError:
        raise ImportError(
            'tapegrad.dask needs Dask, which is not installed: pip install "tapegrad[dask]".'
        ) from None
    return dask


def _client(client: Any, scheduler: str | None) -> Any:
    """The client that was given; else, unless a scheduler was, the active one; None for the schedulers of Dask itself.

    Raises TypeError for what is no client.
    """
    if client is not None and not (hasattr(client, "compute") and hasattr(client, "scatter")):
        raise TypeError(
            f"client={client!r} was given, but it is a distributed.Client: make one, or leave it out and name a scheduler."
        )
    return client if client is not None or scheduler is not None else _active_client()


def _active_client() -> Any:
    """The distributed client of this process; None if there is none, or distributed was never imported."""
    distributed = sys.modules.get("distributed")
    if distributed is None:
        return None
    try:
        return distributed.default_client()
    except ValueError:
        return None


def _computed(task: Any, client: Any, scheduler: str | None) -> Any:
    if client is not None:
        return client.compute(task).result()
    return task.compute(scheduler=scheduler or "threads")


def _added(tasks: list[Any], add: Callable[..., Any]) -> Any:
    """A tree of additions."""
    while len(tasks) > 1:
        tasks = [add(tasks[k : k + FAN_IN]) for k in range(0, len(tasks), FAN_IN)]
    return tasks[0]


def _partitions(data: tuple[Any, ...]) -> list[tuple[Any, ...]]:
    """The partitions of all data side by side: a list of tuples; an error where they are cut in different ways."""
    columns = [_parts(d) for d in data]
    counts = {len(column) for column in columns}
    if counts == {0}:
        raise ValueError("the data has no partition at all: there is nothing to sum over.")
    if len(counts) > 1:
        raise ValueError(
            f"the data have {', '.join(str(len(c)) for c in columns)} partitions: they must be cut alike (rechunk, repartition)."
        )
    lengths = [d.chunks[0] for d in data if hasattr(d, "chunks")]
    if any(other != lengths[0] for other in lengths[1:]):
        raise ValueError(
            f"the arrays are cut at different rows, {lengths[0]} and {next(o for o in lengths if o != lengths[0])}: rechunk them "
            "alike."
        )
    return list(zip(*columns, strict=True))


def _parts(data: Any) -> list[Any]:
    """The partitions of one argument, as delayed values or as they are."""
    if hasattr(data, "chunks") and hasattr(
        data, "to_delayed"
    ):  # an array: cut along the first axis only
        if not data.ndim:
            raise ValueError("a Dask array without axes was given: it has no partitions.")
        if any(len(c) > 1 for c in data.chunks[1:]):
            data = data.rechunk({axis: -1 for axis in range(1, data.ndim)})
        return list(data.to_delayed().reshape(-1))
    if hasattr(data, "to_delayed"):  # a bag or a dataframe
        return list(data.to_delayed())
    if isinstance(data, list | tuple):
        return list(data)
    raise TypeError(
        f"data of type {type(data).__name__} was given: pass Dask arrays, bags or dataframes, or lists of parts (for an array, "
        "np.array_split(array, n))."
    )


def _raw(leaf: Any) -> Any:
    return leaf._value if hasattr(leaf, "_value") else leaf


__all__ = ["chains", "grad", "multistart", "value_and_grad"]


def __dir__() -> list[str]:
    return __all__
