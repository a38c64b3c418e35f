"""Gradient checks: the derivative that the tape gives against that of differences of values.

`gradcheck` compares two Jacobians for each pair of output and input: one of cotangents carried back
(and, where asked, of tangents carried forward), one of central differences. In fast mode both are
projected on a random direction on either side, so that uᵀJv is compared, which costs two runs of
the function per input and one walk per output.

Data: a Jacobian is a matrix with a row for each element of the output and a column for each element
of the input. As in PyTorch a complex output counts as two real ones, its real and its imaginary
part, and the derivative of a real L by a complex z = x + iy is dL/dx + i dL/dy.

Invariant: when a check ends, however it ends, the inputs hold the values they had, to the last bit.
Differences are made in the inputs' own memory, so that a function which closes over an input,
instead of using its argument, is checked too.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from .. import autograd
from ..core.tensor import Tensor, wrap
from ..errors import GradcheckError
from ..face.adoption import adopted

SEED = 20
"""Of the random directions: a check that fails fails again."""


def gradcheck(
    func: Callable[..., Any],
    inputs: Any,
    *,
    eps: float = 1e-6,
    atol: float = 1e-5,
    rtol: float = 1e-3,
    raise_exception: bool = True,
    nondet_tol: float = 0.0,
    check_undefined_grad: bool = True,
    check_grad_dtypes: bool = False,
    check_batched_grad: bool = False,
    check_batched_forward_grad: bool = False,
    check_forward_ad: bool = False,
    check_backward_ad: bool = True,
    fast_mode: bool = False,
    masked: bool | None = None,
) -> bool:
    """Whether gradients of `func` agree with central differences; GradcheckError if they do not.

    `func` takes tensors and returns a tensor or a tuple of them; `inputs` is a tensor or a tuple,
    of which those that require grad are checked, and should be float64 or complex128. Entries agree
    if |analytical - numerical| <= atol + rtol * |numerical|; `eps` is the step of the differences.
    With `raise_exception=False` a failed check returns False.

    Also checked: that a walk run twice gives the same gradient, within `nondet_tol`; that zero
    cotangents give zero gradients; that an output without a cotangent counts as one with zeros
    (`check_undefined_grad`); that gradients have their input's dtype (`check_grad_dtypes`); that a
    batch of cotangents gives what they give one by one (`check_batched_grad`). `check_forward_ad`
    checks tangents as well, `check_backward_ad=False` nothing else; `check_batched_forward_grad`
    adds nothing here, as batches of tangents are pushed one by one. `masked` relaxes the check of
    zero cotangents to `np.allclose`.

    >>> import tapegrad as tg
    >>> x = tg.tensor([1.0, 2.0], requires_grad=True)
    >>> gradcheck(lambda x: np.sin(x) * x, x)
    True
    >>> gradcheck(lambda x: np.sin(x) * x.detach(), x, raise_exception=False)
    False
    """
    _demand(
        check_forward_ad or check_backward_ad,
        "at least one of check_forward_ad or check_backward_ad to be True",
    )
    _demand(
        check_backward_ad or not check_batched_grad,
        "check_backward_ad=True where check_batched_grad=True",
    )
    _demand(
        check_forward_ad or not check_batched_forward_grad,
        "check_forward_ad=True where check_batched_forward_grad=True",
    )
    case = _case(func, inputs, eps, atol, rtol)
    try:
        _check_slopes(
            case, check_backward_ad, check_forward_ad, fast_mode, nondet_tol, check_grad_dtypes
        )
        if check_forward_ad and check_undefined_grad:
            _check_missing_tangents(case)
        if check_backward_ad:
            if check_batched_grad:
                _check_batches(case)
            _check_zero_cotangents(case, bool(masked))
            if check_undefined_grad:
                _check_missing_cotangents(case)
    except GradcheckError:
        if raise_exception:
            raise
        return False
    return True


def gradgradcheck(
    func: Callable[..., Any],
    inputs: Any,
    grad_outputs: Any = None,
    *,
    eps: float = 1e-6,
    atol: float = 1e-5,
    rtol: float = 1e-3,
    gen_non_contig_grad_outputs: bool = False,
    raise_exception: bool = True,
    nondet_tol: float = 0.0,
    check_undefined_grad: bool = True,
    check_grad_dtypes: bool = False,
    check_batched_grad: bool = False,
    check_fwd_over_rev: bool = False,
    check_rev_over_rev: bool = True,
    fast_mode: bool = False,
    masked: bool = False,
) -> bool:
    """Whether second derivatives of `func` agree with differences of its gradients.

    The subject of the check, as of `gradcheck`, is the gradient as a function of the inputs and of the
    cotangents `grad_outputs` (random ones by default, not contiguous in memory with
    `gen_non_contig_grad_outputs`): by walking back through the recorded walk
    (`check_rev_over_rev`), by tangents through it (`check_fwd_over_rev`), or both. Raises
    GradcheckError, or returns False with `raise_exception=False`, if they do not agree.

    >>> import tapegrad as tg
    >>> x = tg.tensor([1.0, 2.0], requires_grad=True)
    >>> gradgradcheck(lambda x: np.sin(x) * x, x)
    True
    """
    _demand(
        check_fwd_over_rev or check_rev_over_rev,
        "at least one of check_fwd_over_rev or check_rev_over_rev to be True",
    )
    _demand(
        check_rev_over_rev or not check_undefined_grad,
        "check_rev_over_rev=True where check_undefined_grad=True",
    )
    _demand(
        check_rev_over_rev or not check_batched_grad,
        "check_rev_over_rev=True where check_batched_grad=True",
    )
    given = _as_tuple(inputs)
    if grad_outputs is None:
        outputs = [y for y in _returned(func, given) if _tracked(y)]
        cotangents = tuple(_random_cotangents(outputs, gen_non_contig_grad_outputs))
    else:
        cotangents = _as_tuple(grad_outputs)
    n = len(given)

    def gradient(*arguments: Any) -> tuple[Any, ...]:
        # Forward mode hands over tensors of its own: they stand for what required grad.
        for old, new in zip(given + cotangents, arguments, strict=True):
            if _tracked(old):
                new.requires_grad_()
        outputs = [y for y in _returned(func, arguments[:n]) if _tracked(y)]
        wanted = [x for x in arguments[:n] if _tracked(x)]
        found = autograd.grad(
            outputs, wanted, list(arguments[n:]), create_graph=True, allow_unused=True
        )
        return tuple(g for g in found if g is not None)

    return gradcheck(
        gradient,
        given + cotangents,
        eps=eps,
        atol=atol,
        rtol=rtol,
        raise_exception=raise_exception,
        nondet_tol=nondet_tol,
        check_undefined_grad=check_undefined_grad,
        check_grad_dtypes=check_grad_dtypes,
        check_batched_grad=check_batched_grad,
        check_forward_ad=check_fwd_over_rev,
        check_backward_ad=check_rev_over_rev,
        fast_mode=fast_mode,
        masked=masked,
    )


def _demand(satisfied: bool, what: str) -> None:
    if not satisfied:
        raise AssertionError(
            f"Expected {what}: as set, there is nothing to check it with. Change one of the two."
        )


# ---------------------------------------------------------------------- the case


@dataclass(frozen=True, slots=True)
class _Case:
    """A function at a point: its inputs and outputs, and how closely derivatives must agree."""

    func: Callable[..., Any]
    inputs: tuple[Any, ...]
    returned: tuple[Any, ...]
    eps: float
    atol: float
    rtol: float

    @property
    def wanted(self) -> list[tuple[int, Tensor]]:
        """Position and tensor of each input that requires grad."""
        return [(i, x) for i, x in enumerate(self.inputs) if _tracked(x)]

    @property
    def outputs(self) -> list[tuple[int, Tensor]]:
        """Position and tensor of each output that requires grad."""
        return [(k, y) for k, y in enumerate(self.returned) if _tracked(y)]


def _case(func: Callable[..., Any], inputs: Any, eps: float, atol: float, rtol: float) -> _Case:
    """The checked arguments, and one run of the function."""
    given = _as_tuple(inputs)
    for i, x in enumerate(given):
        if _tracked(x):
            _check_input(i, x)
    if not any(_tracked(x) for x in given):
        raise ValueError(
            "gradcheck expects at least one input tensor to require gradient, but none of them "
            "have requires_grad=True. Make one with tg.tensor(..., requires_grad=True)."
        )
    return _Case(func, given, _returned(func, given), eps, atol, rtol)


def _check_input(i: int, x: Tensor) -> None:
    """Warn of an input in single precision; an error where differences cannot be taken by writing to its memory."""
    if x.dtype not in (np.float64, np.complex128):
        warnings.warn(
            f"Input #{i} requires gradient and is not a double precision floating point or "
            "complex. This check will likely fail if all the inputs are not of double precision "
            "floating point or complex.",
            stacklevel=4,
        )
    memory = x.detach().numpy()
    if memory.size and any(
        stride == 0 and length > 1
        for stride, length in zip(memory.strides, memory.shape, strict=True)
    ):
        raise RuntimeError(
            f"The {i}th input has a dimension with stride 0: one number in memory stands for "
            "several elements, which cannot be changed one at a time. Pass a copy with memory of "
            "its own: x.detach().clone().requires_grad_()."
        )
    if not memory.flags.writeable:
        raise RuntimeError(
            f"The {i}th input is a read-only array, but differences are made by changing it in "
            "place (and back). Pass a copy: x.detach().clone().requires_grad_()."
        )


def _as_tuple(value: Any) -> tuple[Any, ...]:
    return tuple(value) if isinstance(value, tuple | list) else (value,)


def _returned(func: Callable[..., Any], inputs: Sequence[Any]) -> tuple[Any, ...]:
    value = adopted(func)(*inputs)
    if value is None:
        raise TypeError(
            "gradcheck differentiates what func returns, but it returned None. Does it end with a "
            "return?"
        )
    return _as_tuple(value)


def _tracked(value: Any) -> bool:
    return isinstance(value, Tensor) and value.requires_grad


def _units(dtype: np.dtype) -> dict[str, complex]:
    """The directions a number can move in: the real one, and for a complex one the imaginary."""
    return {"real": 1, "imaginary": 1j} if dtype.kind == "c" else {"": 1}


def _part(values: np.ndarray, name: str) -> np.ndarray:
    return {"": values, "real": values.real, "imaginary": values.imag}[name]


def _probes(shape: tuple[int, ...], rng: np.random.Generator | None) -> list[np.ndarray]:
    """Directions to differentiate along: all unit arrays of a shape, or one random of length 1."""
    if rng is None:
        size = int(np.prod(shape, dtype=int))
        return list(np.eye(size).reshape((size, *shape)))
    direction = rng.random(shape)
    return [direction / (np.linalg.norm(direction) or 1.0)]


# ---------------------------------------------------------------------- derivatives


def _differences(case: _Case, x: Tensor, directions: list[np.ndarray]) -> list[np.ndarray]:
    """Central differences of each returned value: its elements by the directions."""
    memory = x.detach().numpy()
    start = memory.copy()
    columns = []
    try:
        for direction in directions:
            lower, upper = (start + (sign * case.eps) * direction for sign in (-1, 1))
            lower, upper = lower.astype(start.dtype), upper.astype(start.dtype)
            # What remains of the step after rounding: the multiple of the direction that fits best.
            step = np.vdot(direction, upper - lower).real / (
                np.vdot(direction, direction).real or 1.0
            )
            if direction.size and not step:
                raise GradcheckError(
                    f"eps={case.eps} is lost in rounding: added to an input element of size "
                    f"{np.abs(start).max():.3g} and dtype {start.dtype} it changes nothing, so "
                    "there is no difference to take. Use a larger eps."
                )
            memory[...] = lower
            below = _values(case)
            memory[...] = upper
            above = _values(case)
            if len(below) != len(above):
                raise GradcheckError(
                    f"Expected `func` to return as many outputs when inputs are perturbed, but it "
                    f"returned {len(below)} and {len(above)}."
                )
            columns.append([_slope(a, b, step or 1.0) for a, b in zip(below, above, strict=True)])
    finally:
        memory[...] = start
    if not columns:
        return [np.zeros((a.size, 0)) for a in _values(case)]
    return [np.stack(c, axis=1) for c in zip(*columns, strict=True)]


def _values(case: _Case) -> list[np.ndarray]:
    """What the function returns now, as float64 (or complex128) arrays in memory of their own."""
    values = []
    for y in _returned(case.func, case.inputs):
        raw = np.asarray(y.detach().numpy() if isinstance(y, Tensor) else y)
        if raw.dtype.kind not in "fciub":
            raw = np.zeros(0)  # no number: nothing that could change with the inputs
        values.append(np.array(raw, np.result_type(raw.dtype, np.float64)))
    return values


def _slope(below: np.ndarray, above: np.ndarray, step: float) -> np.ndarray:
    if below.shape != above.shape or below.dtype != above.dtype:
        raise GradcheckError(
            "Expected `func` to return outputs with the same shape and dtype when inputs are "
            f"perturbed, but got shapes {below.shape} and {above.shape}, dtypes {below.dtype} and "
            f"{above.dtype}. Check at a point where that does not change."
        )
    with np.errstate(all="ignore"):
        return ((above - below) / step).reshape(-1)


def _pulled(
    case: _Case, y: Tensor, cotangents: list[Any], check_dtypes: bool = False
) -> list[np.ndarray]:
    """For each wanted input the gradients that cotangents of one output give, one in a row."""
    inputs = [x for _, x in case.wanted]
    rows = [np.zeros((len(cotangents), x.size), x.dtype) for x in inputs]
    for r, cotangent in enumerate(cotangents):
        seed = wrap(np.asarray(cotangent, y.dtype))
        found = autograd.grad(y, inputs, seed, retain_graph=True, allow_unused=True)
        for row, g, x in zip(rows, found, inputs, strict=True):
            if g is None:
                continue
            if check_dtypes and g.dtype != x.dtype:
                raise GradcheckError(
                    f"Gradient has dtype mismatch: {g.dtype} for an input of dtype {x.dtype}. The "
                    "derivative rule must return its operand's dtype."
                )
            if g.shape != x.shape:
                raise GradcheckError(
                    f"Analytical gradient has incorrect size: shape {g.shape} for an input of "
                    f"shape {x.shape}. The derivative rule must return its operand's shape."
                )
            row[r] = g.detach().numpy().reshape(-1)
    return rows


def _check_walks(
    case: _Case, y: Tensor, seeds: list[Any], nondet_tol: float, check_grad_dtypes: bool
) -> list[np.ndarray]:
    """The same, after checking that they are the same again, and (if asked) of the right dtype."""
    first, second = (_pulled(case, y, seeds, check_grad_dtypes) for _ in range(2))
    for (i, _), a, b in zip(case.wanted, first, second, strict=True):
        if not _same(a, b, nondet_tol):
            raise GradcheckError(
                "Backward is not reentrant, i.e., running backward with same input and "
                "grad_output multiple times gives different values: they differ by up to "
                f"{_largest(a - b):.6g} for input {i}, and the tolerance for "
                f"nondeterminism was {nondet_tol}. Make the derivative rule deterministic, or "
                "pass nondet_tol."
            )
    return first


def _same(a: np.ndarray, b: np.ndarray, atol: float) -> bool:
    with np.errstate(invalid="ignore"):
        return bool(np.all((a == b) | (np.abs(a - b) <= atol) | (np.isnan(a) & np.isnan(b))))


def _largest(values: np.ndarray) -> float:
    return float(np.nan_to_num(np.abs(values), nan=np.inf).max())


def _pushed(case: _Case, tangents: dict[int, np.ndarray]) -> list[np.ndarray]:
    """The tangents of the outputs that require grad, from tangents of inputs (by position)."""
    from ..transforms.derivatives import jvp

    positions = [k for k, _ in case.outputs]

    def of_wanted(*wanted: Any) -> tuple[Any, ...]:
        arguments = [x.detach() if _tracked(x) else x for x in case.inputs]
        for i, x in zip(tangents, wanted, strict=True):
            arguments[i] = x
        returned = _returned(case.func, arguments)
        return tuple(returned[k] for k in positions)

    primals = tuple(case.inputs[i].detach() for i in tangents)
    seeds = tuple(
        wrap(np.asarray(t, x.dtype)) for t, x in zip(tangents.values(), primals, strict=True)
    )
    _, along = jvp(of_wanted, primals, seeds, allow_unused=True)
    return [np.asarray(t.detach().numpy() if isinstance(t, Tensor) else t) for t in along]


# ---------------------------------------------------------------------- the checks


def _check_slopes(
    case: _Case,
    backward: bool,
    forward: bool,
    fast: bool,
    nondet_tol: float,
    check_grad_dtypes: bool,
) -> None:
    """Both Jacobians (or, fast, their projections) of each output by each input."""
    rng = np.random.default_rng(SEED) if fast else None
    directions = {i: _probes(x.shape, rng) for i, x in case.wanted}
    numerical = {
        i: {
            part: _differences(case, x, [unit * d for d in directions[i]])
            for part, unit in _units(x.dtype).items()
        }
        for i, x in case.wanted
    }
    if not case.outputs:
        _check_no_slopes(numerical)
    elif backward:
        _check_cotangents(case, numerical, directions, rng, nondet_tol, check_grad_dtypes)
    if case.outputs and forward:
        _check_tangents(case, numerical, directions, fast, check_grad_dtypes)


Slopes = dict[int, dict[str, list[np.ndarray]]]
"""`slopes[i]["imaginary"][k]`: how output k changes along the directions of input i times 1j."""


def _check_cotangents(
    case: _Case,
    numerical: Slopes,
    directions: dict[int, list[np.ndarray]],
    rng: np.random.Generator | None,
    nondet_tol: float,
    check_grad_dtypes: bool,
) -> None:
    """Jacobians row by row, by walks back from unit cotangents (or from one random one)."""
    for k, y in case.outputs:
        rows = _probes(y.shape, rng)
        for part, unit in _units(y.dtype).items():
            seeds = [unit * row for row in rows]
            gradients = _check_walks(case, y, seeds, nondet_tol, check_grad_dtypes)
            for (i, _), analytical in zip(case.wanted, gradients, strict=True):
                by_unit = [_part(blocks[k], part) for blocks in numerical[i].values()]
                expected = by_unit[0] if len(by_unit) == 1 else by_unit[0] + 1j * by_unit[1]
                atol = case.atol
                if rng is not None:
                    u, v = rows[0].reshape(1, -1), directions[i][0].reshape(-1, 1)
                    analytical, expected = analytical @ v, u @ expected
                    atol *= u.sum() * v.sum()
                pair = _Pair(k, i, part, fast=rng is not None)
                _compare(case, analytical, expected, atol, pair)


def _check_tangents(
    case: _Case,
    numerical: Slopes,
    directions: dict[int, list[np.ndarray]],
    fast: bool,
    check_grad_dtypes: bool,
) -> None:
    """Jacobians column by column, by tangents along unit directions (or along one random one)."""
    zeros = {i: _zeros(x) for i, x in case.wanted}
    for i, x in case.wanted:
        for part, unit in _units(x.dtype).items():
            columns = [_pushed(case, zeros | {i: unit * d}) for d in directions[i]]
            for position, (k, y) in enumerate(case.outputs if columns else []):
                tangents = [column[position] for column in columns]
                if check_grad_dtypes and any(t.dtype.kind != y.dtype.kind for t in tangents):
                    raise GradcheckError(
                        f"Forward AD gradient has dtype mismatch: output {k} has dtype {y.dtype}, "
                        f"its tangent {tangents[0].dtype}. The rule must return its result's dtype."
                    )
                analytical = np.stack([t.reshape(-1) for t in tangents], axis=1)
                atol = case.atol * (directions[i][0].sum() if fast else 1.0)
                pair = _Pair(k, i, part, forward=True, fast=fast)
                _compare(case, analytical, numerical[i][part][k], atol, pair)


def _zeros(x: Tensor) -> np.ndarray:
    return np.zeros(x.shape, x.dtype)


def _check_no_slopes(numerical: Slopes) -> None:
    for i, by_unit in numerical.items():
        for blocks in by_unit.values():
            for k, block in enumerate(blocks):
                if np.any(block != 0):
                    raise GradcheckError(
                        "Numerical gradient for function expected to be zero, as no output "
                        f"requires grad, but output {k} changes with input {i} by up to "
                        f"{_largest(block):.6g} per unit. Something on the way takes it "
                        "off the tape: detach(), item(), numpy(), or no_grad."
                    )


def _check_zero_cotangents(case: _Case, masked: bool) -> None:
    """Gradients are linear in the cotangents: none of them, none of it."""
    if not case.outputs:
        return
    outputs = [y for _, y in case.outputs]
    found = autograd.grad(
        outputs,
        [x for _, x in case.wanted],
        [wrap(_zeros(y)) for y in outputs],
        retain_graph=True,
        allow_unused=True,
    )
    for (i, _), g in zip(case.wanted, found, strict=True):
        if g is not None and not _vanishes(g.detach().numpy(), masked):
            raise GradcheckError(
                "backward not multiplied by grad_output: zero cotangents of all outputs give a "
                f"gradient of up to {_largest(g.detach().numpy()):.6g} for input {i}. "
                "The derivative rule must be linear in the cotangent."
            )


def _vanishes(values: np.ndarray, roughly: bool) -> bool:
    return np.allclose(values, 0) if roughly else not np.any(values)


def _check_missing_cotangents(case: _Case) -> None:
    """An output left out counts as one whose cotangent is zero."""
    outputs = [y for _, y in case.outputs]
    inputs = [x for _, x in case.wanted]
    seeds = [wrap(_random(y, np.random.default_rng(SEED))) for y in outputs]
    for position, (k, y) in enumerate(case.outputs):
        others = [p for p in range(len(outputs)) if p != position]
        if not others:
            return
        zeros = [wrap(_zeros(y)) if p == position else seeds[p] for p in range(len(outputs))]
        expected = autograd.grad(outputs, inputs, zeros, retain_graph=True, allow_unused=True)
        try:
            found = autograd.grad(
                [outputs[p] for p in others],
                inputs,
                [seeds[p] for p in others],
                retain_graph=True,
                allow_unused=True,
            )
        except RuntimeError as error:
            raise GradcheckError(
                "Expected backward function to handle undefined output grads, but without one "
                f"for output {k} it raised {type(error).__name__}: {error} Let the rule take None "
                "for zeros, or pass check_undefined_grad=False."
            ) from error
        for (i, x), a, b in zip(case.wanted, found, expected, strict=True):
            a, b = (_zeros(x) if g is None else g.detach().numpy() for g in (a, b))
            if not np.allclose(a, b, equal_nan=True):
                raise GradcheckError(
                    f"Expected an undefined output grad to count as zeros, but for input {i} the "
                    f"gradients differ by up to {_largest(a - b):.6g} when that of "
                    f"output {k} is undefined. Let the rule take None for zeros, or pass "
                    "check_undefined_grad=False."
                )


def _check_missing_tangents(case: _Case) -> None:
    """An input without a tangent counts as one whose tangent is zero."""
    rng = np.random.default_rng(SEED)
    tangents = {i: _random(x, rng) for i, x in case.wanted}
    for i, x in case.wanted if len(tangents) > 1 else []:
        others = {j: t for j, t in tangents.items() if j != i}
        for (k, _), a, b in zip(
            case.outputs,
            _pushed(case, others),
            _pushed(case, tangents | {i: _zeros(x)}),
            strict=True,
        ):
            if not np.allclose(a, b, equal_nan=True):
                raise GradcheckError(
                    f"Mismatch in tangent values for output {k} when input {i} has an undefined "
                    f"tangent value: they differ by up to {_largest(a - b):.6g}. Let the "
                    "rule take None for zeros, or pass check_undefined_grad=False."
                )


def _check_batches(case: _Case) -> None:
    """A batch of cotangents in one call gives what they give in a call each."""
    rng = np.random.default_rng(SEED)
    inputs = [x for _, x in case.wanted]
    for k, y in case.outputs:
        seeds = [_random(y, rng) for _ in range(2)]
        expected = _pulled(case, y, seeds)
        batch = wrap(np.stack(seeds))
        found = autograd.grad(
            y, inputs, batch, retain_graph=True, allow_unused=True, is_grads_batched=True
        )
        for (i, _), g, rows in zip(case.wanted, found, expected, strict=True):
            values = np.zeros_like(rows) if g is None else g.detach().numpy().reshape(rows.shape)
            if not np.allclose(values, rows, equal_nan=True):
                raise GradcheckError(
                    f"gradcheck failed while testing batched gradient computation, for output {k} "
                    f"and input {i}.\nGot:\n{values}\nExpected:\n{rows}\nPass "
                    "check_batched_grad=False if no batches are used."
                )


def _random(like: Tensor, rng: np.random.Generator) -> np.ndarray:
    values = rng.uniform(-1, 1, like.shape)
    return (
        values + 1j * rng.uniform(-1, 1, like.shape) if like.dtype.kind == "c" else values
    ).astype(like.dtype)


def _random_cotangents(outputs: list[Tensor], gaps: bool) -> list[Tensor]:
    rng = np.random.default_rng(SEED)
    cotangents = []
    for y in outputs:
        values = np.asarray(_random(y, rng))
        if gaps and values.ndim:
            values = np.repeat(values, 2, axis=-1)[..., ::2]
        cotangents.append(wrap(values).requires_grad_())
    return cotangents


# ---------------------------------------------------------------------- what went wrong


@dataclass(frozen=True, slots=True)
class _Pair:
    """Which Jacobian is compared: of which output by which input, and how it was made."""

    output: int
    input: int
    part: str
    forward: bool = False
    fast: bool = False


def _compare(
    case: _Case, analytical: np.ndarray, numerical: np.ndarray, atol: float, pair: _Pair
) -> None:
    """Raise GradcheckError unless both Jacobians agree; in fast mode find the wrong entry by the whole Jacobians."""
    if np.isclose(analytical, numerical, rtol=case.rtol, atol=atol).all():
        return
    if not pair.fast:
        raise GradcheckError(_mismatch(case, analytical, numerical, pair))
    # A projection tells nobody which entry is wrong: the whole Jacobians do.
    try:
        _check_slopes(case, not pair.forward, pair.forward, False, np.inf, False)
    except GradcheckError as error:
        raise GradcheckError(
            f"{error.args[0]}\nFound in fast mode; these are the whole Jacobians."
        ) from None
    raise GradcheckError(
        f"Fast gradcheck failed for output {pair.output} with respect to input {pair.input} "
        f"(projected Jacobians: numerical {numerical.ravel()}, analytical {analytical.ravel()}) "
        "but element-wise differences are small: slow mode passes. Pass fast_mode=False."
    )


def _mismatch(case: _Case, analytical: np.ndarray, numerical: np.ndarray, pair: _Pair) -> str:
    """Both Jacobians, where they differ most, and what that looks like."""
    x = case.inputs[pair.input]
    y = case.returned[pair.output]
    wrong = ~np.isclose(analytical, numerical, rtol=case.rtol, atol=case.atol)
    with np.errstate(all="ignore"):
        gap = np.where(wrong, np.nan_to_num(np.abs(analytical - numerical), nan=np.inf), -1.0)
    row, column = np.unravel_index(np.argmax(gap), gap.shape)
    prefix = ""
    if pair.part:
        kind = "inputs" if pair.forward else "outputs"
        prefix = f"While considering the {pair.part} part of complex {kind} only, "
    mode = " computed with forward mode" if pair.forward else ""
    return (
        f"{prefix}Jacobian{mode} mismatch for output {pair.output} with respect to input "
        f"{pair.input},\nnumerical:\n{numerical}\nanalytical:\n{analytical}\n(a row for each "
        f"element of the output, a column for each of the input). {np.count_nonzero(wrong)} of "
        f"{wrong.size} entries differ by more than atol={case.atol} + rtol={case.rtol} * "
        "|numerical|. The largest difference is "
        f"{np.abs(analytical[row, column] - numerical[row, column]):.6g}, for "
        f"output{_index(row, y.shape)} by input{_index(column, x.shape)}: numerical "
        f"{numerical[row, column]:.10g}, analytical "
        f"{analytical[row, column]:.10g}.{_diagnosis(case, analytical, numerical)}"
    )


def _index(flat: Any, shape: tuple[int, ...]) -> str:
    return str([int(i) for i in np.unravel_index(flat, shape)]) if shape else ""


def _diagnosis(case: _Case, analytical: np.ndarray, numerical: np.ndarray) -> str:
    """A sentence, if the difference looks like a common fault."""
    first, second = _values(case), _values(case)
    if not all(np.array_equal(a, b, equal_nan=True) for a, b in zip(first, second, strict=True)):
        return (
            " Two runs of func at the same point give different values: make it deterministic, or "
            "seed it."
        )
    if not analytical.any():
        return (
            " The analytical one is 0: something on the way takes the value off the tape, such as "
            "detach() or item()."
        )
    moves = np.abs(numerical) > 10 * case.atol
    with np.errstate(all="ignore"):
        ratios = analytical[moves] / numerical[moves]
    if ratios.size == 0 or (ratios.size == 1 < moves.size):
        return _coarse(case)
    factor = complex(np.median(ratios.real), np.median(ratios.imag))
    if np.allclose(ratios, factor, rtol=1e-2) and np.allclose(
        analytical, factor * numerical, rtol=1e-2, atol=1e-3
    ):
        factor = factor if abs(factor.imag) > 1e-4 else factor.real
        return (
            f" Everywhere the analytical one is {factor:.4g} times the numerical: a sign or a "
            "factor is wrong."
        )
    return _coarse(case)


def _coarse(case: _Case) -> str:
    coarse = [i for i, x in case.wanted if x.dtype.itemsize // (1 + (x.dtype.kind == "c")) < 8]
    if not coarse:
        return ""
    i = coarse[0]
    return f" Input {i} is {case.inputs[i].dtype}, too coarse for differences: check in float64."


__all__ = ["GradcheckError", "gradcheck", "gradgradcheck"]
