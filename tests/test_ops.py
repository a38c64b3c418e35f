"""Every op obeys every law, on every sample of its declaration; and every law catches the bug it is there for."""

from __future__ import annotations

import operator
from functools import partial

import numpy as np
import pytest

import tapegrad as tg
from tapegrad import check_op
from tapegrad.check.laws import LAWS, laws_of, record
from tapegrad.check.samples import samples_from, samples_of
from tapegrad.core import sweep
from tapegrad.core.domain import positive
from tapegrad.core.primitive import (
    CONSTANTS,
    FUNCTIONS,
    OPS,
    UFUNCS,
    call,
    compiled_as,
    elementwise,
    primitive,
    select,
)
from tapegrad.core.tape import STRIDE
from tapegrad.core.tensor import Tensor
from tapegrad.errors import GradcheckError
from tapegrad.native import rules
from tapegrad.program import partials

DECLARED = OPS[1:]

# Public functions that are made of several ops, and the operators, whose code is generated apart from the functions'.
COMPOSED = {
    "var": (
        np.var,
        [call((4,)), call((3, 4), axis=1), call((3, 4), axis=0, ddof=1, keepdims=True)],
    ),
    "std": (np.std, [call((4,)), call((3, 4), axis=(0, 1), ddof=1)]),
    "tensordot": (
        np.tensordot,
        [call((2, 3, 4), (3, 4, 2)), call((2, 3), (4, 2), axes=((0,), (1,)))],
    ),
    "outer": (np.outer, [call((2,), (3,)), call((2, 2), (3,))]),
    "inner": (np.inner, [call((3,), (3,)), call((2, 3), (4, 3))]),
    "vdot": (np.vdot, [call((3,), (3,)), call((2, 2), (2, 2))]),
    "np.dot": (np.dot, [call((2, 3), (3,)), call((), (2, 2)), call((2, 2, 3), (3,))]),
    "diagonal": (np.diagonal, [call((3, 4)), call((2, 3, 3), offset=1, axis1=1, axis2=2)]),
    "trace": (np.trace, [call((3, 3)), call((3, 4), offset=-1)]),
    "diff": (np.diff, [call((4,)), call((3, 3), n=2, axis=0)]),
    "ravel": (np.ravel, [call((2, 3)), call((2, 3), order="F")]),
    "vstack": (lambda x, y: np.vstack([x, y]), [call((3,), (2, 3))]),
    "hstack": (lambda x, y: np.hstack([x, y]), [call((3,), (2,)), call((2, 3), (2, 1))]),
    "column_stack": (lambda x, y: np.column_stack([x, y]), [call((3,), (3, 2))]),
    "split": (lambda x: np.split(x, [1, 3])[1], [call((4, 2))]),
    "array_split": (lambda x: np.array_split(x, 3)[0], [call((4,))]),
    "np.clip": (np.clip, [call((4,), -0.5, 0.5), call((2, 3), None, (3,))]),
    "np.sign": (np.sign, [call((3,))]),
    **{
        f"operator.{f.__name__}": (
            f,
            [call((2, 3), (3,)), call((3,), 2.5), call(2.5, (3,)), call((3,), 2), call(3, (3,))],
        )
        for f in (operator.add, operator.sub, operator.mul, operator.truediv)
    },
    "operator.pow": (
        operator.pow,
        [
            call((3,), (2, 3), domains=(positive,)),
            call((3,), 3),
            call((3,), -1.0),
            call(2, (3,)),
            call((3,), 0.5, domains=(positive,)),
        ],
    ),
    "operator.mod": (operator.mod, [call((3,), 1.75), call(2.5, (3,), domains=(positive,))]),
    "operator.matmul": (operator.matmul, [call((2, 3), (3, 2)), call((3,), (3,))]),
    "operator.neg": (operator.neg, [call((3,))]),
    "operator.pos": (operator.pos, [call((3,))]),
    "operator.abs": (operator.abs, [call((3,))]),
}


STAND_FOR_NUMPYS = {"multiply", "divide", "exp"}
STAND_FOR_OTHERS = {"erf", "xlogy", "j1", "jv", "polygamma", "chdtr"}
OF_ANOTHER_DTYPE = ("float32", "complex", "mixed", "number")


def compiled_for_tests(sample):
    """Kernels of all dtypes have one template, and Numba takes up to two seconds for each: some ops stand for all.

    Of NumPy's functions the plain samples have kernels too; of others, the law of partials in compiled code compiles the formulas.
    """
    op = sample.op
    if op is None or not op.elementwise or op.name in STAND_FOR_NUMPYS:
        return True
    if getattr(np, op.of.__name__, None) is not op.of:
        return op.name in STAND_FOR_OTHERS and not sample.variant
    return sample.variant not in OF_ANOTHER_DTYPE


SUBJECTS = {op.name: partial(samples_of, op) for op in DECLARED} | {
    name: partial(samples_from, function, calls) for name, (function, calls) in COMPOSED.items()
}


COMPILING = ("nopython", "replay", "compiled")


def judge(name, engines):
    """Every law on every sample of one op: those of the tape, or of what is compiled for it. A broken one names op, sample and law; the
    others are tried all the same. How many were tried is returned."""
    tried, broken = 0, []
    for place, sample in enumerate(SUBJECTS[name]()):
        for law in laws_of(sample):
            if law.name == "replay" and not compiled_for_tests(sample):
                continue
            if law.name == "native" or (law.name == "compiled" and place):  # see below
                continue
            if (law.name in COMPILING) is not engines:
                continue
            tried += 1
            try:
                law(sample)
            except GradcheckError as error:
                broken.append(f"{name}-{sample.name}-{law.name}: {error}")
    assert not broken, "\n\n".join(broken)
    return tried


@pytest.mark.parametrize("name", SUBJECTS)
def test_laws(name):
    assert judge(name, engines=False) or "samples" in SUBJECTS[name].args[0].unsupported


@pytest.mark.parametrize("op", [op for op in DECLARED if op.directions], ids=lambda op: op.name)
def test_several_directions_together_give_what_each_gives(op):
    """The rule for several directions, in all operands and in each by itself."""
    for sample in samples_of(op):
        recorded = record(sample)
        stop = len(recorded.code) // STRIDE
        tangents = [
            np.stack([np.asarray(sample.drawn(x)) for _ in range(3)]) for x in sample.variables
        ]
        for chosen in {tuple(recorded.nodes), *((node,) for node in recorded.nodes)}:
            given = {n: t for n, t in zip(recorded.nodes, tangents, strict=True) if n in chosen}
            together = dict(given)
            sweep.push(recorded.code, 0, stop, together, False, 3)
            for i in range(3):
                alone = {n: t[i] for n, t in given.items()}
                sweep.push(recorded.code, 0, stop, alone)
                found, expected = together[recorded.out._node][i], alone[recorded.out._node]
                assert found.dtype == expected.dtype and found.shape == expected.shape
                eps = np.finfo(found.dtype).eps
                size = np.max(np.abs(expected), initial=0.0)
                np.testing.assert_allclose(found, expected, rtol=0, atol=20 * eps * size)


@pytest.mark.long
@pytest.mark.parametrize("name", SUBJECTS)
def test_laws_of_what_is_compiled(name):
    judge(name, engines=True)


# ----------------------------------------------------------------------------------------- compiled and native engines
#
# A program is compiled for each sample, and a dozen native ones: the first sample of each op (above) stands for all, and the other
# samples, kernels and native functions are campaigns. `tg.check_op(op, only=["native"])` is for whoever changes a rule.

NATIVE = [
    tg.abs,
    tg.arctan2,
    tg.divide,
    tg.expm1,
    tg.hypot,
    tg.logaddexp,
    tg.power,
    tg.sqrt,
    tg.tanh,
]


def samples_under(law, op):
    return [sample for sample in samples_of(op) if law in laws_of(sample)]


def natively(function):
    LAWS["native"](samples_under(LAWS["native"], function.primitive)[0])


@pytest.mark.campaign
def test_a_native_function_gives_what_the_sweep_gives():
    natively(tg.maximum)


@pytest.mark.campaign
@pytest.mark.parametrize("function", NATIVE, ids=lambda f: f.__name__)
def test_more_native_functions(function):
    natively(function)


@pytest.mark.campaign
@pytest.mark.parametrize("op", [op for op in DECLARED if op.elementwise], ids=lambda op: op.name)
def test_every_kernel(op):
    for sample in samples_under(LAWS["replay"], op):
        alike = op.saves and sample.variant in OF_ANOTHER_DTYPE
        if not (alike or compiled_for_tests(sample)):
            LAWS["replay"](sample)


@pytest.mark.campaign
@pytest.mark.parametrize("op", DECLARED, ids=lambda op: op.name)
def test_every_sample_compiled(op):
    for sample in samples_under(LAWS["compiled"], op):
        LAWS["compiled"](sample)


# ------------------------------------------------------------------------------------------------- planted bugs


@pytest.fixture
def declaring():
    """Ops declared in a test are gone after it. Their codes stay taken: compiled tables may know them by now."""
    ufuncs, functions, constants, methods = (
        dict(UFUNCS),
        dict(FUNCTIONS),
        set(CONSTANTS),
        set(vars(Tensor)),
    )
    yield
    for registry, saved in ((UFUNCS, ufuncs), (FUNCTIONS, functions), (CONSTANTS, constants)):
        registry.clear()
        registry.update(saved)
    for name in set(vars(Tensor)) - methods:
        delattr(Tensor, name)
    # What reads the registries once must not have read a planted rule: which file a process had before decided it.
    rules._partials.cache_clear()
    partials._declared.cache_clear()


def plant(*partials, of=np.sin, **declared):
    return elementwise(of, *partials, name="planted", **declared).primitive


def plant_structural(rule, of=np.negative, **declared):
    return primitive(of, name="planted", samples=[call((3,))], **declared)(rule).primitive


def a_wrong_value():
    return plant_structural(lambda g: -g, forward=lambda x: +x)


def a_wrong_factor():
    return plant(lambda x: 2 * np.cos(x))


def a_wrong_sign_of_one_operand():
    return plant(1, 1, of=np.subtract)


def a_missing_conjugate():
    return plant_structural(lambda g, x: g * 2 * x, of=np.square)


def a_jvp_that_is_not_the_transpose():
    return plant_structural(lambda g: -g, jvp=lambda ts, xs, out: ts[0])


def a_rule_that_leaves_the_tape():
    return plant(lambda x: np.cos(x._value if isinstance(x, Tensor) else x))


def a_rule_that_is_not_linear_in_g():
    return plant_structural(lambda g: -g * g / (g._value if isinstance(g, Tensor) else g))


def a_wrong_shape():
    return plant_structural(lambda g: -g[:-1])


def a_cotangent_that_forgets_broadcasting():
    return plant_structural(lambda g: np.stack([g, g]).T)


def a_leak_of_float64():
    return plant_structural(
        lambda g: -g, forward=lambda x: np.negative(x, dtype=np.result_type(x, float))
    )


def an_operand_overwritten():
    return plant_structural(lambda g: -g, forward=lambda x: np.negative(x, out=x))


def a_cotangent_overwritten():
    return plant_structural(
        lambda g: np.multiply(g, -1, out=g) if isinstance(g, np.ndarray) else -g
    )


def a_result_overwritten():
    def rule(g, out):
        g = g + 0 * out
        out *= 2
        return -g

    return plant_structural(rule)


def two_entries():
    op = plant(1, of=np.positive)
    op.function = lambda x: tg.negative(tg.negative(x))
    return op


def no_entry():
    op = plant(1, of=np.positive)
    op.function = lambda x: x
    return op


def a_partial_that_numba_cannot_compile():
    return plant(lambda x: np.cos(x) * len({"a": object()}))


def a_partial_that_differs_for_scalars():
    return plant(lambda x: select(np.isscalar(x), 2.0, 1.0) * np.cos(x))


def a_partial_that_differs_when_traced():
    return plant(
        lambda x: np.cos(x) * (1.0 if type(x) in (np.ndarray, np.float64, Tensor) else 2.0)
    )


twice = compiled_as(lambda x: 2 * np.cos(x))(lambda x: np.cos(x))


def a_formula_that_differs_in_compiled_code():
    # Numba keeps what overloading has made of a function: the fault stays in this process, so it is planted where no test looks.
    rules._partials.cache_clear()
    return plant(lambda x: twice(x), of=np.rad2deg)


def a_varying_function_called_constant():
    FUNCTIONS.pop(np.ptp, None)
    CONSTANTS.add(np.ptp)
    return np.ptp


PLANTED = [
    ("value", a_wrong_value),
    ("derivative", a_wrong_factor),
    ("derivative", a_wrong_sign_of_one_operand),
    ("derivative", a_missing_conjugate),
    ("adjoint", a_jvp_that_is_not_the_transpose),
    ("second", a_rule_that_leaves_the_tape),
    ("second", a_rule_that_is_not_linear_in_g),
    ("broadcast", a_wrong_shape),
    ("broadcast", a_cotangent_that_forgets_broadcasting),
    ("dtype", a_leak_of_float64),
    ("pure", an_operand_overwritten),
    ("pure", a_cotangent_overwritten),
    ("pure", a_result_overwritten),
    ("one_entry", two_entries),
    ("one_entry", no_entry),
    ("nopython", a_partial_that_numba_cannot_compile),
    ("nopython", a_partial_that_differs_for_scalars),
    ("replay", a_partial_that_differs_when_traced),
    ("compiled", a_partial_that_differs_when_traced),
    ("native", a_formula_that_differs_in_compiled_code),
    ("honest", a_varying_function_called_constant),
]


@pytest.mark.long(but=2)
@pytest.mark.parametrize(
    ("law", "planted"), [pytest.param(law, p, id=f"{law}-{p.__name__}") for law, p in PLANTED]
)
def test_a_law_catches(law, planted, declaring):
    if law == "replay" and not replay_runs():
        pytest.skip("replay cannot run here")
    report = check_op(planted(), only=[law])
    assert report.broken == [law]
    assert "BROKEN" in repr(report)
    with pytest.raises(GradcheckError, match=f"the law '{law}'"):
        report.assert_ok()


def test_every_law_has_a_planted_bug():
    assert {law for law, _ in PLANTED} == {*LAWS, "honest"}


def test_a_missing_conjugate_shows_on_complex_samples_alone(declaring):
    report = check_op(a_missing_conjugate(), only=["derivative"])
    assert {sample for (sample, _), verdict in report.verdicts.items() if verdict == "BROKEN"} == {
        "(3,),complex"
    }


def replay_runs():
    from tapegrad import replay

    return replay.available()


# ------------------------------------------------------------------------------------------------------ check_op


def test_check_op_takes_the_name_a_user_knows():
    for op in (tg.sin, np.sin, tg.sin.primitive):
        assert check_op(op, only=["value"]).assert_ok().name == "sin"


def test_a_report_is_a_table_of_samples_by_laws():
    lines = repr(check_op(np.float_power, only=["value", "derivative", "dtype"])).splitlines()
    assert lines[0].startswith("float_power: every law holds (2 laws, ")
    assert lines[1].split() == ["value", "derivative"]
    assert ["float32", "ok", "-"] in [line.split() for line in lines]
    assert lines[-1].startswith("not checked: dtype, because it computes in float64")


def test_a_composition_needs_samples():
    with pytest.raises(TypeError, match=r"Pass samples=\[call"):
        check_op(np.var)
    assert check_op(np.var, samples=[call((3,))], only=["derivative"]).ok


def test_seeds_give_other_operands_and_the_same_verdict():
    first, again, other = (
        next(samples_of(tg.exp.primitive, seed)).operands[0] for seed in (0, 0, 1)
    )
    assert np.array_equal(first, again) and not np.array_equal(first, other)
    check_op(tg.exp, rng=1, only=["derivative", "second"]).assert_ok()
