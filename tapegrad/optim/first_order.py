"""The first-order methods: each is its update, as its paper and `torch.optim` write it.

`x` is the parameter, `g` its gradient, `m` and `v` running means of the gradient and of its square; `state` has them by
PyTorch's names, so that state dicts go both ways. Complex parameters are updated as pairs of real numbers.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .optimizer import Group, Optimizer, State, joined, pairs


def _direction(x: np.ndarray, g: np.ndarray, group: Group) -> np.ndarray:
    """The gradient of what is minimised: with its sign, and with weight decay as a term of the loss."""
    if group["maximize"]:
        g = -g
    return g + group["weight_decay"] * x if group["weight_decay"] else g


class SGD(Optimizer):
    """Gradient descent, with momentum (heavy ball, or Nesterov's) and weight decay. Arguments as `torch.optim.SGD`.

    >>> import tapegrad as tg
    >>> x = tg.tensor([1.0, 2.0], requires_grad=True)
    >>> optimizer = tg.optim.SGD([x], lr=0.1)
    >>> (x**2).sum().backward(); optimizer.step()
    >>> x
    tensor([0.8, 1.6], requires_grad=True)
    """

    def __init__(
        self,
        params: Any,
        lr: float = 1e-3,
        momentum: float = 0.0,
        dampening: float = 0.0,
        weight_decay: float = 0.0,
        nesterov: bool = False,
        *,
        maximize: bool = False,
    ) -> None:
        """Settings as PyTorch's."""
        settings = {
            "lr": lr, "momentum": momentum, "dampening": dampening, "weight_decay": weight_decay, "nesterov": nesterov,
            "maximize": maximize,
        }  # fmt: skip
        super().__init__(params, settings)

    def _validate(self, group: Group) -> None:
        super()._validate(group)
        if group["nesterov"] and (group["momentum"] <= 0 or group["dampening"] != 0):
            raise ValueError("Nesterov momentum requires a momentum and zero dampening.")

    def update(
        self, x: np.ndarray, g: np.ndarray, state: State, group: Group
    ) -> tuple[np.ndarray, State]:
        g = _direction(x, g, group)
        momentum = group["momentum"]
        if momentum:
            m = state.get("momentum_buffer")
            m = np.array(g) if m is None else momentum * m + (1 - group["dampening"]) * g
            state["momentum_buffer"] = m
            g = g + momentum * m if group["nesterov"] else m
        return x - group["lr"] * g, state


class Adam(Optimizer):
    """Steps scaled by running means of gradient and square (D. P. Kingma and J. Ba, 2015). Arguments as `torch.optim.Adam`.

    `amsgrad` divides by the largest mean so far (S. J. Reddi et al., 2018); `decoupled_weight_decay` is AdamW's.

    >>> import tapegrad as tg
    >>> x = tg.tensor([1.0], requires_grad=True)
    >>> optimizer = tg.optim.Adam([x], lr=0.1)
    >>> (x**2).sum().backward(); optimizer.step()
    >>> x
    tensor([0.9], requires_grad=True)
    """

    def __init__(
        self,
        params: Any,
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        amsgrad: bool = False,
        *,
        maximize: bool = False,
        decoupled_weight_decay: bool = False,
    ) -> None:
        """Settings as PyTorch's."""
        settings = {
            "lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay, "amsgrad": amsgrad, "maximize": maximize,
            "decoupled_weight_decay": decoupled_weight_decay,
        }  # fmt: skip
        super().__init__(params, settings)

    def _validate(self, group: Group) -> None:
        super()._validate(group)
        for k, beta in enumerate(group["betas"]):
            if not 0.0 <= beta < 1.0:
                raise ValueError(
                    f"Invalid beta parameter at index {k}: {beta}: give a number from 0 to below 1."
                )

    def update(
        self, x: np.ndarray, g: np.ndarray, state: State, group: Group
    ) -> tuple[np.ndarray, State]:
        """The next x, and moments and step count: m and v are running means of g and g², corrected for their start at 0."""
        beta1, beta2 = group["betas"]
        lr, decay = group["lr"], group["weight_decay"]
        if group["decoupled_weight_decay"]:
            g = -g if group["maximize"] else g
            x_decayed = x * (1 - lr * decay) if decay else x
        else:
            g = _direction(x, g, group)
            x_decayed = x
        zero = np.zeros(x.shape, x.dtype)
        step = state.get("step", 0) + 1
        m = state.get("exp_avg", zero)
        m = m + (1 - beta1) * (g - m)
        v = pairs(state.get("exp_avg_sq", zero))
        v = beta2 * v + (1 - beta2) * pairs(g) ** 2
        state |= {"step": step, "exp_avg": m, "exp_avg_sq": joined(v, x)}
        if group["amsgrad"]:
            v = np.maximum(pairs(state.get("max_exp_avg_sq", zero)), v)
            state["max_exp_avg_sq"] = joined(v, x)
        correction1, correction2 = 1 - beta1**step, 1 - beta2**step
        divisor = np.sqrt(v) / correction2**0.5 + group["eps"]
        return x_decayed - joined((lr / correction1) * (pairs(m) / divisor), x), state


class AdamW(Adam):
    """Adam with weight decay apart from the gradient (I. Loshchilov and F. Hutter, 2019). Arguments as `torch.optim.AdamW`.

    >>> import numpy as np, tapegrad as tg
    >>> w = tg.Parameter(np.array([1.0, 2.0]))
    >>> optimizer = tg.optim.AdamW([w], lr=0.1)
    >>> (w * w).sum().backward()
    >>> optimizer.step()
    >>> bool((w < tg.tensor([1.0, 2.0])).all())
    True
    """

    def __init__(
        self,
        params: Any,
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 1e-2,
        amsgrad: bool = False,
        *,
        maximize: bool = False,
    ) -> None:
        """Settings as PyTorch's."""
        super().__init__(
            params,
            lr,
            betas,
            eps,
            weight_decay,
            amsgrad,
            maximize=maximize,
            decoupled_weight_decay=True,
        )


class RMSprop(Optimizer):
    """Steps scaled by a running mean of the square (G. Hinton's lectures, 2012). Arguments as `torch.optim.RMSprop`.

    >>> import numpy as np, tapegrad as tg
    >>> w = tg.Parameter(np.array([1.0, 2.0]))
    >>> optimizer = tg.optim.RMSprop([w], lr=0.1)
    >>> (w * w).sum().backward()
    >>> optimizer.step()
    >>> bool((w < tg.tensor([1.0, 2.0])).all())
    True
    """

    def __init__(
        self,
        params: Any,
        lr: float = 1e-2,
        alpha: float = 0.99,
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        momentum: float = 0.0,
        centered: bool = False,
        *,
        maximize: bool = False,
    ) -> None:
        """Settings as PyTorch's."""
        settings = {
            "lr": lr, "alpha": alpha, "eps": eps, "weight_decay": weight_decay, "momentum": momentum, "centered": centered,
            "maximize": maximize,
        }  # fmt: skip
        super().__init__(params, settings)

    def update(
        self, x: np.ndarray, g: np.ndarray, state: State, group: Group
    ) -> tuple[np.ndarray, State]:
        """The next x and the state: g over the root of a running mean of g² (centred if wanted), with momentum."""
        g = _direction(x, g, group)
        alpha, lr = group["alpha"], group["lr"]
        zero = np.zeros(x.shape, x.dtype)
        v = pairs(state.get("square_avg", zero))
        v = alpha * v + (1 - alpha) * pairs(g) ** 2
        state |= {"step": state.get("step", 0) + 1, "square_avg": joined(v, x)}
        if group["centered"]:
            m = state.get("grad_avg", zero)
            m = m + (1 - alpha) * (g - m)
            state["grad_avg"] = m
            v = v - pairs(m) ** 2
        scaled = joined(pairs(g) / (np.sqrt(v) + group["eps"]), x)
        if group["momentum"] > 0:
            scaled = group["momentum"] * state.get("momentum_buffer", zero) + scaled
            state["momentum_buffer"] = scaled
        return x - lr * scaled, state


class Adagrad(Optimizer):
    """Steps scaled by the sum of squares so far (J. Duchi et al., 2011). Arguments as `torch.optim.Adagrad`.

    >>> import numpy as np, tapegrad as tg
    >>> w = tg.Parameter(np.array([1.0, 2.0]))
    >>> optimizer = tg.optim.Adagrad([w], lr=0.1)
    >>> (w * w).sum().backward()
    >>> optimizer.step()
    >>> bool((w < tg.tensor([1.0, 2.0])).all())
    True
    """

    def __init__(
        self,
        params: Any,
        lr: float = 1e-2,
        lr_decay: float = 0.0,
        weight_decay: float = 0.0,
        initial_accumulator_value: float = 0.0,
        eps: float = 1e-10,
        *,
        maximize: bool = False,
    ) -> None:
        """Settings as PyTorch's."""
        settings = {
            "lr": lr, "lr_decay": lr_decay, "weight_decay": weight_decay, "initial_accumulator_value": initial_accumulator_value,
            "eps": eps, "maximize": maximize,
        }  # fmt: skip
        super().__init__(params, settings)

    def update(
        self, x: np.ndarray, g: np.ndarray, state: State, group: Group
    ) -> tuple[np.ndarray, State]:
        g = _direction(x, g, group)
        step = state.get("step", 0) + 1
        if "sum" in state:
            v = pairs(state["sum"])
        else:
            v = np.full_like(pairs(x), group["initial_accumulator_value"])
        v = v + pairs(g) ** 2
        state |= {"step": step, "sum": joined(v, x)}
        rate = group["lr"] / (1 + (step - 1) * group["lr_decay"])
        return x - rate * joined(pairs(g) / (np.sqrt(v) + group["eps"]), x), state
