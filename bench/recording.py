"""What recording one operation costs over bare NumPy, on one number.

A chain of operations is run on an array of one element in four modes. The difference from "numpy",
divided by the length of the chain, is the cost of an operation.

    numpy     on an ndarray
    no_grad   on a tensor, nothing recorded: the wrapper
    recorded  on a tracked tensor, and a backward pass (`finish`) which is not timed: and the entry
    dropped   on a tracked tensor, and no backward pass: and clearing the entries off the tape
"""

import numpy as np

OPERATIONS = 500


def add(xp, x, y):
    for _ in range(OPERATIONS):
        x = x + y
    return x


def multiply(xp, x, y):
    for _ in range(OPERATIONS):
        x = x * y
    return x


def double(xp, x, y):
    """By a Python float, which needs no array."""
    for _ in range(OPERATIONS):
        x = x * 2.0
    return x


def sin(xp, x, y):
    f = xp.sin
    for _ in range(OPERATIONS):
        x = f(x)
    return x


MODES = ("numpy", "no_grad", "recorded", "dropped")
CHAINS = {f.__name__: f for f in (add, multiply, double, sin)}


def operands() -> tuple[np.ndarray, np.ndarray]:
    """1e-9 keeps 500 doublings finite."""
    return np.array([1e-9]), np.array([1.0009765625])


def runs(kind: str) -> dict:
    """The chain in each mode, answers asserted."""
    import tapegrad as tg

    f = CHAINS[kind]
    x, y = operands()
    t, u = tg.tensor(x, requires_grad=True), tg.tensor(y, requires_grad=True)

    def no_grad():
        with tg.no_grad():
            return f(tg, t, u)

    found = {
        "numpy": lambda: f(np, x, y),
        "no_grad": no_grad,
        "recorded": lambda: f(tg, t, u),
        "dropped": lambda: f(tg, t, u),
    }
    assert found["recorded"]().requires_grad and not no_grad().requires_grad
    for name in ("no_grad", "recorded"):
        np.testing.assert_array_equal(found[name]().detach().numpy(), found["numpy"]())
    return found


def finish(result) -> None:
    """What follows a recorded chain."""
    result.backward()
