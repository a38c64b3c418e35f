"""What recording one operation costs over bare NumPy, on one number.

A chain of operations is run on an array of one element, as an ndarray, as a tracked tensor and as
the same tensor under `no_grad`. The difference divided by the length is the cost of an operation:
wrapper, entry on the tape and, as the chain is dropped each time, its removal from the tape too.
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


CHAINS = {f.__name__: f for f in (add, multiply, double, sin)}


def operands() -> tuple[np.ndarray, np.ndarray]:
    """1e-9 keeps 500 doublings finite."""
    return np.array([1e-9]), np.array([1.0009765625])


def runs(kind: str) -> dict:
    """The chain on an ndarray ("numpy"), tracked ("recorded") or not ("no_grad"), asserted."""
    import tapegrad as tg

    f = CHAINS[kind]
    x, y = operands()
    t, u = tg.tensor(x, requires_grad=True), tg.tensor(y, requires_grad=True)

    def no_grad():
        with tg.no_grad():
            return f(tg, t, u)

    found = {
        "numpy": lambda: f(np, x, y),
        "recorded": lambda: f(tg, t, u),
        "no_grad": no_grad,
    }
    assert found["recorded"]().requires_grad and not no_grad().requires_grad
    for name in ("recorded", "no_grad"):
        np.testing.assert_array_equal(found[name]().detach().numpy(), found["numpy"]())
    return found
