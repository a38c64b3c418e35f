"""The native models in JAX and PyTorch, as each library's users would write them: time by `lax.scan`, space by whole arrays.

`JAX` and `TORCH` map a model's name to its function of the same arguments; `prepare(library, name, args)` gives a call that returns
`(value, gradients)`, compiled and finished. What is missing cannot be written or takes minutes: `MISSING` says so.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from bench.native_models import MODELS

MISSING = {
    (
        "jax",
        "adaptive",
    ): "JAX has no reverse mode through a while loop whose length depends on values",
    ("torch", "lotka_volterra"): "7 million operations, one by one, take most of a minute",
    ("torch", "adaptive"): "a loop of operations on two numbers, one by one, takes a minute",
    ("torch", "soft_dtw"): "5 million operations on numbers, one by one, take most of a minute",
}


def jax_models() -> dict[str, Callable[..., Any]]:
    import jax
    import jax.numpy as jnp
    from jax import lax

    def rosenbrock(x):
        return jnp.sum(100.0 * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2)

    def slope(u, v, p):
        return p[0] * u - p[1] * u * v, p[2] * u * v - p[3] * v

    def lotka_volterra(p, n, h):
        def step(carry, _):
            u, v, cost = carry
            a1, b1 = slope(u, v, p)
            a2, b2 = slope(u + 0.5 * h * a1, v + 0.5 * h * b1, p)
            a3, b3 = slope(u + 0.5 * h * a2, v + 0.5 * h * b2, p)
            a4, b4 = slope(u + h * a3, v + h * b3, p)
            u = u + h / 6.0 * (a1 + 2 * a2 + 2 * a3 + a4)
            v = v + h / 6.0 * (b1 + 2 * b2 + 2 * b3 + b4)
            return (u, v, cost + (u - 1.0) ** 2 * h), None

        return lax.scan(step, (1.0, 0.7, 0.0), None, length=n)[0][2]

    def over_time(step, u0, steps):
        u = lax.scan(lambda u, _: (u.at[1:-1, 1:-1].set(step(u)), None), u0, None, length=steps)[0]
        return jnp.sum(u**2)

    def heat(u0, kappa, steps):
        return over_time(lambda u: u[1:-1, 1:-1] + kappa * _laplacian(u), u0, steps)

    def burgers(u0, nu, steps):
        return over_time(lambda u: _upwind(jnp, u, nu), u0, steps)

    def n_body(x, v, mass, steps, dt):
        def step(carry, _):
            q, p = carry
            d = q[None] - q[:, None]
            r2 = jnp.sum(d * d, axis=2) + 0.01
            p = p + dt * jnp.einsum("ijk,ij->ik", d, mass / (r2 * jnp.sqrt(r2)))
            return (q + dt * p, p), None

        q, p = lax.scan(step, (x, v), None, length=steps)[0]
        return jnp.sum(0.5 * mass * jnp.sum(p * p, axis=1)) + jnp.sum(q[:, 0])

    def mixture(alpha, mu, logs, points):
        z = (points[:, None] - mu) * jnp.exp(-logs)
        return jnp.sum(jax.nn.logsumexp(alpha - jnp.sum(0.5 * z * z + logs, axis=2), axis=1))

    def soft_dtw(x, y, gamma):
        def row(above, a):
            def cell(left, given):
                corner, up, b = given
                least = -gamma * jax.nn.logsumexp(jnp.stack([-corner, -up, -left]) / gamma)
                here = (a - b) ** 2 + least
                return here, here

            rest = lax.scan(cell, 1e10, (above[:-1], above[1:], y))[1]
            return jnp.concatenate([jnp.full(1, 1e10), rest]), None

        first = jnp.full(y.size + 1, 1e10).at[0].set(0.0)
        return lax.scan(row, first, x)[0][-1]

    found = (rosenbrock, lotka_volterra, heat, burgers, n_body, mixture, soft_dtw)
    return {f.__name__: f for f in found}


def torch_models() -> dict[str, Callable[..., Any]]:
    import torch

    def rosenbrock(x):
        return torch.sum(100.0 * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2)

    def over_time(step, u, steps):
        for _ in range(steps):
            inner = step(u)
            middle = torch.cat([u[1:-1, :1], inner, u[1:-1, -1:]], dim=1)
            u = torch.cat([u[:1], middle, u[-1:]])
        return torch.sum(u**2)

    def heat(u0, kappa, steps):
        return over_time(lambda u: u[1:-1, 1:-1] + kappa * _laplacian(u), u0, steps)

    def burgers(u0, nu, steps):
        return over_time(lambda u: _upwind(torch, u, nu), u0, steps)

    def n_body(x, v, mass, steps, dt):
        q, p = x, v
        for _ in range(steps):
            d = q[None] - q[:, None]
            r2 = torch.sum(d * d, dim=2) + 0.01
            p = p + dt * torch.einsum("ijk,ij->ik", d, mass / (r2 * torch.sqrt(r2)))
            q = q + dt * p
        return torch.sum(0.5 * mass * torch.sum(p * p, dim=1)) + torch.sum(q[:, 0])

    def mixture(alpha, mu, logs, points):
        z = (points[:, None] - mu) * torch.exp(-logs)
        s = alpha - torch.sum(0.5 * z * z + logs, dim=2)
        return torch.sum(torch.logsumexp(s, dim=1))

    return {f.__name__: f for f in (rosenbrock, heat, burgers, n_body, mixture)}


def _laplacian(u):
    return u[2:, 1:-1] + u[:-2, 1:-1] + u[1:-1, 2:] + u[1:-1, :-2] - 4.0 * u[1:-1, 1:-1]


def _upwind(xp, u, nu):
    c = u[1:-1, 1:-1]
    dx = xp.where(c > 0.0, c - u[:-2, 1:-1], u[2:, 1:-1] - c)
    return c - 0.1 * c * dx + nu * _laplacian(u)


def prepare(library: str, name: str, args: tuple[Any, ...]) -> Callable[[], Any]:
    """A call that returns value and gradients of a model; ImportError where the library is absent."""
    wanted = MODELS[name][1]
    if library == "jax":
        import jax

        jax.config.update("jax_enable_x64", True)
        fixed = tuple(i for i, a in enumerate(args) if isinstance(a, int))
        compiled = jax.jit(jax.value_and_grad(jax_models()[name], wanted), static_argnums=fixed)
        given = [jax.numpy.asarray(a) if isinstance(a, np.ndarray) else a for a in args]
        return lambda: jax.block_until_ready(compiled(*given))
    import torch

    torch.set_num_threads(1)
    leaves = [
        torch.tensor(a, dtype=torch.float64, requires_grad=i in wanted)
        if isinstance(a, np.ndarray | float)
        else a
        for i, a in enumerate(args)
    ]
    model = torch_models()[name]

    def run() -> Any:
        value = model(*leaves)
        return value.detach(), torch.autograd.grad(value, [leaves[i] for i in wanted])

    return run
