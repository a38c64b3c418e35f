"""Twenty array programs of science as their textbooks write them, for NumPy, for Numba and for JAX; see `bench.suite`."""

import math

import numpy as np

from bench.suite import program

try:
    from jax import lax
    from jax import numpy as jnp
except ImportError:  # the other two texts need no JAX
    pass


# ---------------------------------------------------------------------------------------------- fields in time


@program(
    ((8, 2), (32, 20), (100, 40)),
    lambda r, n, steps: (0.1 * r(n, n), 0.1 * r(n, n), 0.1 * r(n, n), steps),
)
class shallow_water:
    """Height and two velocities on one grid, central differences."""

    def arrays(h, u, v, steps):
        h, u, v = h.copy(), u.copy(), v.copy()
        for _ in range(steps):
            u[1:-1, 1:-1] -= 0.05 * (h[2:, 1:-1] - h[:-2, 1:-1])
            v[1:-1, 1:-1] -= 0.05 * (h[1:-1, 2:] - h[1:-1, :-2])
            hu, hv = (1.0 + h) * u, (1.0 + h) * v
            h[1:-1, 1:-1] -= 0.05 * (hu[2:, 1:-1] - hu[:-2, 1:-1] + hv[1:-1, 2:] - hv[1:-1, :-2])
        return np.sum(h * h) + np.sum(u * u) + np.sum(v * v)

    def loops(h, u, v, steps):
        h, u, v = h.copy(), u.copy(), v.copy()
        n, m = h.shape
        hu, hv = np.zeros((n, m)), np.zeros((n, m))
        for _ in range(steps):
            for i in range(1, n - 1):
                for j in range(1, m - 1):
                    u[i, j] -= 0.05 * (h[i + 1, j] - h[i - 1, j])
                    v[i, j] -= 0.05 * (h[i, j + 1] - h[i, j - 1])
            for i in range(n):
                for j in range(m):
                    hu[i, j] = (1.0 + h[i, j]) * u[i, j]
                    hv[i, j] = (1.0 + h[i, j]) * v[i, j]
            for i in range(1, n - 1):
                for j in range(1, m - 1):
                    h[i, j] -= 0.05 * (hu[i + 1, j] - hu[i - 1, j] + hv[i, j + 1] - hv[i, j - 1])
        return np.sum(h * h) + np.sum(u * u) + np.sum(v * v)

    def jax(h, u, v, steps):
        def step(fields, _):
            h, u, v = fields
            u = u.at[1:-1, 1:-1].add(-0.05 * (h[2:, 1:-1] - h[:-2, 1:-1]))
            v = v.at[1:-1, 1:-1].add(-0.05 * (h[1:-1, 2:] - h[1:-1, :-2]))
            hu, hv = (1.0 + h) * u, (1.0 + h) * v
            out = hu[2:, 1:-1] - hu[:-2, 1:-1] + hv[1:-1, 2:] - hv[1:-1, :-2]
            return (h.at[1:-1, 1:-1].add(-0.05 * out), u, v), None

        h, u, v = lax.scan(step, (h, u, v), None, length=steps)[0]
        return jnp.sum(h * h) + jnp.sum(u * u) + jnp.sum(v * v)


@program(((8, 3), (32, 30), (100, 60)), lambda r, n, steps: (r(n, n), 0.2 * r(n, n), steps))
class wave:
    """Leapfrog; three buffers change places."""

    def arrays(u, c, steps):
        old, now, new = u.copy(), u.copy(), np.zeros_like(u)
        for _ in range(steps):
            m = now[1:-1, 1:-1]
            lap = now[2:, 1:-1] + now[:-2, 1:-1] + now[1:-1, 2:] + now[1:-1, :-2] - 4.0 * m
            new[1:-1, 1:-1] = 2.0 * m - old[1:-1, 1:-1] + c[1:-1, 1:-1] * lap
            old, now, new = now, new, old
        return np.sum(now * now)

    def loops(u, c, steps):
        old, now, new = u.copy(), u.copy(), np.zeros_like(u)
        n, m = u.shape
        for _ in range(steps):
            for i in range(1, n - 1):
                for j in range(1, m - 1):
                    around = now[i + 1, j] + now[i - 1, j] + now[i, j + 1] + now[i, j - 1]
                    new[i, j] = 2.0 * now[i, j] - old[i, j] + c[i, j] * (around - 4.0 * now[i, j])
            old, now, new = now, new, old
        return np.sum(now * now)

    def jax(u, c, steps):
        def step(fields, _):
            old, now, new = fields
            m = now[1:-1, 1:-1]
            lap = now[2:, 1:-1] + now[:-2, 1:-1] + now[1:-1, 2:] + now[1:-1, :-2] - 4.0 * m
            new = new.at[1:-1, 1:-1].set(2.0 * m - old[1:-1, 1:-1] + c[1:-1, 1:-1] * lap)
            return (now, new, old), None

        return jnp.sum(lax.scan(step, (u, u, jnp.zeros_like(u)), None, length=steps)[0][1] ** 2)


@program(((12, 3), (200, 40), (2000, 100)), lambda r, n, steps: (r(n), steps))
class advection:
    """Second order with van Leer's limiter."""

    def arrays(q, steps):
        q = q.copy()
        slope = np.zeros_like(q)
        for _ in range(steps):
            left, right = q[1:-1] - q[:-2], q[2:] - q[1:-1]
            rising = left * right > 0.0
            total = np.where(rising, left + right, 1.0)
            slope[1:-1] = np.where(rising, 2.0 * left * right / total, 0.0)
            face = q + 0.3 * slope
            q[1:] -= 0.4 * (face[1:] - face[:-1])
        return np.sum(q * q)

    def loops(q, steps):
        q = q.copy()
        n = q.size
        face = np.zeros(n)
        for _ in range(steps):
            face[0], face[n - 1] = q[0], q[n - 1]
            for i in range(1, n - 1):
                left, right = q[i] - q[i - 1], q[i + 1] - q[i]
                face[i] = q[i]
                if left * right > 0.0:
                    face[i] += 0.3 * (2.0 * left * right / (left + right))
            for i in range(1, n):
                q[i] -= 0.4 * (face[i] - face[i - 1])
        return np.sum(q * q)

    def jax(q, steps):
        def step(q, _):
            left, right = q[1:-1] - q[:-2], q[2:] - q[1:-1]
            rising = left * right > 0.0
            total = jnp.where(rising, left + right, 1.0)
            face = q.at[1:-1].add(0.3 * jnp.where(rising, 2.0 * left * right / total, 0.0))
            return q.at[1:].add(-0.4 * (face[1:] - face[:-1])), None

        return jnp.sum(lax.scan(step, q, None, length=steps)[0] ** 2)


@program(((12, 3), (200, 40), (2000, 100)), lambda r, n, steps: (r(n) - 0.3, 0.1 * r(n), steps))
class burgers:
    """Upwind; the viscosity is a field."""

    def arrays(u, nu, steps):
        u = u.copy()
        for _ in range(steps):
            c = u[1:-1]
            back, ahead = c - u[:-2], u[2:] - c
            u[1:-1] = c - 0.2 * c * np.where(c > 0.0, back, ahead) + nu[1:-1] * (ahead - back)
        return np.sum(u * u)

    def loops(u, nu, steps):
        u, w = u.copy(), u.copy()
        for _ in range(steps):
            for i in range(1, u.size - 1):
                back, ahead = u[i] - u[i - 1], u[i + 1] - u[i]
                slope = back if u[i] > 0.0 else ahead
                w[i] = u[i] - 0.2 * u[i] * slope + nu[i] * (ahead - back)
            u, w = w, u
        return np.sum(u * u)

    def jax(u, nu, steps):
        def step(u, _):
            c = u[1:-1]
            back, ahead = c - u[:-2], u[2:] - c
            slope = jnp.where(c > 0.0, back, ahead)
            return u.at[1:-1].set(c - 0.2 * c * slope + nu[1:-1] * (ahead - back)), None

        return jnp.sum(lax.scan(step, u, None, length=steps)[0] ** 2)


def laplacian(xp, a):
    return (
        xp.roll(a, 1, axis=0)
        + xp.roll(a, -1, axis=0)
        + xp.roll(a, 1, axis=1)
        + xp.roll(a, -1, axis=1)
        - 4.0 * a
    )


@program(((6, 2), (24, 20), (64, 50)), lambda r, n, steps: (r(n, n), 0.5 * r(n, n), steps))
class gray_scott:
    """Reaction and diffusion on a torus."""

    def arrays(u, v, steps):
        u, v = u.copy(), v.copy()
        for _ in range(steps):
            uvv = u * v * v
            du = 0.16 * laplacian(np, u) - uvv + 0.06 * (1.0 - u)
            dv = 0.08 * laplacian(np, v) + uvv - 0.122 * v
            u += du
            v += dv
        return np.sum(u * u) + np.sum(v * v)

    def loops(u, v, steps):
        u, v, du, dv = u.copy(), v.copy(), np.empty_like(u), np.empty_like(v)
        n, m = u.shape
        for _ in range(steps):
            for i in range(n):
                above, below = (i - 1) % n, (i + 1) % n
                for j in range(m):
                    left, right = (j - 1) % m, (j + 1) % m
                    uvv = u[i, j] * v[i, j] * v[i, j]
                    lu = u[above, j] + u[below, j] + u[i, left] + u[i, right] - 4.0 * u[i, j]
                    lv = v[above, j] + v[below, j] + v[i, left] + v[i, right] - 4.0 * v[i, j]
                    du[i, j] = 0.16 * lu - uvv + 0.06 * (1.0 - u[i, j])
                    dv[i, j] = 0.08 * lv + uvv - 0.122 * v[i, j]
            u += du
            v += dv
        return np.sum(u * u) + np.sum(v * v)

    def jax(u, v, steps):
        def step(fields, _):
            u, v = fields
            uvv = u * v * v
            du = 0.16 * laplacian(jnp, u) - uvv + 0.06 * (1.0 - u)
            return (u + du, v + 0.08 * laplacian(jnp, v) + uvv - 0.122 * v), None

        u, v = lax.scan(step, (u, v), None, length=steps)[0]
        return jnp.sum(u * u) + jnp.sum(v * v)


@program(((6, 2), (24, 20), (64, 50)), lambda r, n, steps: (r(n, n) - 0.5, steps))
class cahn_hilliard:
    def arrays(c, steps):
        c = c.copy()
        for _ in range(steps):
            mu = c**3 - c - 0.5 * laplacian(np, c)
            c += 0.01 * laplacian(np, mu)
        return np.sum(c * c)

    def loops(c, steps):
        c, mu = c.copy(), np.empty_like(c)
        n, m = c.shape
        for _ in range(steps):
            for i in range(n):
                for j in range(m):
                    around = c[i - 1, j] + c[(i + 1) % n, j] + c[i, j - 1] + c[i, (j + 1) % m]
                    mu[i, j] = c[i, j] ** 3 - c[i, j] - 0.5 * (around - 4.0 * c[i, j])
            for i in range(n):
                for j in range(m):
                    around = mu[i - 1, j] + mu[(i + 1) % n, j] + mu[i, j - 1] + mu[i, (j + 1) % m]
                    c[i, j] += 0.01 * (around - 4.0 * mu[i, j])
        return np.sum(c * c)

    def jax(c, steps):
        def step(c, _):
            return c + 0.01 * laplacian(jnp, c**3 - c - 0.5 * laplacian(jnp, c)), None

        return jnp.sum(lax.scan(step, c, None, length=steps)[0] ** 2)


@program(((8, 2), (60, 30), (250, 100)), lambda r, n, steps: (0.2 + 0.2 * r(n), 5.0 * r(n), steps))
class option_price:
    """Black and Scholes' equation with a local volatility, Crank and Nicolson's steps, Thomas's algorithm."""

    def arrays(sigma, payoff, steps):
        n = len(payoff)
        i = np.arange(n)
        a = 0.25 / steps * (sigma**2 * i**2 - 0.05 * i)
        b = -0.5 / steps * (sigma**2 * i**2 + 0.05)
        c = 0.25 / steps * (sigma**2 * i**2 + 0.05 * i)
        v = payoff.copy()
        e, d = np.zeros(n), np.zeros(n)
        for _ in range(steps):
            d[1:-1] = a[1:-1] * v[:-2] + (1.0 + b[1:-1]) * v[1:-1] + c[1:-1] * v[2:]
            d[0] = v[0]
            for k in range(1, n - 1):
                m = 1.0 - b[k] + a[k] * e[k - 1]
                e[k] = -c[k] / m
                d[k] = (d[k] + a[k] * d[k - 1]) / m
            for k in range(n - 2, 0, -1):
                v[k] = d[k] - e[k] * v[k + 1]
        return np.sum(v * v)

    def loops(sigma, payoff, steps):
        n = payoff.size
        a, b, c = np.zeros(n), np.zeros(n), np.zeros(n)
        for i in range(n):
            s = sigma[i] ** 2 * i**2
            a[i] = 0.25 / steps * (s - 0.05 * i)
            b[i] = -0.5 / steps * (s + 0.05)
            c[i] = 0.25 / steps * (s + 0.05 * i)
        v = payoff.copy()
        e, d = np.zeros(n), np.zeros(n)
        for _ in range(steps):
            d[0] = v[0]
            for i in range(1, n - 1):
                d[i] = a[i] * v[i - 1] + (1.0 + b[i]) * v[i] + c[i] * v[i + 1]
            for k in range(1, n - 1):
                m = 1.0 - b[k] + a[k] * e[k - 1]
                e[k] = -c[k] / m
                d[k] = (d[k] + a[k] * d[k - 1]) / m
            for k in range(n - 2, 0, -1):
                v[k] = d[k] - e[k] * v[k + 1]
        return np.sum(v * v)

    def jax(sigma, payoff, steps):
        i = jnp.arange(len(payoff))
        a = (0.25 / steps * (sigma**2 * i**2 - 0.05 * i))[1:-1]
        b = (-0.5 / steps * (sigma**2 * i**2 + 0.05))[1:-1]
        c = (0.25 / steps * (sigma**2 * i**2 + 0.05 * i))[1:-1]

        def eliminate(carry, row):
            e, f = carry
            a, b, c, d = row
            m = 1.0 - b + a * e
            return (new := (-c / m, (d + a * f) / m)), new

        def back(x, row):
            return (new := row[1] - row[0] * x), new

        def step(v, _):
            d = a * v[:-2] + (1.0 + b) * v[1:-1] + c * v[2:]
            _, rows = lax.scan(eliminate, (0.0, v[0]), (a, b, c, d))
            return v.at[1:-1].set(lax.scan(back, v[-1], rows, reverse=True)[1]), None

        return jnp.sum(lax.scan(step, payoff, None, length=steps)[0] ** 2)


@program(
    ((6, 3, 2), (40, 8, 20), (200, 8, 50)),
    lambda r, n, m, its: (r(n), 0.5 * r(n), np.linspace(0.1, 1.0, m), its),
    by=(0, 1),
)
class radiation:
    """Transfer through scattering layers: intensities along rays, up and down, until the source is consistent."""

    def arrays(planck, tau, mu, iterations):
        n, m = len(planck), len(mu)
        through = np.exp(-tau[:, None] / mu)
        source = planck.copy()
        for _ in range(iterations):
            mean = np.zeros(n)
            ray = np.zeros(m)
            for k in range(n):
                ray = ray * through[k] + source[k] * (1.0 - through[k])
                mean[k] += 0.5 * np.mean(ray)
            for k in range(n - 1, -1, -1):
                ray = ray * through[k] + source[k] * (1.0 - through[k])
                mean[k] += 0.5 * np.mean(ray)
            source = 0.3 * planck + 0.7 * mean
        return np.sum(source * source)

    def loops(planck, tau, mu, iterations):
        n, m = planck.size, mu.size
        through = np.empty((n, m))
        for k in range(n):
            for j in range(m):
                through[k, j] = math.exp(-tau[k] / mu[j])
        source, ray = planck.copy(), np.zeros(m)
        for _ in range(iterations):
            mean = np.zeros(n)
            for j in range(m):
                ray[j] = 0.0
            for k in range(n):
                for j in range(m):
                    ray[j] = ray[j] * through[k, j] + source[k] * (1.0 - through[k, j])
                    mean[k] += 0.5 * ray[j] / m
            for k in range(n - 1, -1, -1):
                for j in range(m):
                    ray[j] = ray[j] * through[k, j] + source[k] * (1.0 - through[k, j])
                    mean[k] += 0.5 * ray[j] / m
            for k in range(n):
                source[k] = 0.3 * planck[k] + 0.7 * mean[k]
        return np.sum(source * source)

    def jax(planck, tau, mu, iterations):
        through = jnp.exp(-tau[:, None] / mu)

        def layer(ray, given):
            t, s = given
            ray = ray * t + s * (1.0 - t)
            return ray, 0.5 * jnp.mean(ray)

        def step(source, _):
            ray, down = lax.scan(layer, jnp.zeros(mu.size), (through, source))
            up = lax.scan(layer, ray, (through, source), reverse=True)[1]
            return 0.3 * planck + 0.7 * (down + up), None

        return jnp.sum(lax.scan(step, planck, None, length=iterations)[0] ** 2)


# ---------------------------------------------------------------------------------------------- particles and orbits


@program(((4, 2), (30, 10), (100, 20)), lambda r, n, steps: (r(2, n), r(2, n), r(n), steps))
class n_body:
    def arrays(x, v, mass, steps):
        x, v = x.copy(), v.copy()
        for _ in range(steps):
            d, e = np.subtract.outer(x[0], x[0]), np.subtract.outer(x[1], x[1])
            r = d * d + e * e + 0.01
            w = mass / (r * np.sqrt(r))
            v[0] -= 0.01 * np.sum(d * w, axis=1)
            v[1] -= 0.01 * np.sum(e * w, axis=1)
            x += 0.01 * v
        return np.sum(x * x) + np.sum(v * v)

    def loops(x, v, mass, steps):
        n = mass.size
        x, v = x.copy(), v.copy()
        for _ in range(steps):
            for i in range(n):
                for j in range(n):
                    d, e = x[0, j] - x[0, i], x[1, j] - x[1, i]
                    r = d * d + e * e + 0.01
                    w = 0.01 * mass[j] / (r * math.sqrt(r))
                    v[0, i] += d * w
                    v[1, i] += e * w
            for c in range(2):
                for i in range(n):
                    x[c, i] += 0.01 * v[c, i]
        return np.sum(x * x) + np.sum(v * v)

    def jax(x, v, mass, steps):
        def step(xv, _):
            x, v = xv
            d = x[:, None, :] - x[:, :, None]
            r = jnp.sum(d * d, axis=0) + 0.01
            v = v + 0.01 * jnp.sum(d * (mass / (r * jnp.sqrt(r))), axis=2)
            return (x + 0.01 * v, v), None

        x, v = lax.scan(step, (x, v), None, length=steps)[0]
        return jnp.sum(x * x) + jnp.sum(v * v)


def net(r, n, steps):
    """Positions at rest in a square net with some noise, its edges, and stiffnesses."""
    places = np.arange(n * n).reshape(n, n)
    i = np.concatenate([places[:, :-1].ravel(), places[:-1].ravel()])
    j = np.concatenate([places[:, 1:].ravel(), places[1:].ravel()])
    x = np.stack([places.ravel() // n, places.ravel() % n], axis=1) + 0.2 * r(n * n, 2)
    return x, 1.0 + r(len(i)), i, j, steps


@program(((3, 2), (10, 20), (30, 40)), net)
class springs:
    def arrays(x, k, i, j, steps):
        x = x.copy()
        v = np.zeros_like(x)
        for _ in range(steps):
            d = x[j] - x[i]
            length = np.sqrt(np.sum(d * d, axis=1))
            f = (k * (1.0 - 1.0 / length))[:, None] * d
            force = np.zeros_like(x)
            np.add.at(force, i, f)
            np.add.at(force, j, -f)
            v += 0.05 * force
            x += 0.05 * v
        return np.sum(x * x)

    def loops(x, k, i, j, steps):
        x, v = x.copy(), np.zeros_like(x)
        for _ in range(steps):
            for e in range(k.size):
                p, q = i[e], j[e]
                dx, dy = x[q, 0] - x[p, 0], x[q, 1] - x[p, 1]
                f = 0.05 * k[e] * (1.0 - 1.0 / math.sqrt(dx * dx + dy * dy))
                v[p, 0] += f * dx
                v[p, 1] += f * dy
                v[q, 0] -= f * dx
                v[q, 1] -= f * dy
            for p in range(x.shape[0]):
                x[p, 0] += 0.05 * v[p, 0]
                x[p, 1] += 0.05 * v[p, 1]
        return np.sum(x * x)

    def jax(x, k, i, j, steps):
        def step(xv, _):
            x, v = xv
            d = x[j] - x[i]
            length = jnp.sqrt(jnp.sum(d * d, axis=1))
            f = (k * (1.0 - 1.0 / length))[:, None] * d
            v = v + 0.05 * jnp.zeros_like(x).at[i].add(f).at[j].add(-f)
            return (x + 0.05 * v, v), None

        return jnp.sum(lax.scan(step, (x, jnp.zeros_like(x)), None, length=steps)[0][0] ** 2)


def predators(z, p):
    return np.array([z[0] * (p[0] - p[1] * z[1]), z[1] * (p[2] * z[0] - p[3])])


@program((4, 200, 3000), lambda r, steps: (1.0 + 0.5 * r(4), 1.0 + r(2), steps))
class lotka_volterra:
    """Runge and Kutta's method of fourth order; the trajectory is kept."""

    def arrays(p, start, steps):
        h = 0.01
        z = np.zeros((steps + 1, 2))
        z[0] = start
        for i in range(steps):
            k1 = predators(z[i], p)
            k2 = predators(z[i] + 0.5 * h * k1, p)
            k3 = predators(z[i] + 0.5 * h * k2, p)
            k4 = predators(z[i] + h * k3, p)
            z[i + 1] = z[i] + h / 6.0 * (k1 + 2.0 * k2 + 2.0 * k3 + k4)
        return np.sum(z * z)

    def loops(p, start, steps):
        u, v, h = start[0], start[1], 0.01
        total = u * u + v * v
        for _ in range(steps):
            a1, b1 = u * (p[0] - p[1] * v), v * (p[2] * u - p[3])
            x, y = u + 0.5 * h * a1, v + 0.5 * h * b1
            a2, b2 = x * (p[0] - p[1] * y), y * (p[2] * x - p[3])
            x, y = u + 0.5 * h * a2, v + 0.5 * h * b2
            a3, b3 = x * (p[0] - p[1] * y), y * (p[2] * x - p[3])
            x, y = u + h * a3, v + h * b3
            a4, b4 = x * (p[0] - p[1] * y), y * (p[2] * x - p[3])
            u += h / 6.0 * (a1 + 2.0 * a2 + 2.0 * a3 + a4)
            v += h / 6.0 * (b1 + 2.0 * b2 + 2.0 * b3 + b4)
            total += u * u + v * v
        return total

    def jax(p, start, steps):
        h = 0.01

        def rates(z):
            return jnp.array([z[0] * (p[0] - p[1] * z[1]), z[1] * (p[2] * z[0] - p[3])])

        def step(z, _):
            k1 = rates(z)
            k2 = rates(z + 0.5 * h * k1)
            k3 = rates(z + 0.5 * h * k2)
            k4 = rates(z + h * k3)
            return (new := z + h / 6.0 * (k1 + 2.0 * k2 + 2.0 * k3 + k4)), new

        return jnp.sum(start**2) + jnp.sum(lax.scan(step, start, None, length=steps)[1] ** 2)


@program(
    ((6, 3), (60, 30), (300, 50)), lambda r, n, steps: ((r(n, n) - 0.5) / np.sqrt(n), r(n), steps)
)
class ising:
    """Magnetisations of the mean field."""

    def arrays(J, field, steps):
        m = np.zeros(len(field))
        for _ in range(steps):
            m[:] = 0.5 * m + 0.5 * np.tanh(J @ m + field)
        return np.sum(m * m)

    def loops(J, field, steps):
        n = field.size
        m, new = np.zeros(n), np.zeros(n)
        for _ in range(steps):
            for i in range(n):
                s = field[i]
                for j in range(n):
                    s += J[i, j] * m[j]
                new[i] = 0.5 * m[i] + 0.5 * math.tanh(s)
            m, new = new, m
        return np.sum(m * m)

    def jax(J, field, steps):
        def step(m, _):
            return 0.5 * m + 0.5 * jnp.tanh(J @ m + field), None

        return jnp.sum(lax.scan(step, jnp.zeros(len(field)), None, length=steps)[0] ** 2)


# ---------------------------------------------------------------------------------------------- estimation and learning


@program(
    ((2, 4), (4, 100), (6, 500)),
    lambda r, d, n: (np.eye(d) + 0.1 * (r(d, d) - 0.5), 0.1 * np.eye(d), r(d), r(n)),
)
class kalman:
    """Means of the state, one observation a step."""

    def arrays(F, Q, H, z):
        d = len(F)
        x, P = np.zeros(d), np.eye(d)
        means = np.zeros((len(z), d))
        for t in range(len(z)):
            x = F @ x
            P = F @ P @ F.T + Q
            K = P @ H / (H @ P @ H + 0.5)
            x = x + K * (z[t] - H @ x)
            P = P - np.outer(K, H @ P)
            means[t] = x
        return np.sum(means * means)

    def loops(F, Q, H, z):
        d = H.size
        x, y, P, FP = np.zeros(d), np.zeros(d), np.eye(d), np.zeros((d, d))
        g, K = np.zeros(d), np.zeros(d)
        total = 0.0
        for t in range(z.size):
            for i in range(d):
                y[i] = 0.0
                for j in range(d):
                    y[i] += F[i, j] * x[j]
                    FP[i, j] = 0.0
                    for k in range(d):
                        FP[i, j] += F[i, k] * P[k, j]
            for i in range(d):
                for j in range(d):
                    P[i, j] = Q[i, j]
                    for k in range(d):
                        P[i, j] += FP[i, k] * F[j, k]
            s, residual = 0.5, z[t]
            for i in range(d):
                K[i], g[i] = 0.0, 0.0
                for j in range(d):
                    K[i] += P[i, j] * H[j]
                    g[i] += H[j] * P[j, i]
                s += H[i] * K[i]
                residual -= H[i] * y[i]
            for i in range(d):
                x[i] = y[i] + K[i] / s * residual
                total += x[i] * x[i]
                for j in range(d):
                    P[i, j] -= K[i] / s * g[j]
        return total

    def jax(F, Q, H, z):
        def step(carry, observed):
            x, P = carry
            x = F @ x
            P = F @ P @ F.T + Q
            K = P @ H / (H @ P @ H + 0.5)
            x = x + K * (observed - H @ x)
            return (x, P - jnp.outer(K, H @ P)), x

        return jnp.sum(lax.scan(step, (jnp.zeros(len(F)), jnp.eye(len(F))), z)[1] ** 2)


@program(
    ((3, 4), (5, 100), (12, 500)),
    lambda r, k, n: (r(k, k) + 0.1, r(k, 4) + 0.1, (4 * r(n)).astype(np.int64)),
)
class hidden_markov:
    """The scaled forward algorithm; squares of the logarithms of the scales."""

    def arrays(T, E, seen):
        A = T / np.sum(T, axis=1, keepdims=True)
        B = E / np.sum(E, axis=1, keepdims=True)
        alpha = np.full(len(A), 1.0 / len(A))
        logs = np.empty(len(seen))
        for t in range(len(seen)):
            alpha = (alpha @ A) * B[:, seen[t]]
            scale = np.sum(alpha)
            alpha /= scale
            logs[t] = np.log(scale)
        return np.sum(logs * logs)

    def loops(T, E, seen):
        k = T.shape[0]
        A, B = np.empty_like(T), np.empty_like(E)
        for i in range(k):
            A[i] = T[i] / np.sum(T[i])
            B[i] = E[i] / np.sum(E[i])
        alpha, new = np.full(k, 1.0 / k), np.zeros(k)
        total = 0.0
        for t in range(seen.size):
            scale = 0.0
            for j in range(k):
                s = 0.0
                for i in range(k):
                    s += alpha[i] * A[i, j]
                new[j] = s * B[j, seen[t]]
                scale += new[j]
            for j in range(k):
                alpha[j] = new[j] / scale
            total += math.log(scale) ** 2
        return total

    def jax(T, E, seen):
        A = T / jnp.sum(T, axis=1, keepdims=True)
        B = E / jnp.sum(E, axis=1, keepdims=True)

        def step(alpha, s):
            alpha = (alpha @ A) * B[:, s]
            scale = jnp.sum(alpha)
            return alpha / scale, jnp.log(scale)

        return jnp.sum(lax.scan(step, jnp.full(len(A), 1.0 / len(A)), seen)[1] ** 2)


@program(
    ((5, 3, 4), (40, 8, 16), (200, 20, 50)),
    lambda r, n, d, h: (r(d, h) - 0.5, r(h), r(h, 2) - 0.5, r(2), r(n, d), r(n, 2)),
    by=(0, 1, 2, 3),
)
class perceptron:
    """Two layers."""

    def arrays(W, b, V, c, X, y):
        error = np.tanh(X @ W + b) @ V + c - y
        return np.sum(error**2)

    def loops(W, b, V, c, X, y):
        total, h = 0.0, np.zeros(b.size)
        for n in range(X.shape[0]):
            for j in range(b.size):
                s = b[j]
                for i in range(X.shape[1]):
                    s += X[n, i] * W[i, j]
                h[j] = math.tanh(s)
            for k in range(c.size):
                s = c[k] - y[n, k]
                for j in range(b.size):
                    s += h[j] * V[j, k]
                total += s * s
        return total

    def jax(W, b, V, c, X, y):
        return jnp.sum((jnp.tanh(X @ W + b) @ V + c - y) ** 2)


@program(((4, 3), (24, 8), (100, 20)), lambda r, n, d: (r(n, d), r(d, d), r(d, d), r(d, d)))
class attention:
    def arrays(X, Wq, Wk, Wv):
        Q, K, V = X @ Wq, X @ Wk, X @ Wv
        S = Q @ K.T / np.sqrt(Q.shape[1])
        S -= np.max(S, axis=1, keepdims=True)
        P = np.exp(S)
        P /= np.sum(P, axis=1, keepdims=True)
        out = P @ V
        return np.sum(out * out)

    def loops(X, Wq, Wk, Wv):
        n, d = X.shape
        Q, K, V = X @ Wq, X @ Wk, X @ Wv
        s, total = np.zeros(n), 0.0
        for i in range(n):
            top = -np.inf
            for j in range(n):
                s[j] = 0.0
                for k in range(d):
                    s[j] += Q[i, k] * K[j, k]
                s[j] /= math.sqrt(d)
                top = max(top, s[j])
            norm = 0.0
            for j in range(n):
                s[j] = math.exp(s[j] - top)
                norm += s[j]
            for k in range(d):
                out = 0.0
                for j in range(n):
                    out += s[j] / norm * V[j, k]
                total += out * out
        return total

    def jax(X, Wq, Wk, Wv):
        Q, K, V = X @ Wq, X @ Wk, X @ Wv
        S = Q @ K.T / jnp.sqrt(Q.shape[1])
        P = jnp.exp(S - jnp.max(S, axis=1, keepdims=True))
        return jnp.sum((P / jnp.sum(P, axis=1, keepdims=True) @ V) ** 2)


@program(((8, 2), (50, 8), (200, 30)), lambda r, n, d: (r(n, d) - 0.5 + np.arange(d) * r(n, 1),))
class principal_components:
    """Power iteration with deflation."""

    def arrays(X):
        n, d = X.shape
        C = X.T @ X / n
        out = np.zeros((2, d))
        for k in range(2):
            v = np.ones(d) / np.sqrt(d)
            for _ in range(20):
                w = C @ v
                v = w / np.linalg.norm(w)
            value = v @ C @ v
            out[k] = value * v
            C -= value * np.outer(v, v)
        return np.sum((out + 1.0) ** 2)

    def loops(X):
        n, d = X.shape
        C = np.zeros((d, d))
        for i in range(n):
            for j in range(d):
                for k in range(d):
                    C[j, k] += X[i, j] * X[i, k] / n
        v, w = np.zeros(d), np.zeros(d)
        total = 0.0
        for _ in range(2):
            for i in range(d):
                v[i] = 1.0 / math.sqrt(d)
            for _ in range(20):
                norm = 0.0
                for i in range(d):
                    w[i] = 0.0
                    for j in range(d):
                        w[i] += C[i, j] * v[j]
                    norm += w[i] * w[i]
                for i in range(d):
                    v[i] = w[i] / math.sqrt(norm)
            value = 0.0
            for i in range(d):
                for j in range(d):
                    value += v[i] * C[i, j] * v[j]
            for i in range(d):
                total += (value * v[i] + 1.0) ** 2
                for j in range(d):
                    C[i, j] -= value * v[i] * v[j]
        return total

    def jax(X):
        n, d = X.shape

        def turn(v, C):
            w = C @ v
            return w / jnp.linalg.norm(w)

        def component(C, _):
            v = lax.fori_loop(0, 20, lambda _, v: turn(v, C), jnp.ones(d) / jnp.sqrt(d))
            value = v @ C @ v
            return C - value * jnp.outer(v, v), value * v

        return jnp.sum((lax.scan(component, X.T @ X / n, None, length=2)[1] + 1.0) ** 2)


# ---------------------------------------------------------------------------------------------- signals and images


@program((8, 40, 150), lambda r, n: (r(n + 2, n + 2), r(3, 3) - 0.5))
class convolution:
    """A kernel, rectified and pooled."""

    def arrays(image, kernel):
        n, m = image.shape[0] - 2, image.shape[1] - 2
        out = np.zeros((n, m))
        for a in range(3):
            for b in range(3):
                out += kernel[a, b] * image[a : a + n, b : b + m]
        out = np.maximum(out, 0.0)
        pooled = np.max(out.reshape(n // 2, 2, m // 2, 2), axis=(1, 3))
        return np.sum(pooled * pooled)

    def loops(image, kernel):
        n, m = image.shape[0] - 2, image.shape[1] - 2
        total = 0.0
        for i in range(0, n, 2):
            for j in range(0, m, 2):
                best = 0.0
                for k in range(2):
                    for l in range(2):
                        s = 0.0
                        for a in range(3):
                            for b in range(3):
                                s += kernel[a, b] * image[i + k + a, j + l + b]
                        best = max(best, s)
                total += best * best
        return total

    def jax(image, kernel):
        n, m = image.shape[0] - 2, image.shape[1] - 2
        out = sum(kernel[a, b] * image[a : a + n, b : b + m] for a in range(3) for b in range(3))
        # jnp.max over windows loses gradients under jit: XLA computes its argument twice, with other roundings, and compares.
        out = jnp.maximum(out, 0.0)
        pooled = jnp.maximum(
            jnp.maximum(out[::2, ::2], out[::2, 1::2]), jnp.maximum(out[1::2, ::2], out[1::2, 1::2])
        )
        return jnp.sum(pooled**2)


@program((8, 128, 1024), lambda r, n: (r(n), r(n) * np.exp(-0.5 * np.arange(n))))
class deconvolution:
    """Wiener's filter. Numba has no transforms: its author writes Cooley and Tukey's."""

    def arrays(y, h):
        Y, H = np.fft.rfft(y), np.fft.rfft(h)
        x = np.fft.irfft(Y * np.conj(H) / (np.abs(H) ** 2 + 0.1), len(y))
        return np.sum(x * x)

    def loops(y, h):
        n = y.size
        # The transform is unitary up to n: the squares of x are those of its spectrum over n.
        z = np.empty((2, n), np.complex128)
        for i in range(n):
            place, left, bits = 0, i, n
            while bits > 1:
                place = 2 * place + left % 2
                left //= 2
                bits //= 2
            z[0, place] = y[i]
            z[1, place] = h[i]
        for which in range(2):
            half = 1
            while half < n:
                for k in range(half):
                    turn = complex(math.cos(math.pi * k / half), -math.sin(math.pi * k / half))
                    for i in range(k, n, 2 * half):
                        odd = turn * z[which, i + half]
                        z[which, i + half] = z[which, i] - odd
                        z[which, i] = z[which, i] + odd
                half *= 2
        total = 0.0
        for i in range(n):
            Y, H = z[0, i], z[1, i]
            power = H.real * H.real + H.imag * H.imag
            X = Y * H.conjugate() / (power + 0.1)
            total += (X.real * X.real + X.imag * X.imag) / n
        return total

    def jax(y, h):
        Y, H = jnp.fft.rfft(y), jnp.fft.rfft(h)
        return jnp.sum(jnp.fft.irfft(Y * jnp.conj(H) / (jnp.abs(H) ** 2 + 0.1), len(y)) ** 2)


@program(((12, 2), (300, 4), (3000, 7)), lambda r, n, w: (r(n), r(2 * w + 1)))
class savitzky_golay:
    """A smoothing window on a signal that is reflected at its ends, and the residual."""

    def arrays(y, c):
        w = len(c) // 2
        padded = np.concatenate((y[w:0:-1], y, y[-2 : -w - 2 : -1]))
        residual = y - np.convolve(padded, c[::-1], mode="valid")
        return np.sum(residual**2)

    def loops(y, c):
        w, n = c.size // 2, y.size
        total = 0.0
        for i in range(n):
            s = y[i]
            for k in range(-w, w + 1):
                place = abs(i + k)
                if place >= n:
                    place = 2 * (n - 1) - place
                s -= c[k + w] * y[place]
            total += s * s
        return total

    def jax(y, c):
        w = len(c) // 2
        padded = jnp.concatenate((y[w:0:-1], y, y[-2 : -w - 2 : -1]))
        return jnp.sum((y - jnp.convolve(padded, c[::-1], mode="valid")) ** 2)
