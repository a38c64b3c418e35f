"""Every public name of PyTorch's autograd, as a table: here it is, under the same module, or `LEFT_OUT` says why not.

`TAPEGRAD_SUITE=torch pytest tests/test_autograd_names.py` asserts that the table is PyTorch's own, no name forgotten and none invented.
"""

from __future__ import annotations

import importlib
import inspect
import os

import numpy as np
import pytest

SUITE = os.environ.get("TAPEGRAD_SUITE", "tapegrad")
tg = importlib.import_module(SUITE)
HERE = SUITE == "tapegrad"
if not HERE:
    tg.set_default_dtype(tg.float64)

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*is deprecated:FutureWarning"),
    pytest.mark.filterwarnings("ignore:.*is deprecated:DeprecationWarning"),
]

# Public names of PyTorch 2.13, by module below `autograd` ("" is autograd itself, submodules and what they import left aside).
NAMES = {
    "": """Function NestedIOFunction SavedTensor Variable backward detect_anomaly enable_grad enforce_grad_layout_policy grad gradcheck
        gradgradcheck inference_mode is_multithreading_enabled is_view_replay_enabled no_grad set_detect_anomaly set_grad_enabled
        set_multithreading_enabled""",
    "function": """BackwardCFunction Function FunctionCtx FunctionMeta InplaceFunction NestedIOFunction
        once_differentiable""",
    "graph": """GradientEdge Node allow_mutation_on_saved_tensors disable_saved_tensors_hooks get_gradient_edge increment_version
        region_activation_memory_budget register_multi_grad_hook save_on_cpu saved_tensors_hooks set_override_stale_capture_stream
        set_warn_on_accumulate_grad_stream_mismatch""",
    "grad_mode": """enable_grad enforce_grad_layout_policy inference_mode no_grad set_grad_enabled
        set_multithreading_enabled""",
    "anomaly_mode": "detect_anomaly set_detect_anomaly",
    "forward_ad": "UnpackedDualTensor dual_level enter_dual_level exit_dual_level make_dual unpack_dual",
    "functional": "hessian hvp jacobian jvp vhp vjp",
    "gradcheck": """GradcheckError get_analytical_jacobian get_numerical_jacobian get_numerical_jacobian_wrt_specific_input gradcheck
        gradgradcheck""",
    "variable": "Variable VariableMeta",
}

LEFT_OUT = {
    "NestedIOFunction": "deprecated since PyTorch 0.4: a Function whose arguments are nested; none of its users are left",
    "SavedTensor": "a handle of the C++ engine, made by no user; what is saved is shown as y.grad_fn._saved_self",
    "enforce_grad_layout_policy": "about the strides that a gradient of a strided (CUDA) parameter has; here it is laid out as NumPy does",
    "is_view_replay_enabled": "tells of a switch of XLA's functionalisation; here views are always taken again",
    "VariableMeta": "the class of the class Variable",
    "get_analytical_jacobian": "deprecated by PyTorch as no part of its interface: functional.jacobian",
    "get_numerical_jacobian": "deprecated by PyTorch as no part of its interface: tg.check_gradient measures slopes",
    "get_numerical_jacobian_wrt_specific_input": "no part of PyTorch's interface, in which it is not documented",
    "region_activation_memory_budget": "an option of torch.compile's partitioner",
    "set_override_stale_capture_stream": "CUDA streams",
    "set_warn_on_accumulate_grad_stream_mismatch": "CUDA streams",
}

# What is met as an attribute.
OF_TENSORS = """backward grad grad_dtype grad_fn output_nr is_leaf requires_grad requires_grad_ retain_grad retains_grad register_hook
    register_post_accumulate_grad_hook detach detach_ data is_inference _version _base _is_view""".split()
OF_NODES = "metadata name next_functions register_hook register_prehook requires_grad".split()
OF_CONTEXTS = """mark_dirty mark_non_differentiable metadata name needs_input_grad next_functions register_hook
    register_prehook save_for_backward save_for_forward saved_tensors saved_variables set_materialize_grads""".split()
OF_FUNCTIONS = "apply backward clear_saved_tensors_on_access forward generate_vmap_rule jvp setup_context vjp vmap".split()
AT_THE_TOP = """autograd enable_grad inference_mode is_grad_enabled is_inference_mode_enabled no_grad
    set_grad_enabled""".split()


def module(name):
    return importlib.import_module(f"{SUITE}.autograd" + (name and f".{name}"))


def rows():
    return [(m, n) for m, names in NAMES.items() for n in names.split()]


@pytest.mark.parametrize(("where", "name"), rows(), ids=lambda s: s or "autograd")
def test_it_is_here_or_left_out_for_a_reason(where, name):
    if HERE and name in LEFT_OUT:
        assert LEFT_OUT[name]
        assert not hasattr(module(where), name), "then it is not left out"
    else:
        assert callable(getattr(module(where), name))


@pytest.mark.skipif(HERE, reason="of PyTorch")
@pytest.mark.parametrize("where", NAMES)
def test_the_table_is_complete(where):
    m = module(where)

    def public(n):
        o = getattr(m, n)
        home = getattr(o, "__module__", "") or ""
        return home.startswith(("torch.autograd", "torch._C._autograd")) and not inspect.ismodule(o)

    found = {
        *getattr(m, "__all__", ()),
        *(n for n in dir(m) if not n.startswith("_") and public(n)),
    }
    # What the profiler and the compiler leave in the namespace is no part of differentiation.
    others = {"DeviceType", "ProfilerEvent", "kineto_available", "variable", "grad_mode"}
    imported = {"Variable"} if where == "graph" else set()
    assert found - others - imported <= set(NAMES[where].split())


def squared():
    x = tg.tensor([1.0, 2.0], requires_grad=True)
    return x, x * x


@pytest.mark.parametrize("name", OF_TENSORS)
@pytest.mark.filterwarnings("ignore:The .grad attribute:UserWarning")
def test_tensors_have_it(name):
    x, y = squared()
    assert hasattr(x, name)
    assert name == "grad_dtype" or hasattr(y, name)


@pytest.mark.parametrize("name", OF_NODES)
def test_nodes_have_it(name):
    _, y = squared()
    assert hasattr(y.grad_fn, name)
    assert hasattr(y.grad_fn.next_functions[0][0], name)


def test_contexts_have_it():
    missing = []

    class Look(tg.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 1

        @staticmethod
        def backward(ctx, g):
            missing.extend(n for n in OF_CONTEXTS if not hasattr(ctx, n))
            assert isinstance(ctx, tg.autograd.function.BackwardCFunction)
            return g

    x, _ = squared()
    Look.apply(x).sum().backward()
    assert not missing


@pytest.mark.parametrize("name", OF_FUNCTIONS)
def test_functions_have_it(name):
    assert hasattr(tg.autograd.Function, name)


@pytest.mark.parametrize("name", AT_THE_TOP)
def test_the_package_has_it(name):
    assert hasattr(tg, name)


# ----------------------------------------------------------------------------------------------- methods in place

# Methods of PyTorch's that end with an underscore, and of which there is none here.
NOT_IN_PLACE = {
    "apply_": "a Python function called for each element, never differentiable: t.copy_(np.vectorize(f)(t.detach().numpy()))",
    "as_strided_": "describes memory, which here belongs to NumPy",
    "index_reduce_": "sums are index_add_; for the others, store what np.maximum.reduceat and its like give",
    "map2_": "as apply_, and not documented",
    "map_": "as apply_",
    "resize_": "describes memory, which here belongs to NumPy",
    "resize_as_": "describes memory, which here belongs to NumPy",
    "resize_as_sparse_": "there are no sparse tensors",
    "scatter_reduce_": "sums are scatter_add_; for the others, store what np.maximum.at and its like give",
    "set_": "describes memory, which here belongs to NumPy",
    "share_memory_": "memory shared between processes is NumPy's to give: tg.from_numpy",
    "sparse_resize_": "there are no sparse tensors",
    "sparse_resize_and_clear_": "there are no sparse tensors",
}


@pytest.mark.peers
@pytest.mark.skipif(not HERE, reason="compares with PyTorch")
def test_every_method_in_place_is_here_or_left_out_for_a_reason():
    torch = pytest.importorskip("torch")
    theirs = {n for n in dir(torch.Tensor) if n.endswith("_") and not n.startswith("_")}
    assert {n for n in theirs if not hasattr(tg.Tensor, n)} == set(NOT_IN_PLACE)


# name: arguments after the tensor, of which True stands for another tensor that is differentiated by, too
METHODS = {
    **dict.fromkeys("abs acos acosh asin asinh atan atanh ceil cos cosh deg2rad digamma erf erfc erfinv exp exp2 expm1 fix floor frac i0 lgamma log".split(), ()),
    **dict.fromkeys("log10 log1p log2 logit neg rad2deg reciprocal relu round rsqrt sgn sigmoid sign sin sinc sinh sqrt square tan tanh trunc".split(), ()),
    **dict.fromkeys("add atan2 copysign div eq fmod ge gt heaviside hypot le lt mul ne not_equal pow remainder sub xlogy".split(), (True,)),
    "addcmul": (True, True), "addcdiv": (True, True), "lerp": (True, 0.25), "cumsum": (1,), "cumprod": (0,), "tril": (), "triu": (1,),
    "clamp": (0.3, 0.6), "clamp_min": (0.4,), "clamp_max": (0.4,), "addmm": (True, True), "polygamma": (1,), "ldexp": (None,),
    "renorm": (2, 0, 0.5), "mvlgamma": (1,), "baddbmm": (True, True), "addbmm": (True, True), "igamma": (None,), "igammac": (None,),
    "fill": (2.0,), "zero": (), "copy": (True,), "t": (), "transpose": (0, 1), "squeeze": (), "unsqueeze": (0,), "nan_to_num": (),
}  # fmt: skip
SHAPES = {"baddbmm": [(2, 3, 3)] * 3, "addbmm": [(3, 3), (2, 3, 3), (2, 3, 3)]}

# Of these PyTorch has no derivative in place, or both have none (there the result is a constant).
VALUES_ONLY = {
    "acosh",
    "asinh",
    "atanh",
    "sgn",
    "heaviside",
    "igamma",
    "igammac",
    "eq",
    "ge",
    "gt",
    "le",
    "lt",
    "ne",
    "not_equal",
}


@pytest.mark.peers
@pytest.mark.skipif(not HERE, reason="compares with PyTorch")
@pytest.mark.parametrize("name", METHODS)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_methods_in_place_do_what_pytorchs_do(name):
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(7)
    shapes = SHAPES.get(name, [(3, 3)] * 3)
    values = [rng.uniform(0.1, 0.9, shape) + (name == "acosh") for shape in shapes]
    followed = name not in VALUES_ONLY
    results = []
    for lib in (torch, tg):
        leaves = [lib.tensor(v.tolist(), dtype=lib.float64, requires_grad=followed) for v in values]
        others = iter(leaves[1:])
        t = leaves[0] * 1
        given = [next(others) if a is True else a for a in METHODS[name]]
        given = [lib.tensor(2.5, dtype=lib.float64) if a is None else a for a in given]
        result = getattr(t, f"{name}_")(*given)
        assert result is t
        out = [t.tolist()]
        if t.requires_grad:
            (t * t.detach().sin()).sum().backward()
            used = [leaves[0], *(g for g in given if isinstance(g, lib.Tensor) and g.requires_grad)]
            out += [
                np.zeros(leaf.shape) if leaf.grad is None else leaf.grad.tolist() for leaf in used
            ]
        results.append(out)
    theirs, ours = results
    for a, b in zip(theirs, ours, strict=True):
        np.testing.assert_allclose(b, a, rtol=1e-7, atol=1e-12)  # its trigamma has 8 digits


@pytest.mark.parametrize(
    ("name", "arguments", "mean"),
    [("bernoulli", (0.25,), 0.25), ("exponential", (2.0,), 0.5), ("geometric", (0.5,), 2.0), ("random", (3, 6), 4.0), ("random", (5,), 2.0),
     ("normal", (1.0, 2.0), 1.0), ("uniform", (1.0, 2.0), 1.5), ("log_normal", (0.0, 0.5), np.exp(0.125)), ("cauchy", (), None)],
)  # fmt: skip
def test_draws_in_place(name, arguments, mean):
    tg.manual_seed(3)
    x = tg.ones(4000, requires_grad=True)
    t = x * 1
    assert getattr(t, f"{name}_")(*arguments) is t
    assert mean is None or abs(t.detach().mean().item() - mean) < 0.15
    t.sum().backward()
    assert set(x.grad.tolist()) == {0.0}


# What PyTorch takes and tapegrad does not, by function; CUDA's and TorchScript's arguments only.
ARGUMENTS_LEFT_OUT = {"Function": {"args", "kwargs"}, "enable_grad": {"orig_func"}}


@pytest.mark.peers
@pytest.mark.skipif(not HERE, reason="compares with PyTorch")
def test_arguments_have_the_same_names_and_defaults():
    torch = pytest.importorskip("torch")
    assert torch is not None
    for where, name in rows():
        theirs = getattr(importlib.import_module("torch.autograd" + (where and f".{where}")), name)
        if name in LEFT_OUT:
            continue
        try:
            theirs, ours = (
                inspect.signature(theirs),
                inspect.signature(getattr(module(where), name)),
            )
        except ValueError:  # written in C++
            continue
        for argument, parameter in theirs.parameters.items():
            if argument in ARGUMENTS_LEFT_OUT.get(name, ()):
                continue
            mine = ours.parameters[argument]
            assert mine.kind == parameter.kind, (where, name, argument)
            if parameter.default not in (inspect.Parameter.empty, "cuda"):
                assert mine.default == parameter.default, (where, name, argument)


# ------------------------------------------------------------------------------------------------- the smaller ones


def test_variable():
    Variable = tg.autograd.Variable
    t = tg.ones(2)
    x = Variable(t, requires_grad=True)
    assert x.requires_grad and x.is_leaf and not t.requires_grad
    assert isinstance(t, Variable) and not isinstance(2.0, Variable)
    with tg.no_grad():
        x[0] = 5.0
    assert t.tolist() == [5.0, 1.0]
    assert tuple(Variable().shape) == (0,)
    assert not Variable(x * 2).requires_grad
    with pytest.raises(TypeError, match="Variable data has to be a tensor, but got list"):
        Variable([1.0])


def test_multithreading_is_a_switch():
    autograd = tg.autograd
    assert autograd.is_multithreading_enabled()
    with autograd.set_multithreading_enabled(False):
        assert not autograd.is_multithreading_enabled()
        x, y = squared()
        y.sum().backward()
        assert x.grad.tolist() == [2.0, 4.0]
    assert autograd.is_multithreading_enabled()
    autograd.set_multithreading_enabled(False)
    assert not autograd.is_multithreading_enabled()
    autograd.set_multithreading_enabled(True)


def test_grad_variables_is_an_older_name():
    x, y = squared()
    with pytest.warns(FutureWarning, match="`grad_variables` is deprecated. Use `grad_tensors`"):
        tg.autograd.backward(y, grad_variables=tg.ones(2))
    assert x.grad.tolist() == [2.0, 4.0]
    with pytest.raises(RuntimeError, match="arguments both passed"):
        tg.autograd.backward(x * x, tg.ones(2), grad_variables=tg.ones(2))


def test_grad_dtype_is_the_tensors():
    x, y = squared()
    assert x.grad_dtype == tg.float64
    x.grad_dtype = tg.float64
    for action in (lambda: y.grad_dtype, lambda: setattr(y, "grad_dtype", tg.float64)):
        with pytest.raises(RuntimeError, match="on leaf tensors"):
            action()
    if HERE:
        with pytest.raises(RuntimeError, match="a gradient has the dtype of what it belongs to"):
            x.grad_dtype = tg.float32
