"""The contestants: how tapegrad, each peer and a hand-written gradient differentiate a workload.

A contestant is a function `prepare(workload, size) -> run`, and `run()` is what is timed: forward
and backward, from inputs already in the library's own arrays to `(value, gradients)`, finished and
in float64. Everything that a user of that library would do once (leaves, constants, compilation
under `jit`) happens in `prepare`; everything he would do at every step (resetting `.grad`) is in
`run`. Each is written as its own documentation teaches, in its fast configuration and on one
thread. Libraries are imported inside `prepare`, so an absent one is an ImportError there.
"""

from importlib import metadata, util

import numpy as np

from bench.workloads import assert_answer

ENGINES = ("sweep", "replay")


def leaves_and_backward(xp, workload, leaves, constants):
    """The run in PyTorch's style: reset the leaves, evaluate, backward, read `.grad`."""

    def run():
        for leaf in leaves:
            leaf.grad = None
        value = workload.program(xp, *leaves, *constants)
        value.backward()
        return value, [leaf.grad for leaf in leaves]

    return run


def tapegrad(workload, size):
    """tapegrad with its own function names (`tg.sin`), constants left as NumPy arrays."""
    import tapegrad as tg

    parameters, constants = workload.inputs(size)
    leaves = [tg.tensor(p, requires_grad=True) for p in parameters]
    return leaves_and_backward(tg, workload, leaves, constants)


def tapegrad_numpy(workload, size):
    """tapegrad under NumPy's names (`np.sin(t)`): the price of NumPy's dispatch on top."""
    import tapegrad as tg

    parameters, constants = workload.inputs(size)
    leaves = [tg.tensor(p, requires_grad=True) for p in parameters]
    return leaves_and_backward(np, workload, leaves, constants)


def tapegrad_transform(workload, size):
    """tapegrad through `value_and_grad`, arrays in and arrays out."""
    import tapegrad as tg

    parameters, constants = workload.inputs(size)
    f = tg.value_and_grad(
        lambda *args: workload.program(tg, *args), argnums=tuple(range(len(parameters)))
    )
    return lambda: f(*parameters, *constants)


def torch(workload, size):
    """PyTorch, eager."""
    import torch

    torch.set_num_threads(1)
    parameters, constants = workload.inputs(size)
    leaves = [torch.tensor(p, requires_grad=True) for p in parameters]
    return leaves_and_backward(torch, workload, leaves, [torch.tensor(c) for c in constants])


def jax_value_and_grad(workload, size):
    import jax

    jax.config.update("jax_enable_x64", True)
    parameters, constants = workload.inputs(size)
    f = jax.value_and_grad(
        lambda *args: workload.program(jax.numpy, *args), argnums=tuple(range(len(parameters)))
    )
    return f, [jax.numpy.asarray(a) for a in (*parameters, *constants)]


def jax(workload, size):
    """JAX under `jit`; Python loops are unrolled by tracing, and compiled in `prepare`."""
    import jax

    f, args = jax_value_and_grad(workload, size)
    compiled = jax.jit(f).lower(*args).compile()
    return lambda: jax.block_until_ready(compiled(*args))


def jax_eager(workload, size):
    """JAX without `jit`, as a first script has it."""
    import jax

    f, args = jax_value_and_grad(workload, size)
    return lambda: jax.block_until_ready(f(*args))


def autograd(workload, size):
    """HIPS autograd."""
    import autograd
    import autograd.numpy

    parameters, constants = workload.inputs(size)
    f = autograd.value_and_grad(
        lambda *args: workload.program(autograd.numpy, *args),
        argnum=tuple(range(len(parameters))),
    )
    return lambda: f(*parameters, *constants)


def mygrad(workload, size):
    """MyGrad, with the guard against mutation off: its manual says to do so for speed."""
    import mygrad as mg

    mg.turn_memory_guarding_off()
    parameters, constants = workload.inputs(size)
    leaves = [mg.tensor(p) for p in parameters]

    def run():
        for leaf in leaves:
            leaf.null_grad()
        value = workload.program(mg, *leaves, *constants)
        value.backward()
        return value, [leaf.grad for leaf in leaves]

    return run


def numpy(workload, size):
    """The gradient written by hand in NumPy."""
    parameters, constants = workload.inputs(size)
    return lambda: workload.gradient(*parameters, *constants)


CONTESTANTS = {
    prepare.__name__: prepare
    for prepare in (
        tapegrad,
        tapegrad_numpy,
        tapegrad_transform,
        numpy,
        torch,
        jax,
        jax_eager,
        autograd,
        mygrad,
    )
}

LOOPS = ("chain", "rosenbrock_loop", "rosenbrock_scalars", "lstm", "ode_rk4")

# Said in words, so that a missing row in a table is not taken for an oversight.
NOT_TIMED = {
    ("jax", "ode_rk4"): "XLA takes minutes to compile the unrolled loop",
    ("numpy", "bundle_residual"): "its gradient is not written by hand",
    **{("jax_eager", name): "a loop of un-jitted JAX takes a second" for name in LOOPS},
}


def library(contestant: str) -> str:
    """The package that a contestant needs: "jax_eager" is timed with jax."""
    return contestant.split("_")[0]


def installed(contestant: str) -> bool:
    return util.find_spec(library(contestant)) is not None


def version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "from source"


def bare(x):
    """`x` for NumPy; some tensors refuse a conversion that would lose their gradient."""
    return x.detach().numpy() if hasattr(x, "detach") else x


def checked(contestant: str, workload, size: int):
    """The run of a contestant, warmed up and with its answer asserted: ready to be timed."""
    run = CONTESTANTS[contestant](workload, size)
    run()
    value, gradients = run()
    assert_answer(workload, size, (bare(value), [bare(g) for g in gradients]))
    return run
