"""Things that move."""

import numpy as np

from zoo.case import Case

BARI = "Bari test set for IVP solvers"


def pendulum(t, u, p):
    theta, omega = u
    b, c = p
    return [omega, -b * omega - c * np.sin(theta)]


def double_pendulum(t, u, p):  # matplotlib's example
    g, l1, l2, m1, m2 = p
    th1, w1, th2, w2 = u
    delta = th2 - th1
    den1 = (m1 + m2) * l1 - m2 * l1 * np.cos(delta) * np.cos(delta)
    dw1 = (
        m2 * l1 * w1 * w1 * np.sin(delta) * np.cos(delta)
        + m2 * g * np.sin(th2) * np.cos(delta)
        + m2 * l2 * w2 * w2 * np.sin(delta)
        - (m1 + m2) * g * np.sin(th1)
    ) / den1
    den2 = (l2 / l1) * den1
    dw2 = (
        -m2 * l2 * w2 * w2 * np.sin(delta) * np.cos(delta)
        + (m1 + m2) * g * np.sin(th1) * np.cos(delta)
        - (m1 + m2) * l1 * w1 * w1 * np.sin(delta)
        - (m1 + m2) * g * np.sin(th2)
    ) / den2
    return np.array([w1, dw1, w2, dw2])


def pleiades(t, w, p):
    x, y, v = w[:7], w[7:14], w[14:]
    dx = x[None, :] - x[:, None]
    dy = y[None, :] - y[:, None]
    r3 = (dx**2 + dy**2 + np.eye(7)) ** 1.5
    masses = p[0] * np.arange(1, 8)
    return np.concatenate([v, (dx / r3) @ masses, (dy / r3) @ masses])


def arenstorf(t, u, p):
    mu = p[0]
    x, y, vx, vy = u
    d1 = ((x + mu) ** 2 + y**2) ** 1.5
    d2 = ((x - (1 - mu)) ** 2 + y**2) ** 1.5
    return np.array(
        [
            vx,
            vy,
            x + 2 * vy - (1 - mu) * (x + mu) / d1 - mu * (x - (1 - mu)) / d2,
            y - 2 * vx - (1 - mu) * y / d1 - mu * y / d2,
        ]
    )


def three_bodies(t, u, p):  # the figure eight
    q, v = u[:6].reshape(3, 2), u[6:]
    a = np.zeros_like(q)
    for i in range(3):
        for j in range(3):
            if i != j:
                d = q[j] - q[i]
                a[i] += p[j] * d / np.linalg.norm(d) ** 3
    return np.concatenate([v, a.ravel()])


def van_der_pol(t, u, p):
    return np.array([u[1], p[0] * (1 - u[0] ** 2) * u[1] - u[0]])


def stiff_van_der_pol(t, u, p):  # scaled, as in the test set
    return np.array([u[1], ((1 - u[0] ** 2) * u[1] - u[0]) / p[0]])


def duffing(t, u, p):
    delta, alpha, beta, gamma, omega = p
    return np.array(
        [u[1], -delta * u[1] - alpha * u[0] - beta * u[0] ** 3 + gamma * np.cos(omega * t)]
    )


def lorenz(t, u, p):
    sigma, rho, beta = p
    x, y, z = u
    return np.array([sigma * (y - x), x * (rho - z) - y, x * y - beta * z])


def roessler(t, u, p):
    return np.array([-u[1] - u[2], u[0] + p[0] * u[1], p[1] + u[2] * (u[0] - p[2])])


def henon_heiles(t, u, p):
    x, y, px, py = u
    return np.array([px, py, -x - 2 * p[0] * x * y, -y - p[0] * (x * x - y * y)])


def rigid_body(t, u, p):
    moments = p
    return np.cross(moments * u, u) / moments


def projectile(t, u, p):  # drag by the norm of the speed
    drag, g = p
    v = u[2:]
    gravity = np.array([0.0, -g])
    return np.concatenate([v, gravity - drag * np.linalg.norm(v) * v])


def fall(t, u, p):
    return np.array([u[1], -p[0] - p[1] * np.abs(u[1]) * u[1]])


def spring(t, u, p):
    mass, damping, stiffness = p
    return np.array([u[1], (np.sin(t) - damping * u[1] - stiffness * u[0]) / mass])


def elastic_pendulum(t, u, p):
    k, length, g = p
    position, v = u[:2], u[2:]
    r = np.hypot(position[0], position[1])
    force = -k * (r - length) * position / r + np.array([0.0, -g])
    return np.concatenate([v, force])


def cart_pole(t, u, p):
    cart, pole, length, force = p
    x, theta, v, omega = u
    sin, cos = np.sin(theta), np.cos(theta)
    total = cart + pole * sin**2
    return np.array(
        [
            v,
            omega,
            (force * np.sin(2 * t) + pole * sin * (length * omega**2 + 9.81 * cos)) / total,
            (
                -force * np.sin(2 * t) * cos
                - pole * length * omega**2 * cos * sin
                - (cart + pole) * 9.81 * sin
            )
            / (length * total),
        ]
    )


def rocket(t, u, p):  # Goddard's, with thrust given
    thrust, drag, exhaust = p
    h, v, m = u
    resistance = drag * v**2 * np.exp(-500 * (h - 1) / 1000)
    return np.array([v, (thrust - resistance) / m - 1 / h**2, -thrust / exhaust])


def oblate(t, u, p):  # a satellite with J2
    mu, j2 = p
    r, v = u[:3], u[3:]
    d = np.sqrt(r @ r)
    factor = 1.5 * j2 * mu / d**5
    z2 = 5 * r[2] ** 2 / d**2
    bulge = factor * r * np.array([z2 - 1, z2 - 1, z2 - 3])
    return np.concatenate([v, -mu * r / d**3 + bulge])


def chain(t, u, p):  # Fermi, Pasta, Ulam
    n = 8
    q, v = u[:n], u[n:]
    ends = np.concatenate([[0.0], q, [0.0]])
    stretch = np.diff(ends)
    force = p[0] * stretch + p[1] * stretch**3
    return np.concatenate([v, np.diff(force)])


def quaternion(t, u, p):
    q, w = u[:4], u[4:]
    j1, j2, j3 = p
    return np.array(
        [
            0.5 * (-q[1] * w[0] - q[2] * w[1] - q[3] * w[2]),
            0.5 * (q[0] * w[0] + q[2] * w[2] - q[3] * w[1]),
            0.5 * (q[0] * w[1] - q[1] * w[2] + q[3] * w[0]),
            0.5 * (q[0] * w[2] + q[1] * w[1] - q[2] * w[0]),
            (j2 - j3) / j1 * w[1] * w[2],
            (j3 - j1) / j2 * w[2] * w[0],
            (j1 - j2) / j3 * w[0] * w[1],
        ]
    )


def bicycle(t, u, p):  # kinematic bicycle with sinusoidal steering
    x, y, yaw, speed = u
    wheelbase, amplitude, drag = p
    steer = amplitude * np.sin(t)
    return np.array(
        [
            speed * np.cos(yaw),
            speed * np.sin(yaw),
            speed * np.tan(steer) / wheelbase,
            1.0 - drag * speed**2,
        ]
    )


def pendulum_index_1(t, u, p):  # x, y, vx, vy, tension; the constraint differentiated twice
    x, y, vx, vy, tension = u
    return np.array(
        [
            vx,
            vy,
            -tension * x,
            -tension * y - p[0],
            vx**2 + vy**2 - tension * (x**2 + y**2) - p[0] * y,
        ]
    )


def pendulum_index_3(t, u, p):
    x, y, vx, vy, tension = u
    return np.array([vx, vy, -tension * x, -tension * y - p[0], x**2 + y**2 - 1.0])


def pendulum_index_2(t, u, p):
    x, y, vx, vy, tension = u
    return np.array([vx, vy, -tension * x, -tension * y - p[0], x * vx + y * vy])


def truck_mass(p):
    return np.diag([1.0, 1.0, p[0], p[1]])


def quarter_car(t, u, p):  # masses in the mass matrix, as mechanics writes it
    body, wheel, spring_rate, damping, tyre = p
    xb, xw, vb, vw = u
    road = 0.1 * np.sin(3 * t)
    force = spring_rate * (xb - xw) + damping * (vb - vw)
    return np.array([vb, vw, -force, force - tyre * (xw - road)])


BEAM = 10


def beam(t, u, p):  # Hairer and Wanner IV.1, ten elements; p[0]: the load
    n = BEAM
    theta, speed = u[:n], u[n:]
    load = np.where(t <= np.pi, p[0] * np.sin(t) ** 2, 0.0)
    fx, fy = -load, load
    left = np.concatenate([-theta[:1], theta[:-1]])
    right = np.concatenate([theta[1:], theta[-1:]])
    v = n**4 * (left - 2 * theta + right) + n**2 * (np.cos(theta) * fy - np.sin(theta) * fx)
    difference = theta[:-1] - theta[1:]
    cos, sin = -np.cos(difference), -np.sin(difference)

    # C tridiagonal, symmetric; D tridiagonal, antisymmetric
    diagonal = np.full(n, 2.0)
    diagonal[0], diagonal[-1] = 1.0, 3.0
    w = np.concatenate([sin * v[1:], [0.0]]) - np.concatenate([[0.0], sin * v[:-1]]) + speed**2
    c, d = [cos[0] / diagonal[0]], [w[0] / diagonal[0]]
    for i in range(1, n):
        m = diagonal[i] - cos[i - 1] * c[i - 1]
        if i < n - 1:
            c.append(cos[i] / m)
        d.append((w[i] - cos[i - 1] * d[i - 1]) / m)
    x = [d[-1]]
    for i in range(n - 2, -1, -1):
        x.insert(0, d[i] - c[i] * x[0])
    x = np.array(x)
    product = (
        diagonal * v + np.concatenate([cos * v[1:], [0.0]]) + np.concatenate([[0.0], cos * v[:-1]])
    )
    product = product + np.concatenate([sin * x[1:], [0.0]]) - np.concatenate([[0.0], sin * x[:-1]])
    return np.concatenate([speed, product])


POINTS = 20


def repulsion(q):
    d = q[:, None, :] - q[None, :, :]
    r2 = np.sum(d**2, axis=2) + np.eye(POINTS)
    return np.sum(d / r2[:, :, None], axis=1)


def fekete(t, y, p):  # points on a sphere that repel each other
    damping, strength = p
    n = 3 * POINTS
    q, v, tension = y[:n].reshape(-1, 3), y[n : 2 * n].reshape(-1, 3), y[2 * n :]
    a = -damping * v + 2 * tension[:, None] * q + strength * repulsion(q)
    return np.concatenate([v.ravel(), a.ravel(), np.sum(v**2 + q * a, axis=1)])


def fekete_index_2(t, y, p):  # as in the test set, with multipliers for both constraints
    damping, strength = p
    n = 3 * POINTS
    q, v = y[:n].reshape(-1, 3), y[n : 2 * n].reshape(-1, 3)
    tension, drift = y[2 * n : 2 * n + POINTS], y[2 * n + POINTS :]
    a = -damping * v + 2 * tension[:, None] * q + strength * repulsion(q)
    moved = v + 2 * drift[:, None] * q
    held = np.sum(q**2, axis=1) - 1.0
    return np.concatenate([moved.ravel(), a.ravel(), held, 2 * np.sum(q * v, axis=1)])


def on_a_sphere():
    """Return the start of the test set, with the tension that keeps the points on the sphere."""
    rings = [(3, np.pi / 13, 3 / 8), (7, np.pi / 29, 1 / 8), (6, np.pi / 7, -2 / 15)]
    q = []
    for count, turned, height in [*rings, (4, np.pi / 17, -3 / 10)]:
        alpha = 2 * np.pi * np.arange(1, count + 1) / count + turned
        beta = np.full(count, np.pi * height)
        q += [
            *np.column_stack(
                [np.cos(alpha) * np.cos(beta), np.sin(alpha) * np.cos(beta), np.sin(beta)]
            )
        ]
    q = np.array(q)
    tension = -np.sum(q * repulsion(q), axis=1) / 2
    return np.concatenate([q.ravel(), np.zeros(3 * POINTS), tension])


MOON = 0.012277471
EIGHT = [0.97000436, -0.24308753, -0.97000436, 0.24308753, 0.0, 0.0]
EIGHT += [0.466203685, 0.43236573, 0.466203685, 0.43236573, -0.93240737, -0.86473146]
SEVEN = [3, 3, -1, -3, 2, -2, 2, 3, -3, 2, 0, 0, -4, 4.0]
SEVEN += [0, 0, 0, 0, 0, 1.75, -1.5, 0, 0, 0, -1.25, 1, 0, 0]


def bubble(t, u, udot, p):
    """Rayleigh and Plesset's equation as it is written: R R'' + 3/2 R'^2 = ..., F(t, u, u') = 0."""
    radius, speed = u[0], u[1]
    pressure = p[0] / radius ** (3 * p[1]) - 1 + p[3] * np.sin(2 * t)
    return np.array(
        [udot[0] - speed, radius * udot[1] + 1.5 * speed**2 - pressure + p[2] * speed / radius]
    )


def halo(t, u, p):
    x, y, z, vx, vy, vz = [u[k] for k in range(6)]
    near = ((x + p[0]) ** 2 + y**2 + z**2) ** 1.5
    far = ((x - 1 + p[0]) ** 2 + y**2 + z**2) ** 1.5
    pull, other = (1 - p[0]) / near, p[0] / far
    return np.array(
        [
            *(vx, vy, vz, 2 * vy + x - pull * (x + p[0]) - other * (x - 1 + p[0])),
            *(-2 * vx + y - (pull + other) * y, -(pull + other) * z),
        ]
    )


CASES = [
    Case(
        "Damped pendulum",
        "SciPy, odeint",
        rhs=pendulum,
        u0=[np.pi - 0.1, 0.0],
        p={"b": 0.25, "c": 5.0},
        span=(0.0, 10.0),
        terminal=lambda t, u, p: u[0],
    ),
    Case(
        "Double pendulum",
        "matplotlib gallery",
        rhs=double_pendulum,
        u0=[2.0943951, 0.0, -0.17453293, 0.0],
        p={"g": 9.8, "l1": 1.0, "l2": 1.0, "m1": 1.0, "m2": 1.0},
        span=(0.0, 2.5),
        terminal=lambda t, u, p: np.cos(u[0]) + np.cos(u[2]),
    ),
    Case(
        "Pleiades",
        BARI,
        truth_tolerance=3e-11,
        rhs=pleiades,
        u0=SEVEN,
        p={"G": 1.0},
        span=(0.0, 3.0),
        method="rk8vr",
        rtol=1e-9,
        terminal=lambda t, u, p: u[0],
        published={
            0: 0.3706139143970502,
            1: 0.3237284092057233e1,
            2: -0.3222559032418324e1,
            3: 0.6597091455775310,
        },
        published_digits=1e-7,
        n_directions=5,
    ),
    Case(
        "Arenstorf orbit",
        "Hairer, Norsett, Wanner I",
        rhs=arenstorf,
        u0=[0.994, 0.0, 0.0, -2.0015851063790825],
        p={"mu": MOON},
        span=(0.0, 8.0),
        method="rk8vr",
        rtol=1e-9,
        atol=1e-12,
        terminal=lambda t, u, p: u[0],
    ),
    Case(
        "Figure eight of three bodies",
        "Chenciner and Montgomery",
        rhs=three_bodies,
        u0=EIGHT,
        p={"m1": 1.0, "m2": 1.0, "m3": 1.0},
        span=(0.0, 6.32591398),
        method="rk8vr",
        terminal=lambda t, u, p: u[0] ** 2 + u[1] ** 2,
    ),
    Case(
        "Van der Pol's oscillator",
        "MATLAB, SciPy, PETSc ex16",
        rhs=van_der_pol,
        u0=[2.0, 0.0],
        p={"mu": 1.0},
        span=(0.0, 20.0),
        terminal=lambda t, u, p: u[0],
    ),
    Case(
        "VDPOL",
        BARI,
        truth_tolerance=1e-12,
        rhs=stiff_van_der_pol,
        u0=[2.0, 0.0],
        p={"eps": 1e-6},
        span=(0.0, 2.0),
        method="esdirk5",
        # its derivatives reach 1/eps and 1/eps^2 at the jumps: of the second ones nothing is left
        # behind them in double precision, not even in the truth
        accuracy=(1e-6, 1e-5, np.inf),
        terminal=lambda t, u, p: u[0],
        published={0: 0.1706167732170483e1, 1: -0.8928097010247975},
    ),
    Case(
        "Van der Pol, mu = 100, over jumps",
        "MATLAB vdp100, PETSc ex20",
        truth_tolerance=1e-12,
        rhs=van_der_pol,
        u0=[2.0, 0.0],
        p={"mu": 100.0},
        span=(0.0, 200.0),
        method="esdirk4",
        rtol=1e-7,
        terminal=lambda t, u, p: u[0],
    ),
    Case(
        "Duffing's oscillator",
        "SciML",
        rhs=duffing,
        u0=[1.0, 0.0],
        p={"delta": 0.3, "alpha": -1.0, "beta": 1.0, "gamma": 0.2, "omega": 1.2},
        span=(0.0, 15.0),
        running=lambda t, u, p: u[0] ** 2,
    ),
    Case(
        "Lorenz",
        "SciPy, diffrax, SciML, PETSc",
        rhs=lorenz,
        u0=[1.0, 0.0, 0.0],
        p={"sigma": 10.0, "rho": 28.0, "beta": 8 / 3},
        span=(0.0, 3.0),
        terminal=lambda t, u, p: u[2],
    ),
    Case(
        "Roessler",
        "SciML",
        rhs=roessler,
        u0=[1.0, 1.0, 1.0],
        p={"a": 0.2, "b": 0.2, "c": 5.7},
        span=(0.0, 20.0),
        terminal=lambda t, u, p: u[0],
    ),
    Case(
        "Henon-Heiles",
        "SciML, Hairer, Lubich, Wanner",
        rhs=henon_heiles,
        u0=[0.1, 0.2, 0.3, 0.1],
        p={"lambda": 1.0},
        span=(0.0, 20.0),
        method="rk8vr",
        terminal=lambda t, u, p: u[0],
    ),
    Case(
        "Rigid body",
        "Euler's equations; MATLAB rigidode",
        rhs=rigid_body,
        u0=[1.0, 0.1, 0.9],
        p={"I1": 0.5, "I2": 2.0, "I3": 3.0},
        span=(0.0, 10.0),
        terminal=lambda t, u, p: u[1],
    ),
    Case(
        "Projectile with drag",
        "text book",
        rhs=projectile,
        u0=[0.0, 0.0, 20.0, 30.0],
        p={"drag": 0.02, "g": 9.81},
        span=(0.0, 3.0),
        terminal=lambda t, u, p: u[0],
    ),
    Case(
        "Fall from rest with drag",
        "text book",
        rhs=fall,
        u0=[100.0, 0.0],
        p={"g": 9.81, "drag": 0.1},
        span=(0.0, 3.0),
        terminal=lambda t, u, p: u[0],
    ),
    Case(
        "Driven spring",
        "text book",
        rhs=spring,
        u0=[1.0, 0.0],
        p={"mass": 1.0, "damping": 0.2, "stiffness": 4.0},
        span=(0.0, 10.0),
        method="rk4",
        rtol=None,
        dt=0.01,
        accuracy=(5e-7, 1e-6, 1e-6),  # the value's error is 3e-7, a sixteenth of it for dt / 2
        terminal=lambda t, u, p: u[0],
    ),
    Case(
        "Elastic pendulum",
        "text book",
        rhs=elastic_pendulum,
        u0=[1.2, 0.0, 0.0, 0.0],
        p={"k": 40.0, "length": 1.0, "g": 9.81},
        span=(0.0, 5.0),
        terminal=lambda t, u, p: u[0],
    ),
    Case(
        "Cart with pole",
        "CasADi, do-mpc",
        rhs=cart_pole,
        u0=[0.0, 0.3, 0.0, 0.0],
        p={"cart": 1.0, "pole": 0.3, "length": 0.5, "force": 2.0},
        span=(0.0, 4.0),
        running=lambda t, u, p: u[0] ** 2 + u[1] ** 2,
    ),
    Case(
        "Goddard's rocket",
        "COPS, CasADi",
        rhs=rocket,
        u0=[1.0, 0.0, 1.0],
        p={"thrust": 3.5, "drag": 310.0, "exhaust": 0.5},
        span=(0.0, 0.07),
        terminal=lambda t, u, p: u[0],
    ),
    Case(
        "Satellite of an oblate planet",
        "text book",
        rhs=oblate,
        u0=[1.0, 0.1, 0.2, 0.1, 0.9, 0.4],
        p={"mu": 1.0, "J2": 1e-2},
        span=(0.0, 10.0),
        method="rk8vr",
        terminal=lambda t, u, p: u[2],
    ),
    Case(
        "Chain of Fermi, Pasta, Ulam",
        "Hairer, Lubich, Wanner",
        rhs=chain,
        u0=[*np.sin(np.pi * np.arange(1, 9) / 9), *np.zeros(8)],
        p={"k": 1.0, "beta": 0.3},
        span=(0.0, 20.0),
        terminal=lambda t, u, p: u[0] ** 2,
    ),
    Case(
        "Tumbling body by quaternions",
        "text book",
        rhs=quaternion,
        u0=[1.0, 0.0, 0.0, 0.0, 0.3, 1.5, 0.2],
        p={"J1": 1.0, "J2": 2.0, "J3": 3.0},
        span=(0.0, 8.0),
        terminal=lambda t, u, p: u[0],
    ),
    Case(
        "Kinematic bicycle",
        "CasADi, acados",
        rhs=bicycle,
        u0=[0.0, 0.0, 0.1, 1.0],
        p={"wheelbase": 2.5, "amplitude": 0.4, "drag": 0.1},
        span=(0.0, 8.0),
        method="rk4",
        rtol=None,
        dt=0.02,
        accuracy=(1e-6, 1e-5, 1e-5),
        terminal=lambda t, u, p: u[1],
    ),
    Case(
        "Pendulum, index 1",
        "Hairer and Wanner II",
        rhs=pendulum_index_1,
        mass=np.diag([1.0, 1, 1, 1, 0]),
        u0=[0.6, -0.8, 0.0, 0.0, 0.8 * 9.81],
        p={"g": 9.81},
        span=(0.0, 2.0),
        method="esdirk5",
        terminal=lambda t, u, p: u[4],
    ),
    Case(
        "Pendulum, index 2",
        "Hairer and Wanner II",
        rhs=pendulum_index_2,
        mass=np.diag([1.0, 1, 1, 1, 0]),
        u0=[0.6, -0.8, 0.0, 0.0, 0.8 * 9.81],
        p={"g": 9.81},
        span=(0.0, 1.0),
        method="esdirk5",
        fixed_start=True,
        terminal=lambda t, u, p: u[0],
    ),
    Case(
        "Pendulum, index 3",
        "Hairer and Wanner II; CasADi, SciML",
        truth_of="Pendulum, index 2",
        rhs=pendulum_index_3,
        mass=np.diag([1.0, 1, 1, 1, 0]),
        u0=[0.6, -0.8, 0.0, 0.0, 0.8 * 9.81],
        p={"g": 9.81},
        span=(0.0, 1.0),
        method="esdirk5",
        fixed_start=True,
        terminal=lambda t, u, p: u[0],
    ),
    Case(
        "Quarter car",
        "text book; the masses in M(p)",
        rhs=quarter_car,
        mass=truck_mass,
        u0=[0.05, 0.02, 0.0, 0.0],
        p={"body": 2.5, "wheel": 0.4, "spring": 16.0, "damping": 1.5, "tyre": 160.0},
        span=(0.0, 3.0),
        method="cn",
        rtol=None,
        dt=1e-3,
        accuracy=(1e-3, 1e-3, 1e-3),
        terminal=lambda t, u, p: u[0],
    ),
    Case(
        "Beam of ten elements",
        BARI + ", smaller",
        rhs=beam,
        u0=np.zeros(20),
        p={"load": 1.5},
        span=(0.0, 5.0),
        method="esdirk5",
        rtol=1e-6,
        breakpoints=[np.pi],
        terminal=lambda t, u, p: u[9],
        fixed_start=True,
    ),
    Case(
        "Fekete, index 1",
        BARI + "; the constraints differentiated twice",
        rhs=fekete,
        mass=np.diag([*np.ones(6 * POINTS), *np.zeros(POINTS)]),
        u0=on_a_sphere(),
        p={"damping": 0.5, "strength": 1.0},
        span=(0.0, 1000.0),
        method="esdirk5",
        terminal=lambda t, u, p: u[0],
        published={0: -0.4070263380333202, 1: 0.3463758772791802, 2: 0.8451942450030429},
        published_digits=1e-6,
    ),
    Case(
        "Fekete, index 2",
        BARI,
        truth_of="Fekete, index 1",
        rhs=fekete_index_2,
        mass=np.diag([*np.ones(6 * POINTS), *np.zeros(2 * POINTS)]),
        u0=[*on_a_sphere(), *np.zeros(POINTS)],
        p={"damping": 0.5, "strength": 1.0},
        span=(0.0, 1000.0),
        method="esdirk5",
        fixed_start=True,
        terminal=lambda t, u, p: u[0],
    ),
    Case(
        "Bubble in a sound field, F(t, u, u')",
        "Rayleigh, Plesset; text book",
        residual=bubble,
        u0=[1.0, 0.1],
        p={"gas": 1.0, "exponent": 1.4, "viscosity": 0.3, "sound": 0.3},
        span=(0.0, 6.0),
        method="cn",
        rtol=None,
        dt=0.005,
        accuracy=(1e-4, 1e-3, 1e-2),
        terminal=lambda t, u, p: u[0] + u[1],
    ),
    Case(
        "Halo orbit of Earth and Moon",
        "restricted problem of three bodies; Howell",
        rhs=halo,
        u0=[0.8234, 0.001, 0.0224, 0.001, 0.1343, 0.001],
        p={"mu": 0.01215},
        span=(0.0, 2.0),
        method="rk8vr",
        terminal=lambda t, u, p: u[0] + u[4],
    ),
]
