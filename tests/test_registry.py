"""The registry: what every declaration must bring, and that no function of NumPy's is forgotten or silently wrong."""

from __future__ import annotations

import inspect
import pickle

import numpy as np
import pytest

import tapegrad as tg
import tapegrad.special  # declares its ops
from tapegrad.check.laws import LAWS, VARIANTS, WAYS, honest
from tapegrad.check.samples import samples_of
from tapegrad.core.primitive import CONSTANTS, FUNCTIONS, OPS, REFUSED, UFUNCS, UNTOLD, signature_of
from tapegrad.errors import GradcheckError

DECLARED = OPS[1:]


def test_codes_and_names_are_unique():
    assert [op.code for op in OPS] == list(range(len(OPS)))
    names = [op.name for op in DECLARED]
    assert sorted(set(names)) == sorted(names)


def test_an_op_says_what_it_is():
    """The first line of its docstring is a sentence of its own, and not just its name."""
    for op in DECLARED:
        first = (op.function.__doc__ or "").strip().splitlines()[0]
        assert len(first.split()) > 1, (op, first)


@pytest.mark.long
def test_an_op_has_samples():
    for op in DECLARED:
        assert list(samples_of(op)) or "samples" in op.unsupported, op
        assert all(d.name for d in op.domains), op
        assert not op.elementwise or len(op.domains) == op.arity, op


@pytest.mark.long
def test_the_generated_source_is_visible():
    """In `op.source`, to the inspect module, and so in tracebacks and debuggers."""
    for op in DECLARED:
        assert op.function.source.startswith(f"def {op.name}("), op
        assert inspect.getsource(op.function) == op.function.source, op


def test_exceptions_carry_a_reason_in_words():
    """What an op does not support is a law or a kind of sample, with a sentence why."""
    for op in DECLARED:
        assert set(op.unsupported) <= {*LAWS, *VARIANTS, *WAYS, "samples"}, op
        assert all(len(why.split()) > 3 for why in op.unsupported.values()), op


@pytest.mark.parametrize("module", ["", "linalg", "fft"])
def test_numpys_names_are_ours(module):
    """What `np.f(tensor)` calls is there as `tg.f`."""
    theirs, ours = (getattr(m, module) if module and hasattr(m, module) else m for m in (np, tg))
    for of, function in {**UFUNCS, **FUNCTIONS}.items():
        name = getattr(of, "__name__", "")
        if (
            name
            and getattr(theirs, name, None) is of
            and (not module or getattr(np, name, None) is not of)
        ):
            public = getattr(ours, name, None)
            assert public is not None, f"tg.{module}.{name}"
            assert (
                public is function
                or public.__name__ == function.__name__
                or public.__doc__ == function.__doc__
            ), name


def test_signatures_that_an_older_numpy_does_not_tell():
    """The table has each function of ours that needs it, and says what NumPy says where NumPy tells it."""
    assert all(signature_of(of) for of in FUNCTIONS if not isinstance(of, np.ufunc))
    for of in UNTOLD:
        assert of in FUNCTIONS
        try:
            told = inspect.signature(of)
        except ValueError:
            continue
        assert [(p.name, p.kind, p.default) for p in signature_of(of).parameters.values()] == [
            (p.name, p.kind, p.default) for p in told.parameters.values()
        ]


def test_refusals_have_reasons():
    assert all(len(reason.split()) > 3 for reason in REFUSED.values())
    assert not set(REFUSED) & (set(UFUNCS) | set(FUNCTIONS) | CONSTANTS)


# ------------------------------------------------------------------------------------- every function of NumPy's

# They write files, or say where an array lies.
NOT_CALLED = {
    np.save,
    np.savez,
    np.savez_compressed,
    np.savetxt,
    np.shares_memory,
    np.may_share_memory,
}


def numpys_functions():
    """The functions by which NumPy hands tensors over: ufuncs, and those that know __array_function__."""
    dispatched = type(np.sum)
    for module in (np, np.linalg, np.fft):
        for name in sorted(dir(module)):
            function = getattr(module, name)
            if isinstance(function, np.ufunc | dispatched) and function not in NOT_CALLED:
                yield pytest.param(function, id=f"{module.__name__}.{name}")


@pytest.mark.parametrize("function", list(numpys_functions()))
def test_no_function_loses_a_gradient_silently(function):
    """It has a rule, or its result does not vary, or it raises and names itself."""
    honest(function)


def test_the_law_above_sees_a_loss():
    """np.ptp without its rule must raise, which it does; called constant it would lose the gradient."""
    rule = FUNCTIONS.pop(np.ptp)
    try:
        honest(np.ptp)
        CONSTANTS.add(np.ptp)
        with pytest.raises(GradcheckError, match="ptp was checked for the law 'honest'"):
            honest(np.ptp)
    finally:
        CONSTANTS.discard(np.ptp)
        FUNCTIONS[np.ptp] = rule


def test_constants_of_a_tracked_tensor_are_untracked_values():
    t = tg.tensor([3.0, 1.0, 2.0], requires_grad=True)
    assert np.argmax(t) == 0 and not np.argsort(t).requires_grad
    assert (t > 1.5).tolist() == [True, False, True]
    assert np.array_equal(np.isnan(t), [False] * 3)


@pytest.mark.parametrize(
    "call",
    [
        lambda t: np.full_like(t, t[0]),
        lambda t: np.bincount(np.arange(3), weights=t),
        lambda t: np.histogram(np.arange(3.0), weights=t),
        lambda t: np.zeros_like(t),
    ],
    ids=["full_like", "bincount-weights", "histogram-weights", "zeros_like"],
)
def test_a_constant_function_with_a_tracked_value_among_its_settings(call):
    """It must not drop the gradient: the result stays tracked, does not depend on t, or there is an error."""
    t = tg.tensor([1.0, 2.0, 3.0], requires_grad=True)
    try:
        result = call(t)
    except (tg.NotDifferentiable, tg.GradientLost):
        return
    first = result[0] if isinstance(result, tuple) else result
    if not first.requires_grad:
        moved = call(tg.tensor([1.1, 2.1, 3.1]))
        moved = moved[0] if isinstance(moved, tuple) else moved
        assert np.array_equal(first.detach(), moved), "the result varies with t, and is not tracked"


def test_public_functions_survive_pickling():
    """They are reached by name in another process, as for multiprocessing."""
    for function in (tg.sin, tg.sum, tg.concatenate):
        assert pickle.loads(pickle.dumps(function)) is function
