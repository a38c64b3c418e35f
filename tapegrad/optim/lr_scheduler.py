"""Schedules of the learning rate: PyTorch's `torch.optim.lr_scheduler`, by the same names and arguments.

A scheduler changes the settings of its optimiser's groups when its own `step` is called, once an epoch (or a batch). Most
schedules give the next rate from the present one, so that several may act on one optimiser.
"""

from __future__ import annotations

import math
import warnings
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

from ..errors import demand_callable, demand_number
from .optimizer import Group, Optimizer


class _Schedule:
    """What all schedules have: the rates that were set last, and a state that can be saved."""

    optimizer: Optimizer
    _last_lr: list[float]

    def get_last_lr(self) -> list[float]:
        """The rates that were set last."""
        return list(self._last_lr)

    def state_dict(self) -> dict[str, Any]:
        """What `load_state_dict` takes: everything but the optimiser."""
        return {k: v for k, v in vars(self).items() if k != "optimizer"}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take over what `state_dict` saved. Load the optimiser's own state too."""
        vars(self).update(state_dict)


class LRScheduler(_Schedule):
    """Base of the schedules that depend on the number of steps only; a subclass gives `rate(group, base)`.

    >>> import tapegrad as tg
    >>> optimizer = tg.optim.SGD([tg.ones(2, requires_grad=True)], lr=1.0)
    >>> class Halving(tg.optim.lr_scheduler.LRScheduler):
    ...     def rate(self, group, base):
    ...         return base / 2**self.last_epoch
    >>> schedule = Halving(optimizer)
    >>> optimizer.step()
    >>> schedule.step()
    >>> schedule.get_last_lr()
    [0.5]
    """

    def __init__(self, optimizer: Optimizer, last_epoch: int = -1) -> None:
        """Note the initial rates of the groups and set those of the first epoch; `last_epoch` resumes."""
        _demand_optimizer(optimizer)
        self.optimizer = optimizer
        for k, group in enumerate(optimizer.param_groups):
            if last_epoch == -1:
                group.setdefault("initial_lr", group["lr"])
            elif "initial_lr" not in group:
                raise KeyError(
                    f"param 'initial_lr' is not specified in param_groups[{k}] when resuming a scheduler: load the optimizer's "
                    "state first, or leave last_epoch out."
                )
        self.base_lrs = [group["initial_lr"] for group in optimizer.param_groups]
        for name in ("gamma", "eta_min"):
            if hasattr(self, name):
                demand_number(getattr(self, name), name)
        self.last_epoch = last_epoch
        self._step_count = 0
        self._first_step()

    def step(self) -> None:
        """Go to the next epoch; call it after the optimiser's step."""
        if self._step_count == 1 and not getattr(self.optimizer, "_opt_called", False):
            warnings.warn(
                "Detected call of `lr_scheduler.step()` before `optimizer.step()`: the first learning rate of the schedule is "
                "skipped. Call `optimizer.step()` first.",
                UserWarning,
                stacklevel=2,
            )
        self._advance()

    def _advance(self) -> None:
        """Set the rates of the next epoch."""
        self.last_epoch += 1
        try:
            rates = self.get_lr()
        except BaseException:
            self.last_epoch -= 1
            raise
        self._step_count += 1
        for group, rate in zip(self.optimizer.param_groups, rates, strict=True):
            group["lr"] = rate
        self._last_lr = rates

    follows_the_optimizer = False
    """Whether a schedule that begins anew (SequentialLR) goes on from the present rates, and not from those it began with."""

    def begin_anew(self) -> None:
        """Go back to the first epoch and set its rates."""
        self.last_epoch = -1
        if self.follows_the_optimizer:
            self._advance()
            return
        for group, base in zip(self.optimizer.param_groups, self.base_lrs, strict=True):
            group["lr"] = base
        self._first_step()

    def _first_step(self) -> None:
        self._initial = True
        try:
            self._advance()
        finally:
            self._initial = False

    def get_lr(self) -> list[float]:
        """The rates of the groups at the present epoch."""
        groups = self.optimizer.param_groups
        return [self.rate(g, base) for g, base in zip(groups, self.base_lrs, strict=True)]

    def rate(self, group: Group, base: float) -> float:
        """The rate of one group, from its present settings and the rate it began with."""
        raise NotImplementedError(f"{type(self).__name__} gives no rate.")


def _demand_optimizer(optimizer: Any) -> None:
    if not isinstance(optimizer, Optimizer):
        raise TypeError(
            f"{type(optimizer).__name__} is not an Optimizer: pass one of tapegrad.optim, such as tg.optim.Adam(...)."
        )


class LambdaLR(LRScheduler):
    """The first rate times `lr_lambda(epoch)`; one function, or one for each group.

    >>> import numpy as np, tapegrad as tg
    >>> optimizer = tg.optim.SGD([tg.Parameter(np.ones(1))], lr=0.1)
    >>> scheduler = tg.optim.lr_scheduler.LambdaLR(optimizer, lambda epoch: 0.9**epoch)
    >>> optimizer.step()
    >>> scheduler.step()
    >>> [round(rate, 6) for rate in scheduler.get_last_lr()]
    [0.09]
    """

    def __init__(
        self,
        optimizer: Optimizer,
        lr_lambda: Callable[[int], float] | list[Callable[[int], float]],
        last_epoch: int = -1,
    ) -> None:
        """One function of the epoch for all groups, or one for each."""
        _demand_optimizer(optimizer)
        groups = len(optimizer.param_groups)
        self.lr_lambdas = (
            list(lr_lambda) if isinstance(lr_lambda, list | tuple) else [lr_lambda] * groups
        )
        for given in self.lr_lambdas:
            demand_callable(given, type(self).__name__, "pass a function of the epoch")
        if len(self.lr_lambdas) != groups:
            raise ValueError(
                f"Expected {groups} lr_lambdas, but got {len(self.lr_lambdas)}: one for each group."
            )
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[float]:
        return [
            base * f(self.last_epoch)
            for base, f in zip(self.base_lrs, self.lr_lambdas, strict=True)
        ]


class MultiplicativeLR(LambdaLR):
    """The rate times `lr_lambda(epoch)` in every epoch but the first; one function, or one for each group.

    >>> import tapegrad as tg
    >>> optimizer = tg.optim.SGD([tg.ones(1, requires_grad=True)], lr=1.0)
    >>> schedule = tg.optim.lr_scheduler.MultiplicativeLR(optimizer, lambda epoch: 1 / epoch)
    >>> for epoch in range(3):
    ...     _ = optimizer.step(), schedule.step()
    >>> [round(rate, 6) for rate in schedule.get_last_lr()]
    [0.166667]
    """

    follows_the_optimizer = True

    def get_lr(self) -> list[float]:
        groups = self.optimizer.param_groups
        if self._initial:
            return [group["lr"] for group in groups]
        return [
            group["lr"] * f(self.last_epoch)
            for group, f in zip(groups, self.lr_lambdas, strict=True)
        ]


class StepLR(LRScheduler):
    """The rate times `gamma` every `step_size` epochs.

    >>> import tapegrad as tg
    >>> optimizer = tg.optim.SGD([tg.zeros(1).requires_grad_()], lr=1.0)
    >>> schedule = tg.optim.lr_scheduler.StepLR(optimizer, step_size=2, gamma=0.5)
    >>> for epoch in range(4):
    ...     _ = optimizer.step(), schedule.step()
    >>> schedule.get_last_lr()
    [0.25]
    """

    def __init__(
        self, optimizer: Optimizer, step_size: int, gamma: float = 0.1, last_epoch: int = -1
    ) -> None:
        if step_size < 1:
            raise ValueError(f"step_size={step_size} was given: it counts epochs, at least 1.")
        self.step_size, self.gamma = step_size, gamma
        super().__init__(optimizer, last_epoch)

    def rate(self, group: Group, base: float) -> float:
        falls = self.last_epoch != 0 and self.last_epoch % self.step_size == 0
        return group["lr"] * self.gamma if falls else group["lr"]


class MultiStepLR(LRScheduler):
    """The rate times `gamma` at each of the milestones.

    >>> import numpy as np, tapegrad as tg
    >>> optimizer = tg.optim.SGD([tg.Parameter(np.ones(1))], lr=0.1)
    >>> scheduler = tg.optim.lr_scheduler.MultiStepLR(optimizer, milestones=[1], gamma=0.1)
    >>> optimizer.step()
    >>> scheduler.step()
    >>> [round(rate, 6) for rate in scheduler.get_last_lr()]
    [0.01]
    """

    def __init__(
        self,
        optimizer: Optimizer,
        milestones: Iterable[int],
        gamma: float = 0.1,
        last_epoch: int = -1,
    ) -> None:
        if not isinstance(milestones, Iterable):
            raise TypeError(f"milestones={milestones!r} was given, but it is a list of epochs.")
        self.milestones, self.gamma = Counter(milestones), gamma
        super().__init__(optimizer, last_epoch)

    def rate(self, group: Group, base: float) -> float:
        times = self.milestones[self.last_epoch]
        return group["lr"] * self.gamma**times if times else group["lr"]


class ExponentialLR(LRScheduler):
    """The rate times `gamma` every epoch.

    >>> import numpy as np, tapegrad as tg
    >>> optimizer = tg.optim.SGD([tg.Parameter(np.ones(1))], lr=0.1)
    >>> scheduler = tg.optim.lr_scheduler.ExponentialLR(optimizer, gamma=0.5)
    >>> optimizer.step()
    >>> scheduler.step()
    >>> [round(rate, 6) for rate in scheduler.get_last_lr()]
    [0.05]
    """

    def __init__(self, optimizer: Optimizer, gamma: float, last_epoch: int = -1) -> None:
        self.gamma = gamma
        super().__init__(optimizer, last_epoch)

    def rate(self, group: Group, base: float) -> float:
        return group["lr"] if self._initial else group["lr"] * self.gamma


class ConstantLR(LRScheduler):
    """The rate times `factor` for `total_iters` epochs, and the first rate from then on.

    >>> import tapegrad as tg
    >>> optimizer = tg.optim.SGD([tg.ones(1, requires_grad=True)], lr=1.0)
    >>> schedule = tg.optim.lr_scheduler.ConstantLR(optimizer, factor=0.5, total_iters=2)
    >>> for epoch in range(3):
    ...     print(optimizer.param_groups[0]["lr"])
    ...     _ = optimizer.step(), schedule.step()
    0.5
    0.5
    1.0
    """

    def __init__(
        self,
        optimizer: Optimizer,
        factor: float = 1.0 / 3,
        total_iters: int = 5,
        last_epoch: int = -1,
    ) -> None:
        _demand_part(factor, "factor", least=0.0)
        self.factor, self.total_iters = factor, total_iters
        super().__init__(optimizer, last_epoch)

    def rate(self, group: Group, base: float) -> float:
        if self.last_epoch == 0:
            return group["lr"] * self.factor
        return group["lr"] / self.factor if self.last_epoch == self.total_iters else group["lr"]


class LinearLR(LRScheduler):
    """The first rate times a factor that goes from `start_factor` to `end_factor` along a line, in `total_iters` epochs.

    >>> import tapegrad as tg
    >>> optimizer = tg.optim.SGD([tg.ones(1, requires_grad=True)], lr=1.0)
    >>> schedule = tg.optim.lr_scheduler.LinearLR(optimizer, start_factor=0.5, total_iters=2)
    >>> optimizer.step()
    >>> schedule.step()
    >>> schedule.get_last_lr()
    [0.75]
    """

    def __init__(
        self,
        optimizer: Optimizer,
        start_factor: float = 1.0 / 3,
        end_factor: float = 1.0,
        total_iters: int = 5,
        last_epoch: int = -1,
    ) -> None:
        """Set the line; `start_factor` is above 0, both factors are at most 1."""
        _demand_part(start_factor, "start_factor", above=0.0)
        _demand_part(end_factor, "end_factor", least=0.0)
        self.start_factor, self.end_factor, self.total_iters = start_factor, end_factor, total_iters
        super().__init__(optimizer, last_epoch)

    def rate(self, group: Group, base: float) -> float:
        n, rise = self.last_epoch, self.end_factor - self.start_factor
        if n == 0:
            return group["lr"] * self.start_factor
        if n > self.total_iters:
            return group["lr"]
        before = self.total_iters * self.start_factor + (n - 1) * rise
        return group["lr"] * (1.0 + rise / before)


class PolynomialLR(LRScheduler):
    """The first rate times (1 - epoch / total_iters)**power: to 0 in `total_iters` epochs, where it stays.

    >>> import tapegrad as tg
    >>> optimizer = tg.optim.SGD([tg.ones(1, requires_grad=True)], lr=1.0)
    >>> schedule = tg.optim.lr_scheduler.PolynomialLR(optimizer, total_iters=2, power=2.0)
    >>> optimizer.step()
    >>> schedule.step()
    >>> schedule.get_last_lr()
    [0.25]
    """

    def __init__(
        self, optimizer: Optimizer, total_iters: int = 5, power: float = 1.0, last_epoch: int = -1
    ) -> None:
        demand_number(power, "power")
        self.total_iters, self.power = total_iters, power
        super().__init__(optimizer, last_epoch)

    def rate(self, group: Group, base: float) -> float:
        n, total = self.last_epoch, self.total_iters
        if n == 0 or n > total:
            return group["lr"]
        return group["lr"] * ((1.0 - n / total) / (1.0 - (n - 1) / total)) ** self.power


def _demand_part(
    value: Any, name: str, least: float | None = None, above: float | None = None
) -> None:
    """Raise ValueError unless a factor is at most 1, and at least or above a bound."""
    demand_number(value, name)
    if value > 1.0 or (least is not None and value < least) or (above is not None and value <= above):  # fmt: skip
        low = f"at least {least}" if above is None else f"above {above}"
        raise ValueError(f"{name}={value} was given: it is {low} and at most 1.")


class CosineAnnealingLR(LRScheduler):
    """Down to `eta_min` in `T_max` epochs along half a cosine, and up again (I. Loshchilov and F. Hutter, 2017).

    >>> import numpy as np, tapegrad as tg
    >>> optimizer = tg.optim.SGD([tg.Parameter(np.ones(1))], lr=0.1)
    >>> scheduler = tg.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=2)
    >>> optimizer.step()
    >>> scheduler.step()
    >>> [round(rate, 6) for rate in scheduler.get_last_lr()]
    [0.05]
    """

    def __init__(
        self, optimizer: Optimizer, T_max: int, eta_min: float = 0.0, last_epoch: int = -1
    ) -> None:
        if T_max < 1:
            raise ValueError(f"T_max={T_max} was given: it counts epochs, at least 1.")
        self.T_max, self.eta_min = T_max, eta_min
        super().__init__(optimizer, last_epoch)

    def rate(self, group: Group, base: float) -> float:
        n, period, low = self.last_epoch, self.T_max, self.eta_min
        if self._initial:
            return group["lr"]
        if (n - 1 - period) % (2 * period) == 0:  # at the bottom the ratio below is 0 / 0
            return group["lr"] + (base - low) * (1 - math.cos(math.pi / period)) / 2
        ratio = (1 + math.cos(math.pi * n / period)) / (1 + math.cos(math.pi * (n - 1) / period))
        return ratio * (group["lr"] - low) + low


class CosineAnnealingWarmRestarts(LRScheduler):
    """Down to `eta_min` along half a cosine, and anew: after T_0 epochs, then T_0 T_mult, and so on (Loshchilov and Hutter, 2017).

    >>> import tapegrad as tg
    >>> optimizer = tg.optim.SGD([tg.ones(1, requires_grad=True)], lr=1.0)
    >>> schedule = tg.optim.lr_scheduler.CosineAnnealingWarmRestarts(optimizer, T_0=2)
    >>> for epoch in range(2):
    ...     optimizer.step()
    ...     schedule.step()
    ...     print(round(schedule.get_last_lr()[0], 6))
    0.5
    1.0
    """

    def __init__(
        self,
        optimizer: Optimizer,
        T_0: int,
        T_mult: int = 1,
        eta_min: float = 0.0,
        last_epoch: int = -1,
    ) -> None:
        """Set the first period and by what each period is multiplied for the next."""
        if not isinstance(T_0, int) or T_0 < 1:
            raise ValueError(f"Expected positive integer T_0, but got {T_0}: it counts epochs.")
        if not isinstance(T_mult, int) or T_mult < 1:
            raise ValueError(f"Expected integer T_mult >= 1, but got {T_mult}.")
        self.T_0, self.T_mult, self.eta_min = T_0, T_mult, eta_min
        super().__init__(optimizer, last_epoch)

    def step(self, epoch: float | None = None) -> None:
        """Go to the next epoch, or to `epoch`, which need not be whole: `epoch + batch / batches`."""
        if epoch is not None:
            demand_number(epoch, "epoch")
            if epoch < 0:
                raise ValueError(f"Expected non-negative epoch, but got {epoch}.")
            self.last_epoch = epoch - 1  # type: ignore[assignment]  # whole again below
        super().step()
        self.last_epoch = math.floor(self.last_epoch)

    def rate(self, group: Group, base: float) -> float:
        since: float = self.last_epoch
        period = self.T_0
        if self.T_mult == 1:
            since %= period
        else:
            while since >= period:
                since, period = since - period, period * self.T_mult
        return self.eta_min + (base - self.eta_min) * (1 + math.cos(math.pi * since / period)) / 2


class CyclicLR(LRScheduler):
    """From `base_lr` to `max_lr` and back along lines, again and again, momentum the other way (L. N. Smith, 2017); one step a batch.

    The height of a cycle is the same in mode "triangular", half that of the cycle before in "triangular2", and times gamma**step in
    "exp_range"; `scale_fn` of the cycle's number, or of the step's (`scale_mode="iterations"`), stands for these.

    >>> import tapegrad as tg
    >>> optimizer = tg.optim.SGD([tg.ones(1, requires_grad=True)], lr=1.0, momentum=0.5)
    >>> schedule = tg.optim.lr_scheduler.CyclicLR(optimizer, 0.1, 0.3, step_size_up=2)
    >>> optimizer.step()
    >>> schedule.step()
    >>> [round(rate, 6) for rate in schedule.get_last_lr()]
    [0.2]
    """

    def __init__(
        self,
        optimizer: Optimizer,
        base_lr: float | list[float],
        max_lr: float | list[float],
        step_size_up: int = 2000,
        step_size_down: int | None = None,
        mode: str = "triangular",
        gamma: float = 1.0,
        scale_fn: Callable[[float], float] | None = None,
        scale_mode: str = "cycle",
        cycle_momentum: bool = True,
        base_momentum: float = 0.8,
        max_momentum: float = 0.9,
        last_epoch: int = -1,
    ) -> None:
        """Set rates and momenta of each group; settings as PyTorch's."""
        _demand_optimizer(optimizer)
        groups = optimizer.param_groups
        self.min_lrs = _each(base_lr, groups, "base_lr")
        self.max_lrs = _each(max_lr, groups, "max_lr")
        self.up = float(step_size_up)
        self.total = self.up + (self.up if step_size_down is None else float(step_size_down))
        if self.up <= 0 or self.total <= self.up:
            raise ValueError("step_size_up and step_size_down count steps, at least 1.")
        if mode not in _HEIGHTS and scale_fn is None:
            raise ValueError(
                "mode is invalid and scale_fn is None: choose 'triangular', 'triangular2' or 'exp_range'."
            )
        if scale_fn is not None:
            demand_callable(scale_fn, "CyclicLR", "pass a function of the cycle's number")
        self.mode, self.gamma, self.scale_fn = mode, gamma, scale_fn
        self.scale_mode = scale_mode if scale_fn is not None else _HEIGHTS[mode]
        self.cycle_momentum = cycle_momentum
        if cycle_momentum:
            _demand_momentum(optimizer)
        if last_epoch == -1:
            for group, low in zip(groups, self.min_lrs, strict=True):
                group["lr"] = low
        if self.cycle_momentum:
            low_momenta = _each(base_momentum, groups, "base_momentum")
            high_momenta = _each(max_momentum, groups, "max_momentum")
            for group, low, high in zip(groups, low_momenta, high_momenta, strict=True):
                if last_epoch == -1:
                    _set_momentum(group, high)
                group["base_momentum"], group["max_momentum"] = low, high
        super().__init__(optimizer, last_epoch)
        self.base_lrs = self.min_lrs

    def get_lr(self) -> list[float]:
        """The rates at the place in the present cycle; the momenta are set besides."""
        n = self.last_epoch
        cycle = math.floor(1 + n / self.total)
        place = 1.0 + n / self.total - cycle
        rising = self.up / self.total
        part = place / rising if place <= rising else (place - 1) / (rising - 1)
        scale = self._scale(cycle, n)
        rates = []
        for group, low, high in zip(
            self.optimizer.param_groups, self.min_lrs, self.max_lrs, strict=True
        ):
            rates.append(low + (high - low) * part * scale)
            if self.cycle_momentum:
                top = group["max_momentum"]
                _set_momentum(group, top - (top - group["base_momentum"]) * part * scale)
        return rates

    def _scale(self, cycle: int, step: int) -> float:
        """The height of a cycle, in parts of the first's."""
        at = cycle if self.scale_mode == "cycle" else step
        if self.scale_fn is not None:
            return self.scale_fn(at)
        if self.mode == "triangular2":
            return 1 / 2.0 ** (at - 1)
        return self.gamma**at if self.mode == "exp_range" else 1.0


_HEIGHTS = {"triangular": "cycle", "triangular2": "cycle", "exp_range": "iterations"}
"""What the height of each mode depends on."""


def _demand_momentum(optimizer: Optimizer) -> None:
    if "betas" not in optimizer.defaults and "momentum" not in optimizer.defaults:
        raise ValueError(
            "optimizer must support momentum or beta1 with `cycle_momentum` option enabled."
        )


def _set_momentum(group: Group, momentum: float) -> None:
    """Give a group this momentum, which is the first of `betas` where it has those."""
    if "betas" in group:
        group["betas"] = (momentum, *group["betas"][1:])
    else:
        group["momentum"] = momentum


class OneCycleLR(LRScheduler):
    """Up to `max_lr` and far down again, momentum the other way (L. N. Smith, 2018); one step a batch.

    >>> import numpy as np, tapegrad as tg
    >>> optimizer = tg.optim.SGD([tg.Parameter(np.ones(1))], lr=0.1)
    >>> scheduler = tg.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=1.0, total_steps=10)
    >>> optimizer.step()
    >>> scheduler.step()
    >>> [round(rate, 6) for rate in scheduler.get_last_lr()]
    [0.52]
    """

    def __init__(
        self,
        optimizer: Optimizer,
        max_lr: float | list[float],
        total_steps: int | None = None,
        epochs: int | None = None,
        steps_per_epoch: int | None = None,
        pct_start: float = 0.3,
        anneal_strategy: str = "cos",
        cycle_momentum: bool = True,
        base_momentum: float | list[float] = 0.85,
        max_momentum: float | list[float] = 0.95,
        div_factor: float = 25.0,
        final_div_factor: float = 1e4,
        three_phase: bool = False,
        last_epoch: int = -1,
    ) -> None:
        """Set the rates and momenta of the phases for each group; settings as PyTorch's."""
        _demand_optimizer(optimizer)
        self.total_steps = _total(total_steps, epochs, steps_per_epoch)
        if not 0 <= pct_start <= 1:
            raise ValueError(f"Expected float between 0 and 1 pct_start, but got {pct_start}.")
        if anneal_strategy not in ("cos", "linear"):
            raise ValueError(
                f"anneal_strategy must be one of 'cos' or 'linear', instead got {anneal_strategy}."
            )
        self.anneal_strategy = anneal_strategy
        self.cycle_momentum = cycle_momentum
        self.use_beta1 = "betas" in optimizer.defaults
        if cycle_momentum:
            _demand_momentum(optimizer)
        up, end = float(pct_start * self.total_steps) - 1, self.total_steps - 1
        # Each phase: its last step, and the names of the rates and momenta it goes between.
        self.phases = [(up, "initial_lr", "max_lr", "max_momentum", "base_momentum")]
        if three_phase:
            down = float(2 * pct_start * self.total_steps) - 2
            self.phases += [
                (down, "max_lr", "initial_lr", "base_momentum", "max_momentum"),
                (end, "initial_lr", "min_lr", "max_momentum", "max_momentum"),
            ]
        else:
            self.phases += [(end, "max_lr", "min_lr", "base_momentum", "max_momentum")]
        groups = optimizer.param_groups
        peaks = _each(max_lr, groups, "max_lr")
        highs = _each(max_momentum, groups, "max_momentum")
        lows = _each(base_momentum, groups, "base_momentum")
        if last_epoch == -1:
            for group, peak, high, low in zip(groups, peaks, highs, lows, strict=True):
                group["initial_lr"] = peak / div_factor
                group["max_lr"] = peak
                group["min_lr"] = group["initial_lr"] / final_div_factor
                if self.cycle_momentum:
                    group["max_momentum"], group["base_momentum"] = high, low
                    _set_momentum(group, high)
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[float]:
        n = self.last_epoch
        if n > self.total_steps:
            raise ValueError(
                f"Tried to step {n} times. The specified number of total steps is {self.total_steps}."
            )
        return super().get_lr()

    def rate(self, group: Group, base: float) -> float:
        ends = [phase[0] for phase in self.phases]
        k = next((k for k, end in enumerate(ends) if self.last_epoch <= end), len(ends) - 1)
        begin, end = (ends[k - 1] if k else 0.0), ends[k]
        part = (self.last_epoch - begin) / (end - begin)
        _, from_rate, to_rate, from_momentum, to_momentum = self.phases[k]
        if self.cycle_momentum:
            _set_momentum(group, self._between(group[from_momentum], group[to_momentum], part))
        return self._between(group[from_rate], group[to_rate], part)

    def _between(self, a: float, b: float, part: float) -> float:
        if self.anneal_strategy == "linear":
            return (b - a) * part + a
        return b + (a - b) / 2.0 * (math.cos(math.pi * part) + 1)


def _total(total: int | None, epochs: int | None, steps: int | None) -> int:
    if total is None and (epochs is None or steps is None):
        raise ValueError("You must define either total_steps OR (epochs AND steps_per_epoch).")
    for name, count in (("total_steps", total), ("epochs", epochs), ("steps_per_epoch", steps)):
        if count is not None and (not isinstance(count, int) or count <= 0):
            raise ValueError(f"Expected positive integer {name}, but got {count}.")
    return total if total is not None else epochs * steps  # type: ignore[operator]


def _each(value: Any, groups: list[Group], name: str) -> list[float]:
    values = list(value) if isinstance(value, list | tuple) else [value] * len(groups)
    if len(values) != len(groups):
        raise ValueError(
            f"expected {len(groups)} values for {name}, got {len(values)}: one for each group."
        )
    return values


class ReduceLROnPlateau(_Schedule):
    """The rate times `factor` when a measured quantity has not improved for more than `patience` epochs: `step(loss)`.

    >>> import tapegrad as tg
    >>> optimizer = tg.optim.SGD([tg.ones(1, requires_grad=True)], lr=1.0)
    >>> scheduler = tg.optim.lr_scheduler.ReduceLROnPlateau(optimizer, factor=0.5, patience=1)
    >>> for loss in (2.0, 2.0, 2.0):
    ...     scheduler.step(loss)
    >>> optimizer.param_groups[0]['lr']
    0.5
    """

    def __init__(
        self,
        optimizer: Optimizer,
        mode: str = "min",
        factor: float = 0.1,
        patience: int = 10,
        threshold: float = 1e-4,
        threshold_mode: str = "rel",
        cooldown: int = 0,
        min_lr: float | list[float] = 0.0,
        eps: float = 1e-8,
    ) -> None:
        """Settings as PyTorch's."""
        _demand_optimizer(optimizer)
        if factor >= 1.0:
            raise ValueError(f"Factor should be < 1.0, but got {factor}.")
        if mode not in ("min", "max"):
            raise ValueError(f"mode {mode} is unknown: choose 'min' or 'max'.")
        if threshold_mode not in ("rel", "abs"):
            raise ValueError(f"threshold mode {threshold_mode} is unknown: choose 'rel' or 'abs'.")
        self.optimizer = optimizer
        self.mode, self.factor, self.patience = mode, factor, patience
        self.threshold, self.threshold_mode = threshold, threshold_mode
        self.cooldown, self.eps = cooldown, eps
        self.min_lrs = _each(min_lr, optimizer.param_groups, "min_lr")
        self.last_epoch = 0
        self.best = math.inf if mode == "min" else -math.inf
        self.cooldown_counter = 0
        self.num_bad_epochs = 0
        self._last_lr = [group["lr"] for group in optimizer.param_groups]

    def step(self, metrics: Any) -> None:
        """Take note of the quantity after an epoch; reduce the rates if it has stalled."""
        metrics = metrics.detach() if hasattr(metrics, "detach") else metrics
        demand_number(metrics, "metrics")
        current = float(metrics)
        self.last_epoch += 1
        if self._is_better(current):
            self.best, self.num_bad_epochs = current, 0
        else:
            self.num_bad_epochs += 1
        if self.cooldown_counter > 0:
            self.cooldown_counter -= 1
            self.num_bad_epochs = 0
        if self.num_bad_epochs > self.patience:
            for group, least in zip(self.optimizer.param_groups, self.min_lrs, strict=True):
                new = max(group["lr"] * self.factor, least)
                if group["lr"] - new > self.eps:
                    group["lr"] = new
            self.cooldown_counter, self.num_bad_epochs = self.cooldown, 0
        self._last_lr = [group["lr"] for group in self.optimizer.param_groups]

    def _is_better(self, current: float) -> bool:
        sign = 1.0 if self.mode == "min" else -1.0
        if self.threshold_mode == "rel":
            return sign * current < sign * self.best * (1.0 - sign * self.threshold)
        return sign * current < sign * self.best - self.threshold


class _Several(_Schedule):
    """Base of schedules that are made of others, of one optimiser."""

    def __init__(self, schedulers: Any, optimizer: Any) -> None:
        """Check that all act on the same optimiser: `optimizer`, or that of the first."""
        name = type(self).__name__
        self._schedulers = list(schedulers) if isinstance(schedulers, Iterable) else []
        if not self._schedulers:
            raise ValueError(f"{name} expects at least one scheduler to be chained, but got none.")
        for k, scheduler in enumerate(self._schedulers):
            if not hasattr(scheduler, "optimizer"):
                raise TypeError(
                    f"{name}: scheduler {k} is a {type(scheduler).__name__}, which has no optimizer: pass schedules of this module."
                )
            if isinstance(scheduler, ReduceLROnPlateau):
                raise ValueError(
                    f"{name} does not support ReduceLROnPlateau: its `step` takes what was measured. Call that one beside it."
                )
        self.optimizer = self._schedulers[0].optimizer if optimizer is None else optimizer
        if any(scheduler.optimizer is not self.optimizer for scheduler in self._schedulers):
            raise ValueError(f"{name} expects all schedulers to belong to the same optimizer.")

    def state_dict(self) -> dict[str, Any]:
        """What `load_state_dict` takes: everything but the optimiser, with the state of each schedule."""
        own = {k: v for k, v in vars(self).items() if k not in ("optimizer", "_schedulers")}
        return own | {"_schedulers": [s.state_dict() for s in self._schedulers]}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take over what `state_dict` saved. Load the optimiser's own state too."""
        own = dict(state_dict)
        for scheduler, state in zip(self._schedulers, own.pop("_schedulers"), strict=True):
            scheduler.load_state_dict(state)
        vars(self).update(own)


class SequentialLR(_Several):
    """One schedule after another: the next begins, from its first epoch, at each of the milestones.

    >>> import tapegrad as tg
    >>> optimizer = tg.optim.SGD([tg.ones(1, requires_grad=True)], lr=1.0)
    >>> warm = tg.optim.lr_scheduler.LinearLR(optimizer, start_factor=0.5, total_iters=2)
    >>> then = tg.optim.lr_scheduler.ExponentialLR(optimizer, gamma=0.1)
    >>> schedule = tg.optim.lr_scheduler.SequentialLR(optimizer, [warm, then], milestones=[2])
    >>> for epoch in range(4):
    ...     print(round(schedule.get_last_lr()[0], 6))
    ...     _ = optimizer.step(), schedule.step()
    0.5
    0.75
    1.0
    0.1
    """

    def __init__(
        self,
        optimizer: Optimizer,
        schedulers: list[Any],
        milestones: list[int],
        last_epoch: int = -1,
    ) -> None:
        """The schedules, and the epochs at which all but the first begin."""
        _demand_optimizer(optimizer)
        super().__init__(schedulers, optimizer)
        if not isinstance(milestones, Iterable):
            raise TypeError(f"milestones={milestones!r} was given, but it is a list of epochs.")
        self._milestones = list(milestones)
        if len(self._milestones) != len(self._schedulers) - 1:
            raise ValueError(
                f"Sequential Schedulers expects number of schedulers provided to be one more than the number of milestone points, but "
                f"got number of schedulers {len(self._schedulers)} and the number of milestones to be equal to {len(self._milestones)}"
            )
        self.last_epoch = last_epoch + 1
        for group in optimizer.param_groups:
            group["lr"] = group["initial_lr"]
        for scheduler in self._schedulers:  # their first steps are undone: each has its turn
            scheduler.last_epoch -= 1
        first = self._schedulers[0]
        first._first_step()
        self._last_lr = first.get_last_lr()

    def step(self) -> None:
        """Go to the next epoch; call it after the optimiser's step."""
        self.last_epoch += 1
        k = bisect_right(self._milestones, self.last_epoch)
        scheduler = self._schedulers[k]
        if k > 0 and self._milestones[k - 1] == self.last_epoch:
            scheduler.begin_anew()
        else:
            scheduler.step()
        self._last_lr = scheduler.get_last_lr()


class ChainedScheduler(_Several):
    """Several schedules at once: each takes a step after the other, so that their factors multiply.

    >>> import tapegrad as tg
    >>> optimizer = tg.optim.SGD([tg.ones(1, requires_grad=True)], lr=1.0)
    >>> halved = tg.optim.lr_scheduler.ConstantLR(optimizer, factor=0.5, total_iters=1)
    >>> falling = tg.optim.lr_scheduler.ExponentialLR(optimizer, gamma=0.1)
    >>> schedule = tg.optim.lr_scheduler.ChainedScheduler([halved, falling])
    >>> for epoch in range(2):
    ...     print(round(schedule.get_last_lr()[0], 6))
    ...     _ = optimizer.step(), schedule.step()
    0.5
    0.1
    """

    def __init__(self, schedulers: list[Any], optimizer: Optimizer | None = None) -> None:
        super().__init__(schedulers, optimizer)
        self._last_lr = [group["lr"] for group in self.optimizer.param_groups]

    def step(self) -> None:
        """Let each schedule take its step; call it after the optimiser's."""
        for scheduler in self._schedulers:
            scheduler.step()
        self._last_lr = [group["lr"] for group in self.optimizer.param_groups]


__all__ = [
    "ChainedScheduler", "ConstantLR", "CosineAnnealingLR", "CosineAnnealingWarmRestarts", "CyclicLR", "ExponentialLR",
    "LRScheduler", "LambdaLR", "LinearLR", "MultiStepLR", "MultiplicativeLR", "OneCycleLR", "PolynomialLR", "ReduceLROnPlateau",
    "SequentialLR", "StepLR",
]  # fmt: skip


def __dir__() -> list[str]:
    return __all__
