"""Optimisers that update parameters from their gradients: the names, arguments and updates of `torch.optim`.

    optimizer = tg.optim.Adam(parameters, lr=1e-2)
    for batch in data:
        optimizer.zero_grad()
        loss(batch).backward()
        optimizer.step()

`optimizer.py` holds parameter groups, state and the step; `first_order.py` the formulas, one method each; `lbfgs.py` the
quasi-Newton method; `lr_scheduler.py` the schedules of the learning rate; `clipping.py` what is done to gradients before a
step. For fits of few parameters `tg.minimize` and `tg.least_squares` (SciPy's methods) are usually the better choice.
"""

from . import lr_scheduler
from .clipping import clip_grad_norm_, clip_grad_value_
from .first_order import SGD, Adagrad, Adam, AdamW, RMSprop
from .lbfgs import LBFGS
from .optimizer import Optimizer

__all__ = [
    "LBFGS", "SGD", "Adagrad", "Adam", "AdamW", "Optimizer", "RMSprop", "clip_grad_norm_", "clip_grad_value_", "lr_scheduler",
]  # fmt: skip


def __dir__() -> list[str]:
    return __all__
