"""What all optimisers share: parameters in groups with settings of their own, state for each parameter, the step.

`param_groups` is a list of dicts, each with its tensors under "params" and its settings under their names, which may be
changed at any time (schedulers do). `state` maps a parameter to the arrays that its updates carry from step to step.

Invariant: a step happens as a whole or not at all. New values and new states of all parameters are computed first, from
gradients that fit; then they are stored, in place, so that whoever shares a parameter's memory sees them.
"""

from __future__ import annotations

import copy
from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from ..core.mode import enable_grad, is_grad_enabled, no_grad
from ..core.tape import current
from ..core.tensor import Tensor
from ..errors import GradientLost
from ..face.inplace import before_write
from ..ops.composing import holds_tracked

State = dict[str, Any]
Group = dict[str, Any]


class Optimizer:
    """Base of the optimisers: `params` is an iterable of tensors, of (name, tensor) pairs, or of dicts with "params".

    A subclass gives `update(x, g, state, group)`, which returns the new value of a parameter and its new state.

    >>> import tapegrad as tg
    >>> w = tg.tensor([3.0], requires_grad=True)
    >>> class Sign(tg.optim.Optimizer):
    ...     def __init__(self, params, lr=0.5):
    ...         super().__init__(params, {"lr": lr})
    ...     def update(self, x, g, state, group):
    ...         return x - group["lr"] * tg.sign(g), state
    >>> optimizer = Sign([w])
    >>> tg.sum(w**2).backward()
    >>> optimizer.step()
    >>> optimizer.zero_grad()
    >>> w, w.grad
    (tensor([2.5], requires_grad=True), None)
    >>> other = tg.tensor([1.0], requires_grad=True)
    >>> optimizer.add_param_group({"params": [other], "lr": 0.1})
    >>> [group["lr"] for group in optimizer.param_groups]
    [0.5, 0.1]
    >>> optimizer.load_state_dict(optimizer.state_dict())
    """

    _WHOLE: tuple[str, ...] = ("step",)
    """Parts of a state that are counts or settings, not arrays of the parameter's dtype."""

    NOT_NEGATIVE = frozenset(
        {"weight_decay", "momentum", "eps", "alpha", "lr_decay", "initial_accumulator_value"}
    )
    """Settings that are numbers of at least 0, in whatever optimiser has them."""

    def __init__(self, params: Any, defaults: Group) -> None:
        """Put the parameters into groups with the settings `defaults`."""
        self.defaults = defaults
        self.param_groups: list[Group] = []
        self.state: defaultdict[Tensor, State] = defaultdict(dict)
        if isinstance(params, Tensor | dict | str | np.ndarray) or not isinstance(params, Iterable):
            raise TypeError(
                "params argument given to the optimizer should be an iterable of Tensors or dicts, but got "
                f"{type(params).__name__}: write [{'params' if isinstance(params, Tensor) else 'tensor'}]."
            )
        groups = list(params)
        if not groups:
            raise ValueError("optimizer got an empty parameter list: there is nothing to optimise.")
        if not isinstance(groups[0], dict):
            groups = [{"params": groups}]
        for group in groups:
            self.add_param_group(group)

    def add_param_group(self, param_group: Group) -> None:
        """Add tensors with settings of their own; a setting that is not given has the optimiser's default."""
        if not isinstance(param_group, dict) or "params" not in param_group:
            raise TypeError(
                f'a parameter group is a dict with "params", but got {type(param_group).__name__}.'
            )
        group = dict(param_group)
        given = group["params"]
        items = [given] if isinstance(given, Tensor) else list(given)
        names = [item[0] for item in items if isinstance(item, tuple)]
        tensors = [item[1] if isinstance(item, tuple) else item for item in items]
        for p in tensors:
            if not isinstance(p, Tensor):
                raise TypeError(
                    f"optimizer can only optimize Tensors, but one of the params is {type(p).__name__}: use tg.Parameter or "
                    "tg.tensor(..., requires_grad=True)."
                )
            if not p.is_leaf:
                raise ValueError(
                    "can't optimize a non-leaf Tensor: it is the result of "
                    f"{p.grad_fn.name()}. Optimise the tensors it was computed from, or p.detach().requires_grad_()."
                )
        taken = {id(p) for other in self.param_groups for p in other["params"]}
        if len({id(p) for p in tensors}) < len(tensors) or taken & {id(p) for p in tensors}:
            raise ValueError(
                "some parameters appear in more than one parameter group, or twice in one: give each once."
            )
        group["params"] = tensors
        if names:
            group["param_names"] = names
        unknown = set(group) - set(self.defaults) - {"params", "param_names", "initial_lr"}
        if unknown:
            raise ValueError(
                f"{type(self).__name__} has no setting {', '.join(sorted(unknown))}; it has {', '.join(self.defaults)}."
            )
        self.param_groups.append({**self.defaults, **group})
        self._validate(self.param_groups[-1])

    def _validate(self, group: Group) -> None:
        """Refuse settings that no step could use. Extended by optimisers with settings of their own."""
        lr = group["lr"]
        if isinstance(lr, Tensor) or not np.isreal(lr) or not 0.0 <= lr:
            raise ValueError(f"Invalid learning rate: {lr}: give a number of at least 0.")
        for name in self.NOT_NEGATIVE & group.keys():
            if not 0.0 <= group[name]:
                raise ValueError(
                    f"Invalid {name} value: {group[name]}: give a number of at least 0."
                )

    # ------------------------------------------------------------------------------------ steps

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Forget the gradients of all parameters: set to None, or to zeros in place."""
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is None:
                    continue
                if set_to_none:
                    p.grad = None
                else:
                    g = p.grad.detach()
                    with no_grad():
                        before_write(g, "zero_grad")
                        g._array()[...] = 0
                    p.grad = g

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Update every parameter that has a gradient; returns what `closure` (which may recompute the loss) returned."""
        self._demand_untracked()
        loss = None
        if closure is not None:
            with enable_grad():
                loss = closure()
            self._demand_untracked()
        changes = []
        with no_grad(), np.errstate(all="ignore"):
            for group in self.param_groups:
                for p in group["params"]:
                    if p.grad is None:
                        continue
                    x, g = p._array(), p.grad._array()
                    new, state = self.update(x, g, dict(self.state.get(p, {})), group)
                    changes.append((p, x, new, state))
            for p, x, new, state in changes:
                before_write(p, "optimizer.step()")
                np.copyto(x, new)
                self.state[p] = state
        self._opt_called = True
        return loss

    def _demand_untracked(self) -> None:
        """Raise where an update would depend on something tracked: steps are not recorded, so what becomes of it would be lost."""
        inside = current().outer is not None and is_grad_enabled()
        for group in self.param_groups:
            read = group.keys() - {"params"} if inside else ("lr",)
            lost = [k for k in read if holds_tracked(group[k])]
            if inside:
                lost += [".grad"] * any(p.grad is not None and p.grad._node is not None for p in group["params"])  # fmt: skip
            if lost:
                raise GradientLost(
                    f"a step of {type(self).__name__} was asked with a tracked {lost[0]}, but the updates of optimisers are not recorded, "
                    "and its gradient would be lost. Write the update as an expression on values that stay tracked "
                    "(w = w - lr * g, with g from tg.grad or tg.autograd.grad(..., create_graph=True)), or detach() it.",
                    name="unrecorded-update",
                )

    def update(
        self, x: np.ndarray, g: np.ndarray, state: State, group: Group
    ) -> tuple[np.ndarray, State]:
        """The new value of a parameter `x` with gradient `g`, and its new state; nothing is changed in place."""
        raise NotImplementedError(f"{type(self).__name__} gives no update.")

    # ------------------------------------------------------------------------------------ saving

    def state_dict(self) -> dict[str, Any]:
        """States and settings in plain dicts, parameters by their number: what `load_state_dict` takes, fit for pickle."""
        number = self._numbers()
        state = {number[id(p)]: dict(s) for p, s in self.state.items()}
        groups = [
            {**group, "params": [number[id(p)] for p in group["params"]]}
            for group in self.param_groups
        ]
        return {"state": copy.deepcopy(state), "param_groups": copy.deepcopy(groups)}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take over states and settings saved by `state_dict` (of this library, or of PyTorch's optimiser of that name)."""
        if not isinstance(state_dict, dict) or not {"state", "param_groups"} <= set(state_dict):
            raise TypeError(
                'load_state_dict takes what state_dict() returned: a dict with "state" and "param_groups".'
            )
        groups = state_dict["param_groups"]
        if len(groups) != len(self.param_groups):
            raise ValueError(
                f"loaded state dict has {len(groups)} parameter groups, but this optimizer has {len(self.param_groups)}: they "
                "must be made alike."
            )
        for mine, theirs in zip(self.param_groups, groups, strict=True):
            if len(mine["params"]) != len(theirs["params"]):
                raise ValueError(
                    "loaded state dict contains a parameter group that doesn't match the size of optimizer's group: "
                    f"{len(theirs['params'])} parameters, not {len(mine['params'])}."
                )
        tensors = [p for group in self.param_groups for p in group["params"]]
        ids = [k for group in groups for k in group["params"]]
        states: defaultdict[Tensor, State] = defaultdict(dict)
        for k, p in zip(ids, tensors, strict=True):
            if k in state_dict["state"]:
                states[p] = {
                    name: self._loaded(name, value, p)
                    for name, value in state_dict["state"][k].items()
                }
        known = {*self.defaults, "param_names", *SCHEDULED}
        self.state = states
        for mine, theirs in zip(self.param_groups, groups, strict=True):
            mine.update({k: copy.deepcopy(v) for k, v in theirs.items() if k in known})

    def _loaded(self, name: str, value: Any, p: Tensor) -> Any:
        if value is None or isinstance(value, list | bool):
            return copy.deepcopy(value)
        array = np.array(value.detach().numpy() if hasattr(value, "detach") else value)
        if name in self._WHOLE:
            return array.item() if array.ndim == 0 else array
        if array.shape not in (p.shape, ()):
            raise ValueError(
                f"loaded state {name!r} has shape {array.shape}, but its parameter has shape {p.shape}: it belongs to another "
                "model."
            )
        return array.astype(p.dtype)

    def _numbers(self) -> dict[int, int]:
        tensors = [p for group in self.param_groups for p in group["params"]]
        return {id(p): k for k, p in enumerate(tensors)}

    def __getstate__(self) -> dict[str, Any]:
        return {
            "defaults": self.defaults,
            "state": dict(self.state),
            "param_groups": self.param_groups,
        }

    def __setstate__(self, saved: dict[str, Any]) -> None:
        self.__dict__.update(saved)
        self.state = defaultdict(dict, saved["state"])

    def __repr__(self) -> str:
        lines = [f"{type(self).__name__} ("]
        for k, group in enumerate(self.param_groups):
            lines.append(f"Parameter Group {k}")
            lines += [f"    {name}: {group[name]}" for name in sorted(group) if name != "params"]
        return "\n".join([*lines, ")"])


SCHEDULED = ("initial_lr", "max_lr", "min_lr", "max_momentum", "base_momentum")
"""What schedulers keep in a group."""


def store(p: Tensor, value: np.ndarray) -> None:
    """Write a parameter's new value into its own memory."""
    data = p._array()
    before_write(p, "optimizer.step()")
    np.copyto(data, value)


def pairs(a: np.ndarray) -> np.ndarray:
    """A complex array as one of real numbers: squares are taken of real and imaginary part by themselves, as in PyTorch."""
    if a.dtype.kind != "c":
        return a
    return np.ascontiguousarray(a).reshape(*a.shape, 1).view(a.real.dtype)


def joined(a: np.ndarray, like: np.ndarray) -> np.ndarray:
    """The way back from `pairs`."""
    if like.dtype.kind != "c":
        return a
    return np.ascontiguousarray(a).view(like.dtype).reshape(like.shape)
