"""Every public name of PyTorch's autograd, as a table: here it is, under the same module, or `LEFT_OUT` says why not.

`TAPEGRAD_SUITE=torch pytest tests/test_autograd_names.py` asserts that the table is PyTorch's own, no name forgotten and none invented.
"""

from __future__ import annotations

import importlib
import inspect
import os

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
