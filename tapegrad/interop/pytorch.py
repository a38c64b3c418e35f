"""Functions across the border to PyTorch: `to_torch` and `from_torch`.

A tapegrad function becomes a `torch.autograd.Function` whose backward is tapegrad's pullback, and a PyTorch function becomes
an op on tapegrad's tape whose VJP is PyTorch's. Values cross as NumPy arrays that share memory (on the CPU). Each library keeps
its own graph; a second derivative crosses the border again, with the pullback as the function.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ..errors import demand_callable
from ..transforms.derivatives import _flatten, _unflatten, vjp
from .foreign import Guest, Pull, recorded

Function = Callable[..., Any]


def _torch() -> Any:
    try:
        import torch
    except ImportError:
        raise ImportError(
            "to_torch and from_torch need PyTorch, which is not installed: pip install torch."
        ) from None
    return torch


def to_torch(f: Function) -> Function:
    """`f`, written for NumPy, as a function of PyTorch tensors that PyTorch can differentiate.

    Arguments and results are pytrees of tensors (CPU, real or complex); the results have the dtypes that `f` gives. Works
    inside a `torch.nn.Module`, with `backward`, `torch.autograd.grad`, `create_graph`, `gradcheck` and `gradgradcheck`.

    >>> import numpy as np, tapegrad as tg
    >>> energy = tg.to_torch(lambda x: np.sum(np.sin(x) * x))  # takes and returns torch tensors
    """
    demand_callable(f, "to_torch")

    def call(*args: Any) -> Any:
        """Call `f` on PyTorch tensors, as one node of PyTorch's graph."""
        torch = _torch()
        leaves, structure = _flatten(tuple(args))
        tensors = [torch.as_tensor(leaf) for leaf in leaves]
        shape_of_output: list[Any] = []

        class Model(torch.autograd.Function):  # type: ignore[name-defined]  # imported a line above
            @staticmethod
            def forward(ctx: Any, *given: Any) -> Any:
                """The values, and the pullback for the inputs that require grad."""
                arrays = [t.detach().cpu().numpy() for t in given]
                wanted = [k for k, t in enumerate(given) if ctx.needs_input_grad[k]]

                def of_wanted(*chosen: Any) -> Any:
                    every: list[Any] = list(arrays)
                    for k, value in zip(wanted, chosen, strict=True):
                        every[k] = value
                    return f(*_unflatten(structure, every))

                if wanted:
                    value, ctx.pull = vjp(
                        of_wanted, *(arrays[k] for k in wanted), allow_unused=True
                    )
                else:
                    value = of_wanted()
                ctx.save_for_backward(*given)
                ctx.wanted, ctx.count = wanted, len(given)
                outputs, shape = _flatten(value)
                shape_of_output.append(shape)
                ctx.structure = shape
                ctx.values = [np.asarray(y) for y in outputs]
                results = tuple(torch.from_numpy(np.array(y)) for y in ctx.values)
                ctx.mark_non_differentiable(
                    *(r for r in results if not (r.is_floating_point() or r.is_complex()))
                )
                return results

            @staticmethod
            def backward(ctx: Any, *cotangents: Any) -> Any:
                """Gradients of the inputs; recorded in PyTorch's graph where a graph of the backward is wanted."""
                gradients: list[Any] = [None] * ctx.count
                if (
                    torch.is_grad_enabled()
                ):  # the walk is recorded: the pullback crosses the border as a function

                    def pulled(arrays: Any, gs: Any) -> Any:
                        def of_wanted(*chosen: Any) -> Any:
                            every = list(arrays)
                            for k, value in zip(ctx.wanted, chosen, strict=True):
                                every[k] = value
                            return _flatten(f(*_unflatten(structure, every)))[0]

                        return vjp(of_wanted, *(arrays[k] for k in ctx.wanted), allow_unused=True)[
                            1
                        ](list(gs))

                    given = [
                        torch.as_tensor(np.zeros_like(y)) if g is None else g
                        for g, y in zip(cotangents, ctx.values, strict=True)
                    ]
                    found = to_torch(pulled)(list(ctx.saved_tensors), given)
                else:
                    plain = [
                        np.zeros_like(y) if g is None else g.detach().cpu().numpy()
                        for g, y in zip(cotangents, ctx.values, strict=True)
                    ]
                    found = ctx.pull(_unflatten(ctx.structure, plain))
                for k, g in zip(ctx.wanted, found, strict=True):
                    gradients[k] = torch.as_tensor(g)
                return tuple(gradients)

        results = Model.apply(*tensors)
        return _unflatten(shape_of_output[0], results)

    call.__name__ = getattr(f, "__name__", "f")
    call.__doc__ = getattr(f, "__doc__", None)
    return call


def from_torch(f: Function) -> Function:
    """`f`, written for PyTorch, as a function of arrays and tensors that tapegrad can differentiate.

    Arguments are arrays, numbers and tensors; one output, or a tuple of them. Arrays give arrays, and inside `tg.grad`, or on
    tracked tensors, the call is recorded as one op whose VJP is PyTorch's. Composes to any order.

    >>> import tapegrad as tg
    >>> norm = tg.from_torch(lambda x: x.norm())  # takes arrays; tg.grad(norm) works
    """
    demand_callable(f, "from_torch")

    def run(arrays: list[np.ndarray], wanted: list[int]) -> tuple[Any, Pull]:
        """Values of the PyTorch function as arrays, and the pullback to the `wanted` arguments."""
        torch = _torch()
        tensors = [torch.tensor(a) for a in arrays]
        for k in wanted:
            tensors[k].requires_grad_(True)
        with torch.enable_grad() if wanted else torch.no_grad():
            result = f(*tensors)
        outputs = list(result) if isinstance(result, tuple | list) else [result]
        for y in outputs:
            if not isinstance(y, torch.Tensor):
                raise TypeError(
                    f"from_torch expects a function that returns tensors, but it returned {type(y).__name__}: return a tensor "
                    "or a tuple of them."
                )

        def pull(cotangents: list[np.ndarray]) -> list[np.ndarray]:
            """Gradients of the wanted arguments; zeros where no output depends on them."""
            used = [k for k, y in enumerate(outputs) if y.requires_grad]
            if not used:
                return [np.zeros_like(arrays[k]) for k in wanted]
            found = torch.autograd.grad(
                [outputs[k] for k in used],
                [tensors[k] for k in wanted],
                [torch.as_tensor(np.array(cotangents[k])) for k in used],
                allow_unused=True,
                retain_graph=True,
            )
            return [
                np.zeros_like(arrays[k]) if g is None else g.numpy()
                for k, g in zip(wanted, found, strict=True)
            ]

        values = [y.detach().numpy() for y in outputs]
        return (tuple(values) if isinstance(result, tuple | list) else values[0]), pull

    def transposed(wanted: list[int], count: int) -> Function:
        """The pullback as a function of arguments and cotangents, which can be differentiated again."""

        def pulled(*given: Any) -> Any:
            """Gradients of the wanted arguments, recorded by PyTorch."""
            torch = _torch()
            args, cotangents = list(given[:count]), given[count:]
            for k in wanted:
                args[k] = args[k] if args[k].requires_grad else args[k].detach().requires_grad_()
            result = f(*args)
            outputs = list(result) if isinstance(result, tuple | list) else [result]
            found = torch.autograd.grad(
                outputs,
                [args[k] for k in wanted],
                cotangents,
                create_graph=True,
                materialize_grads=True,
            )
            return tuple(found)

        return from_torch(pulled)

    def pushed(count: int) -> Function:
        def along(*given: Any) -> Any:
            _, tangents = _torch().autograd.functional.jvp(
                f, tuple(given[:count]), tuple(given[count:]), create_graph=True
            )
            return tangents

        return from_torch(along)

    return recorded(Guest(run, transposed, pushed), f)
