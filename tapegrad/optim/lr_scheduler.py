"""Schedules of the learning rate: PyTorch's `torch.optim.lr_scheduler`, by the same names and arguments.

A scheduler changes the settings of its optimiser's groups when its own `step` is called, once an epoch (or a batch). Most
schedules give the next rate from the present one, so that several may act on one optimiser.
"""

from __future__ import annotations

import math
import warnings
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

from ..errors import demand_callable, demand_number
from .optimizer import Group, Optimizer


class LRScheduler:
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
        self._initial = True
        self.step()
        self._initial = False

    def step(self) -> None:
        """Go to the next epoch; call it after the optimiser's step."""
        if self._step_count == 1 and not getattr(self.optimizer, "_opt_called", False):
            warnings.warn(
                "Detected call of `lr_scheduler.step()` before `optimizer.step()`: the first learning rate of the schedule is "
                "skipped. Call `optimizer.step()` first.",
                UserWarning,
                stacklevel=2,
            )
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

    def get_lr(self) -> list[float]:
        """The rates of the groups at the present epoch."""
        groups = self.optimizer.param_groups
        return [self.rate(g, base) for g, base in zip(groups, self.base_lrs, strict=True)]

    def rate(self, group: Group, base: float) -> float:
        """The rate of one group, from its present settings and the rate it began with."""
        raise NotImplementedError(f"{type(self).__name__} gives no rate.")

    def get_last_lr(self) -> list[float]:
        """The rates that were set last."""
        return list(self._last_lr)

    def state_dict(self) -> dict[str, Any]:
        """What `load_state_dict` takes: everything but the optimiser."""
        return {k: v for k, v in vars(self).items() if k != "optimizer"}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take over what `state_dict` saved. Load the optimiser's own state too."""
        vars(self).update(state_dict)


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
            demand_callable(given, "LambdaLR", "pass a function of the epoch")
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
        if cycle_momentum and not self.use_beta1 and "momentum" not in optimizer.defaults:
            raise ValueError(
                "optimizer must support momentum or beta1 with `cycle_momentum` option enabled."
            )
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
                if cycle_momentum:
                    group["max_momentum"], group["base_momentum"] = high, low
                    self._set_momentum(group, high)
        super().__init__(optimizer, last_epoch)

    def _set_momentum(self, group: Group, momentum: float) -> None:
        if self.use_beta1:
            group["betas"] = (momentum, *group["betas"][1:])
        else:
            group["momentum"] = momentum

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
            self._set_momentum(group, self._between(group[from_momentum], group[to_momentum], part))
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


class ReduceLROnPlateau:
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

    def get_last_lr(self) -> list[float]:
        """The rates that were set last."""
        return list(self._last_lr)

    def state_dict(self) -> dict[str, Any]:
        """What `load_state_dict` takes: everything but the optimiser."""
        return {k: v for k, v in vars(self).items() if k != "optimizer"}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take over what `state_dict` saved."""
        vars(self).update(state_dict)


__all__ = [
    "CosineAnnealingLR",
    "ExponentialLR",
    "LRScheduler",
    "LambdaLR",
    "MultiStepLR",
    "OneCycleLR",
    "ReduceLROnPlateau",
    "StepLR",
]


def __dir__() -> list[str]:
    return __all__
