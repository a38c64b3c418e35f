"""tapegrad.optim: the updates of torch.optim to rounding, beside torch where it is installed and beside stored numbers always."""

import copy
import json
import pickle

import numpy as np
import pytest

import tapegrad as tg

try:
    import torch
except ImportError:
    torch = None

needs_torch = pytest.mark.skipif(torch is None, reason="torch is not installed")

# fmt: off
SETTINGS = {
    "SGD":              ("SGD", dict(lr=0.02)),
    "momentum":         ("SGD", dict(lr=0.02, momentum=0.9)),
    "dampening":        ("SGD", dict(lr=0.02, momentum=0.9, dampening=0.3, weight_decay=0.1)),
    "Nesterov":         ("SGD", dict(lr=0.02, momentum=0.9, nesterov=True, weight_decay=0.1)),
    "SGD-maximize":     ("SGD", dict(lr=0.001, maximize=True, weight_decay=0.1)),
    "Adam":             ("Adam", dict(lr=0.1)),
    "Adam-all":         ("Adam", dict(lr=0.1, betas=(0.8, 0.95), eps=1e-4, weight_decay=0.1, amsgrad=True)),
    "Adam-maximize":    ("Adam", dict(lr=0.1, maximize=True)),
    "AdamW":            ("AdamW", dict(lr=0.1)),
    "AdamW-all":        ("AdamW", dict(lr=0.1, weight_decay=0.3, amsgrad=True)),
    "RMSprop":          ("RMSprop", dict(lr=0.05)),
    "RMSprop-all":      ("RMSprop", dict(lr=0.05, alpha=0.9, momentum=0.8, centered=True, weight_decay=0.1)),
    "RMSprop-centered": ("RMSprop", dict(lr=0.05, centered=True)),
    "Adagrad":          ("Adagrad", dict(lr=0.3)),
    "Adagrad-all":      ("Adagrad", dict(lr=0.3, lr_decay=0.1, weight_decay=0.1, initial_accumulator_value=0.2)),
    "LBFGS":            ("LBFGS", dict(lr=0.1)),
    "LBFGS-wolfe":      ("LBFGS", dict(line_search_fn="strong_wolfe", max_iter=4)),
    "LBFGS-short":      ("LBFGS", dict(line_search_fn="strong_wolfe", history_size=2, max_iter=7)),
}

# The first element of x, and y, after 8 steps on `loss`, from torch 2.13.
STORED = {
    "SGD": [1.03831049461, -0.7677200926574, 0.7951231670201, 0.7262699528987],
    "momentum": [-0.3648891056412, 1.04312691447, 0.2595057942648, 0.5929575491665],
    "dampening": [-0.8173096522606, 1.166457469255, 0.3445268461894, 0.6624740288856],
    "Nesterov": [0.8212082488198, 0.8119163909392, 0.5663309641291, 0.3761545245958],
    "SGD-maximize": [1.741474588132, -1.377508985981, 0.3021301420533, 0.935609928735],
    "Adam": [0.8496868223211, -0.6033281305643, 0.9141156649714, 0.5139799700136],
    "Adam-all": [0.8936182092317, -0.6548053253401, 0.8627778049035, 0.5648439196408],
    "Adam-maximize": [2.298768264741, -1.995900669905, -0.4081272493655, 1.706670830519],
    "AdamW": [0.8436934017047, -0.5975382319764, 0.9084338178806, 0.5091377765588],
    "AdamW-all": [0.6938806820339, -0.4442436281577, 0.7573185684821, 0.3869020393876],
    "RMSprop": [0.9759276612246, -0.7610437869647, 0.7609212946223, 0.6713503047715],
    "RMSprop-all": [0.5886292434309, -0.4259805766935, 0.5649161168684, 0.8628361569253],
    "RMSprop-centered": [0.9761325652032, -0.7603758356915, 0.7600237357579, 0.6702006373086],
    "Adagrad": [0.992596094471, -0.7894150259574, 0.7997814819865, 0.7205391371601],
    "Adagrad-all": [1.007317545376, -0.7859763918624, 0.7820263565444, 0.6877657770481],
    "LBFGS": [0.8896507553398, -0.9367337685823, 0.9456207770797, 0.9206495994562],
    "LBFGS-wolfe": [0.8896252923855, -0.9367314024277, 0.9456179567056, 0.9206468043152],
    "LBFGS-short": [0.8896304543574, -0.9367287622411, 0.9456186422953, 0.9206424779394],
}
# fmt: on

START = np.array([[1.5, -0.7], [0.3, 2.0]]), np.array([-1.2, 0.4, 0.9])


def loss(x, y, library):
    """Not convex, with a valley; x enters twice."""
    return (
        ((x * x).sum() - 3.0) ** 2
        + 3.0 * ((y[1:] - y[:-1] ** 2) ** 2).sum()
        + ((1.0 - y) ** 2).sum()
        + library.sin(x).sum() * y[0]
    )


def run(library, optim, kind, settings, steps=8, start=START):
    """The points that an optimiser goes through."""
    make = (
        (lambda a: tg.tensor(a, requires_grad=True))
        if library is tg
        else (lambda a: torch.tensor(a, requires_grad=True))
    )
    params = [make(a) for a in start]
    optimizer = getattr(optim, kind)(params, **settings)
    points = []

    def closure():
        optimizer.zero_grad()
        value = loss(*params, library)
        value.backward()
        return value

    for _ in range(steps):
        optimizer.step(closure)
        points.append([p.detach().numpy().copy() for p in params])
    return points, optimizer, params


@needs_torch
@pytest.mark.parametrize("name", SETTINGS)
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_updates_are_those_of_torch(name, dtype):
    kind, settings = SETTINGS[name]
    start = [a.astype(dtype) for a in START]
    steps = 8 if dtype == np.float64 else 3  # before rounding has grown
    ours, _, params = run(tg, tg.optim, kind, settings, steps, start=start)
    theirs, _, _ = run(torch, torch.optim, kind, settings, steps, start=start)
    # Sixty iterations of L-BFGS in single precision have made much of how sums are rounded.
    tolerance = 1e-12 if dtype == np.float64 else 2e-3 if kind == "LBFGS" else 2e-5
    for a, b in zip(ours, theirs, strict=True):
        for mine, other in zip(a, b, strict=True):
            np.testing.assert_allclose(mine, other, rtol=tolerance, atol=tolerance)
    assert all(p.dtype == dtype for p in params)


@pytest.mark.parametrize("name", STORED)
def test_updates_are_as_stored(name):
    """The same where torch is absent: the last point, to twelve digits."""
    kind, settings = SETTINGS[name]
    points, _, _ = run(tg, tg.optim, kind, settings)
    last = [points[-1][0][0, 0], *points[-1][1]]
    np.testing.assert_allclose(last, STORED[name], rtol=1e-11)


@needs_torch
@pytest.mark.parametrize("name", ["Adam-all", "AdamW", "RMSprop-all", "Adagrad", "Nesterov"])
def test_complex_parameters(name):
    kind, settings = SETTINGS[name]
    start = np.array([1.0 + 2.0j, -0.5j, 0.3])

    def last(library, optim):
        z = library.tensor(start, requires_grad=True)
        optimizer = getattr(optim, kind)([z], **settings)
        for _ in range(5):
            optimizer.zero_grad()
            ((z * z).abs() ** 2).sum().backward()
            optimizer.step()
        return z.detach().numpy()

    np.testing.assert_allclose(last(tg, tg.optim), last(torch, torch.optim), rtol=1e-12)


# fmt: off
SCHEDULES = {
    "LambdaLR":          lambda o, opt: o.lr_scheduler.LambdaLR(opt, lambda n: 0.9**n),
    "StepLR":            lambda o, opt: o.lr_scheduler.StepLR(opt, 3, gamma=0.5),
    "MultiStepLR":       lambda o, opt: o.lr_scheduler.MultiStepLR(opt, [2, 5, 5], gamma=0.5),
    "ExponentialLR":     lambda o, opt: o.lr_scheduler.ExponentialLR(opt, 0.8),
    "CosineAnnealingLR": lambda o, opt: o.lr_scheduler.CosineAnnealingLR(opt, 5, eta_min=1e-3),
    "MultiplicativeLR":  lambda o, opt: o.lr_scheduler.MultiplicativeLR(opt, lambda n: 1 / (1 + n)),
    "ConstantLR":        lambda o, opt: o.lr_scheduler.ConstantLR(opt, 0.25, 4),
    "LinearLR":          lambda o, opt: o.lr_scheduler.LinearLR(opt, 0.25, 0.75, 6),
    "PolynomialLR":      lambda o, opt: o.lr_scheduler.PolynomialLR(opt, 9, 2.5),
    "WarmRestarts":      lambda o, opt: o.lr_scheduler.CosineAnnealingWarmRestarts(opt, 4, eta_min=1e-3),
    "WarmRestarts-2":    lambda o, opt: o.lr_scheduler.CosineAnnealingWarmRestarts(opt, 2, 2),
    "CyclicLR":          lambda o, opt: o.lr_scheduler.CyclicLR(opt, 0.05, 0.3, 3, 2),
    "CyclicLR-2":        lambda o, opt: o.lr_scheduler.CyclicLR(opt, 0.05, 0.3, 3, mode="triangular2", base_momentum=0.5, max_momentum=0.7),
    "CyclicLR-exp":      lambda o, opt: o.lr_scheduler.CyclicLR(opt, 0.05, 0.3, 2, mode="exp_range", gamma=0.8, cycle_momentum=False),
    "CyclicLR-own":      lambda o, opt: o.lr_scheduler.CyclicLR(opt, [0.05], [0.3], 2, scale_fn=lambda n: 1 / n),
    "SequentialLR":      lambda o, opt: o.lr_scheduler.SequentialLR(opt, [
        o.lr_scheduler.LinearLR(opt, 0.1, total_iters=3), o.lr_scheduler.StepLR(opt, 2, 0.5), o.lr_scheduler.CosineAnnealingLR(opt, 4)], [3, 8]),
    "SequentialLR-2":    lambda o, opt: o.lr_scheduler.SequentialLR(opt, [
        o.lr_scheduler.ExponentialLR(opt, 0.5), o.lr_scheduler.MultiplicativeLR(opt, lambda n: 0.9), o.lr_scheduler.CosineAnnealingWarmRestarts(opt, 2)], [2, 5]),
    "SequentialLR-3":    lambda o, opt: o.lr_scheduler.SequentialLR(opt, [
        o.lr_scheduler.ConstantLR(opt, 0.5, 2), o.lr_scheduler.PolynomialLR(opt, 4), o.lr_scheduler.LambdaLR(opt, lambda n: 0.7**n), o.lr_scheduler.MultiStepLR(opt, [0, 2])], [2, 6, 9]),
    "ChainedScheduler":  lambda o, opt: o.lr_scheduler.ChainedScheduler([
        o.lr_scheduler.ConstantLR(opt, 0.1, 2), o.lr_scheduler.ExponentialLR(opt, 0.9), o.lr_scheduler.StepLR(opt, 3)]),
    "OneCycleLR":        lambda o, opt: o.lr_scheduler.OneCycleLR(opt, 0.3, total_steps=20),
    "OneCycleLR-linear": lambda o, opt: o.lr_scheduler.OneCycleLR(opt, 0.3, epochs=4, steps_per_epoch=5, anneal_strategy="linear", three_phase=True),
    "ReduceLROnPlateau": lambda o, opt: o.lr_scheduler.ReduceLROnPlateau(opt, patience=1, cooldown=1, factor=0.5, threshold=0.1),
    "Plateau-max-abs":   lambda o, opt: o.lr_scheduler.ReduceLROnPlateau(opt, mode="max", patience=0, threshold_mode="abs", min_lr=0.01),
}
# fmt: on
RATES = {
    "StepLR": [0.1, 0.1, 0.05, 0.05, 0.05, 0.025],
    "MultiStepLR": [0.1, 0.05, 0.05, 0.05, 0.0125, 0.0125],
    "ExponentialLR": [0.08, 0.064, 0.0512, 0.04096, 0.032768, 0.0262144],
}


METRICS = [5.0, 4.0, 3.9, 3.8, 3.8, 3.0, 3.0, 3.0, 3.0, 3.0, 2.9, 2.9, 2.9, 1.0]


def rates(library, optim, schedule, steps=14, kind="Adam"):
    """Rate (and momentum) after each epoch; the parameter stands still."""
    make = tg.Parameter if library is tg else lambda a: torch.nn.Parameter(torch.tensor(a))
    p = make(np.zeros(2))
    optimizer = getattr(optim, kind)([p], lr=0.1)
    scheduler = schedule(optim, optimizer)
    seen = []
    for k in range(steps):
        (p * 0.0).sum().backward()
        optimizer.step()
        scheduler.step(METRICS[k]) if "Plateau" in type(scheduler).__name__ else scheduler.step()
        group = optimizer.param_groups[0]
        seen.append((group["lr"], *group.get("betas", (group.get("momentum"),))))
    return np.array(seen)


@needs_torch
@pytest.mark.parametrize("name", SCHEDULES)
@pytest.mark.parametrize("kind", ["Adam", "SGD"])
def test_schedules_are_those_of_torch(name, kind):
    ours = rates(tg, tg.optim, SCHEDULES[name], kind=kind)
    np.testing.assert_allclose(
        ours, rates(torch, torch.optim, SCHEDULES[name], kind=kind), rtol=1e-13
    )


@pytest.mark.parametrize("name", RATES)
def test_schedules_are_as_stored(name):
    ours = rates(tg, tg.optim, SCHEDULES[name], steps=6)[:, 0]
    np.testing.assert_allclose(ours, RATES[name], rtol=1e-13)


def test_cosine_ends_at_its_minimum_and_one_cycle_peaks():
    assert rates(tg, tg.optim, SCHEDULES["CosineAnnealingLR"])[4, 0] == pytest.approx(1e-3)
    cycle = rates(tg, tg.optim, SCHEDULES["OneCycleLR"])
    assert cycle[:, 0].max() == pytest.approx(0.3) and cycle[:, 1].min() == pytest.approx(0.85)


# ------------------------------------------------------------------------------------------ groups and states


def test_groups_have_settings_of_their_own():
    x, y = tg.Parameter(np.ones(2)), tg.Parameter(np.ones(2))
    optimizer = tg.optim.SGD([{"params": [x], "lr": 0.5}, {"params": y}], lr=0.1)
    (x.sum() + y.sum()).backward()
    optimizer.step()
    assert x.tolist() == [0.5, 0.5] and y.tolist() == [0.9, 0.9]
    z = tg.Parameter(1.0)
    optimizer.add_param_group({"params": [z], "momentum": 0.5})
    assert len(optimizer.param_groups) == 3 and "momentum: 0.5" in repr(optimizer)


def test_named_parameters():
    x = tg.Parameter(np.ones(2))
    optimizer = tg.optim.Adam([("weight", x)])
    assert optimizer.param_groups[0]["param_names"] == ["weight"]


def test_zero_grad():
    x = tg.Parameter(np.ones(2))
    optimizer = tg.optim.SGD([x])
    x.sum().backward()
    optimizer.zero_grad(set_to_none=False)
    assert x.grad.tolist() == [0, 0]
    optimizer.zero_grad()
    assert x.grad is None
    optimizer.step()  # nothing to do
    assert x.tolist() == [1, 1]


@pytest.mark.parametrize(
    "name", ["Nesterov", "Adam-all", "RMSprop-all", "Adagrad-all", "LBFGS-wolfe"]
)
def test_a_saved_state_continues_as_if_nothing_had_happened(name):
    kind, settings = SETTINGS[name]
    whole, _, _ = run(tg, tg.optim, kind, settings, steps=6)
    _, optimizer, params = run(tg, tg.optim, kind, settings, steps=3)
    saved = pickle.loads(pickle.dumps(optimizer.state_dict()))
    again = [tg.tensor(p.detach().numpy().copy(), requires_grad=True) for p in params]
    second = getattr(tg.optim, kind)(again, **settings)
    second.load_state_dict(saved)
    for _ in range(3):

        def closure():
            second.zero_grad()
            value = loss(*again, tg)
            value.backward()
            return value

        second.step(closure)
    for p, expected in zip(again, whole[-1], strict=True):
        np.testing.assert_array_equal(p.detach().numpy(), expected)
    copied = copy.deepcopy(optimizer)
    assert len(copied.state) == len(optimizer.state)


@needs_torch
def test_state_dicts_of_torch_are_understood():
    points, theirs, params = run(torch, torch.optim, "Adam", dict(lr=0.1), steps=3)
    mine = [tg.tensor(p.detach().numpy().copy(), requires_grad=True) for p in params]
    optimizer = tg.optim.Adam(mine)
    optimizer.load_state_dict(theirs.state_dict())
    optimizer.zero_grad()
    loss(*mine, tg).backward()
    optimizer.step()
    whole, _, _ = run(torch, torch.optim, "Adam", dict(lr=0.1), steps=4)
    np.testing.assert_allclose(mine[0].detach().numpy(), whole[-1][0], rtol=1e-13)


def test_scheduler_states():
    optimizer = tg.optim.SGD([tg.Parameter(1.0)], lr=1.0)
    schedule = tg.optim.lr_scheduler.StepLR(optimizer, 2)
    for _ in range(3):
        optimizer.step()
        schedule.step()
    saved = schedule.state_dict()
    other = tg.optim.lr_scheduler.StepLR(tg.optim.SGD([tg.Parameter(1.0)], lr=1.0), 2)
    other.load_state_dict(saved)
    assert other.last_epoch == 3 and other.get_last_lr() == [0.1]


def test_a_scheduler_before_the_first_step_is_warned_of():
    optimizer = tg.optim.SGD([tg.Parameter(1.0)], lr=1.0)
    schedule = tg.optim.lr_scheduler.StepLR(optimizer, 2)
    with pytest.warns(UserWarning, match="before `optimizer.step"):
        schedule.step()


def test_parameter():
    x = tg.Parameter([1, 2])
    assert x.requires_grad and x.is_leaf and x.dtype == np.float64 and isinstance(x, tg.Tensor)
    assert isinstance(copy.deepcopy(x), tg.Parameter) and isinstance(
        pickle.loads(pickle.dumps(x)), tg.Parameter
    )
    assert type(x * 2) is tg.Tensor and not tg.Parameter(1.0, requires_grad=False).requires_grad


def test_a_step_behind_a_backward_is_noticed():
    """A second walk would need values that the step overwrote."""
    x = tg.Parameter([1.0, 2.0])
    y = (x * x * x).sum()
    y.backward(retain_graph=True)
    tg.optim.SGD([x], lr=0.1).step()
    with pytest.raises(RuntimeError, match="modified by an inplace"):
        y.backward()


# ------------------------------------------------------------------------------------------ clipping


@pytest.mark.parametrize("norm_type", [1.0, 2.0, 3.0, float("inf")])
@pytest.mark.parametrize("most", [0.5, 100.0])
def test_clip_grad_norm(norm_type, most):
    arrays = [np.array([3.0, -4.0]), np.array([[1.0, 2.0]])]
    params = [tg.Parameter(np.zeros(a.shape)) for a in arrays]
    for p, a in zip(params, arrays, strict=True):
        p.grad = tg.tensor(a)
    total = tg.optim.clip_grad_norm_(params, most, norm_type)
    flat = np.concatenate([a.ravel() for a in arrays])
    expected = np.linalg.norm(flat, norm_type)
    assert float(total) == pytest.approx(expected)
    factor = min(1.0, most / (expected + 1e-6))
    for p, a in zip(params, arrays, strict=True):
        np.testing.assert_allclose(p.grad.numpy(), a * factor)
    if torch is not None:
        others = [torch.zeros(a.shape, dtype=torch.float64, requires_grad=True) for a in arrays]
        for p, a in zip(others, arrays, strict=True):
            p.grad = torch.tensor(a)
        theirs = torch.nn.utils.clip_grad_norm_(others, most, norm_type)
        assert float(theirs) == pytest.approx(float(total), rel=1e-14)
        np.testing.assert_allclose(others[0].grad.numpy(), params[0].grad.numpy(), rtol=1e-14)


def test_clip_grad_value():
    p = tg.Parameter(np.zeros(3))
    p.grad = tg.tensor([1.0, -5.0, 0.1])
    tg.optim.clip_grad_value_(p, 0.5)
    assert p.grad.tolist() == [0.5, -0.5, 0.1]
    assert float(tg.optim.clip_grad_norm_([tg.Parameter(1.0)], 1.0)) == 0


# ------------------------------------------------------------------------------------------ bad input


def _with_nan():
    p = tg.Parameter(np.zeros(2))
    p.grad = tg.tensor([np.nan, 1.0])
    return p


def _optimizer():
    return tg.optim.SGD([tg.Parameter(np.zeros(2))], lr=0.1)


# fmt: off
BAD = {
    "a tensor alone":       (lambda: tg.optim.SGD(tg.Parameter(1.0)), TypeError, "iterable of Tensors"),
    "nothing":              (lambda: tg.optim.SGD([]), ValueError, "empty parameter list"),
    "an array":             (lambda: tg.optim.SGD([np.ones(2)]), TypeError, "use tg.Parameter"),
    "a result":             (lambda: tg.optim.SGD([tg.Parameter(1.0) * 2]), ValueError, "non-leaf"),
    "twice":                (lambda: tg.optim.SGD([(p := tg.Parameter(1.0)), p]), ValueError, "twice"),
    "negative rate":        (lambda: tg.optim.Adam([tg.Parameter(1.0)], lr=-1), ValueError, "Invalid learning rate"),
    "beta of 1":            (lambda: tg.optim.Adam([tg.Parameter(1.0)], betas=(1.0, 0.9)), ValueError, "index 0"),
    "negative decay":       (lambda: tg.optim.SGD([tg.Parameter(1.0)], weight_decay=-1), ValueError, "weight_decay"),
    "Nesterov alone":       (lambda: tg.optim.SGD([tg.Parameter(1.0)], nesterov=True), ValueError, "requires a momentum"),
    "unknown setting":      (lambda: tg.optim.SGD([{"params": [tg.Parameter(1.0)], "speed": 1}]), ValueError, "no setting speed"),
    "LBFGS groups":         (lambda: tg.optim.LBFGS([{"params": [tg.Parameter(1.0)]}, {"params": [tg.Parameter(1.0)]}]), ValueError, "one vector"),
    "LBFGS search":         (lambda: tg.optim.LBFGS([tg.Parameter(1.0)], line_search_fn="armijo"), ValueError, "strong_wolfe"),
    "LBFGS no closure":     (lambda: tg.optim.LBFGS([tg.Parameter(1.0)]).step(), TypeError, "needs a closure"),
    "LBFGS None":           (lambda: tg.optim.LBFGS([tg.Parameter(1.0)]).step(lambda: None), TypeError, "must return the loss"),
    "LBFGS complex":        (lambda: tg.optim.LBFGS([tg.Parameter(1j)]), TypeError, "real and imaginary"),
    "other state":          (lambda: _optimizer().load_state_dict({"state": {}, "param_groups": []}), ValueError, "0 parameter groups"),
    "no state":             (lambda: _optimizer().load_state_dict([]), TypeError, "state_dict"),
    "scheduler of nothing": (lambda: tg.optim.lr_scheduler.StepLR(3.0, 2), TypeError, "not an Optimizer"),
    "cycle without end":    (lambda: tg.optim.lr_scheduler.OneCycleLR(_optimizer(), 0.1), ValueError, "total_steps OR"),
    "cycle no momentum":    (lambda: tg.optim.lr_scheduler.OneCycleLR(tg.optim.Adagrad([tg.Parameter(1.0)]), 0.1, 5), ValueError, "cycle_momentum"),
    "plateau factor":       (lambda: tg.optim.lr_scheduler.ReduceLROnPlateau(_optimizer(), factor=2.0), ValueError, "< 1.0"),
    "resumed too early":    (lambda: tg.optim.lr_scheduler.StepLR(_optimizer(), 2, last_epoch=3), KeyError, "initial_lr"),
    "clip arrays":          (lambda: tg.optim.clip_grad_norm_([np.ones(2)], 1.0), TypeError, "pass tensors"),
    "clip nan":             (lambda: tg.optim.clip_grad_norm_([_with_nan()], 1.0, error_if_nonfinite=True), RuntimeError, "non-finite"),
    "clip negative":        (lambda: tg.optim.clip_grad_value_([_with_nan()], -1.0), ValueError, "at least 0"),
}
# fmt: on


@pytest.mark.parametrize("name", BAD)
def test_bad_input_is_answered_in_a_sentence(name):
    call, kind, words = BAD[name]
    with pytest.raises(kind, match=words):
        call()


def test_a_failing_step_changes_nothing():
    x, y = tg.Parameter(np.ones(2)), tg.Parameter(np.ones(2))
    optimizer = tg.optim.SGD([x, y], lr=0.1, momentum=0.9)
    (x.sum() + y.sum()).backward()
    optimizer.param_groups[0]["lr"] = "fast"
    with pytest.raises(TypeError):
        optimizer.step()
    assert x.tolist() == y.tolist() == [1, 1] and not optimizer.state


def test_schedules_made_of_others():
    """They resume where a saved state says, refuse what cannot be one after the other, and restarts take epochs that are not whole."""
    of = tg.optim.lr_scheduler

    def made(rate=0.1):
        optimizer = tg.optim.SGD([tg.Parameter(np.ones(1))], lr=rate)
        both = [of.LinearLR(optimizer, 0.5, total_iters=2), of.ExponentialLR(optimizer, 0.5)]
        return optimizer, both

    optimizer, both = made()
    whole = of.SequentialLR(optimizer, both, [3])
    seen = []
    for epoch in range(8):
        optimizer.step()
        whole.step()
        seen.append(whole.get_last_lr()[0])
        if epoch == 3:
            saved = copy.deepcopy((whole.state_dict(), optimizer.state_dict()))
    again, both = made()
    resumed = of.SequentialLR(again, both, [3])
    resumed.load_state_dict(saved[0])
    again.load_state_dict(saved[1])
    for rate in seen[4:]:
        again.step()
        resumed.step()
        assert again.param_groups[0]["lr"] == rate
    other = made()[1]
    for schedules, milestones, what in (
        ([], [], "at least one"),
        (both, [1, 2], "one more than"),
        ([both[0], other[0]], [1], "same optimizer"),
        ([both[0], of.ReduceLROnPlateau(again)], [1], "does not support"),
    ):
        with pytest.raises(ValueError, match=what):
            of.SequentialLR(again, schedules, milestones)
    with pytest.raises(TypeError, match="has no optimizer"):
        of.ChainedScheduler([3])
    optimizer = tg.optim.SGD([tg.Parameter(np.ones(1))], lr=1.0)
    warm = of.CosineAnnealingWarmRestarts(optimizer, 4)
    optimizer.step()
    warm.step(1.5)
    assert warm.last_epoch == 1
    assert optimizer.param_groups[0]["lr"] == pytest.approx((1 + np.cos(np.pi * 1.5 / 4)) / 2)
    for bad in (lambda: warm.step(-1), lambda: of.LinearLR(optimizer, 0.0), lambda: of.ConstantLR(optimizer, 2.0)):  # fmt: skip
        with pytest.raises(ValueError, match=r"epoch|factor"):
            bad()
    with pytest.raises(ValueError, match="mode is invalid"):
        of.CyclicLR(optimizer, 0.1, 1.0, mode="square")


@pytest.mark.parametrize("name", ["OneCycleLR", "CyclicLR", "WarmRestarts", "LinearLR"])
def test_states_of_schedules_are_plain_values(name):
    """They can be written as text, and the schedule goes on from what was read."""
    p = tg.Parameter(np.zeros(2))
    optimizer = tg.optim.SGD([p], lr=0.1, momentum=0.5)
    first = SCHEDULES[name](tg.optim, optimizer)
    for _ in range(3):
        optimizer.step()
        first.step()
    state = json.loads(json.dumps(first.state_dict()))
    saved = copy.deepcopy(optimizer.state_dict())
    second = SCHEDULES[name](tg.optim, optimizer)
    second.load_state_dict(state)
    optimizer.load_state_dict(saved)
    group = optimizer.param_groups[0]
    again = copy.deepcopy(saved)
    second.step()
    found = group["lr"], group["momentum"]
    optimizer.load_state_dict(again)
    first.step()
    group = optimizer.param_groups[0]
    assert found == (group["lr"], group["momentum"])
