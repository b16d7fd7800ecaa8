"""Vehicles, plants, reactors, lasers."""

import numpy as np

from zoo.case import Case


def wheelset(t, u, p):  # lateral shift and yaw; creep forces that saturate
    speed, conicity, creep, friction = p
    y, yaw, v, rate = u
    mass, inertia, half_gauge, radius, load, spring = 1500.0, 900.0, 0.75, 0.45, 8e4, 2e5
    along = conicity * y / radius + half_gauge * rate / speed
    across = v / speed - yaw
    size = np.sqrt(along**2 + across**2 + 1e-12)
    limit = friction * load
    force = limit * np.tanh(creep * size / limit) / size
    return np.array(
        [
            v,
            rate,
            (-2 * force * across - spring * y) / mass,
            (-2 * half_gauge * force * along - spring * yaw) / inertia,
        ]
    )


def crane(t, u, p):  # a trolley under control, while the rope becomes shorter
    kp, kd, target, hoist = p
    x, v, angle, rate, length, winding = u
    acceleration = kp * (target - x) - kd * v
    return np.array(
        [
            v,
            acceleration,
            rate,
            -(2 * winding * rate + acceleration * np.cos(angle) + 9.81 * np.sin(angle)) / length,
            winding,
            4.0 * (hoist - length) - 4.0 * winding,
        ]
    )


def ship(t, u, p):  # the righting arm changes with the waves
    damping, omega, depth, encounter = p
    roll, rate = u
    stiffness = omega**2 * (1 + depth * np.cos(encounter * t))
    return [rate, -2 * damping * omega * rate - stiffness * roll + 0.1 * roll**3]


def car(t, u, p):  # one track, tyres by the magic formula, a slalom
    stiffness, shape, peak, steer = p
    vy, yaw_rate, yaw, y = u
    vx, mass, inertia, front, rear = 25.0, 1500.0, 2500.0, 1.2, 1.5
    angle = steer * np.sin(3.0 * t)
    slip_front = angle - np.arctan2(vy + front * yaw_rate, vx)
    slip_rear = -np.arctan2(vy - rear * yaw_rate, vx)
    weight = mass * 9.81 / (front + rear)
    f_front = peak * np.sin(shape * np.arctan(stiffness * slip_front)) * weight * rear
    f_rear = peak * np.sin(shape * np.arctan(stiffness * slip_rear)) * weight * front
    return [
        (f_front * np.cos(angle) + f_rear) / mass - vx * yaw_rate,
        (front * f_front * np.cos(angle) - rear * f_rear) / inertia,
        yaw_rate,
        vx * np.sin(yaw) + vy * np.cos(yaw),
    ]


def column(t, u, p):  # liquid on ten trays, in condenser and reboiler
    alpha, reflux, boilup, feed, fraction = p
    vapour = alpha * u / (1 + (alpha - 1) * u)
    n = len(u)
    lower = reflux + feed
    out = np.zeros_like(u)
    out[0] = boilup * (vapour[1] - u[0]) / 5.0
    for i in range(1, n - 1):
        down = reflux * u[i - 1] if i <= n // 2 else lower * u[i - 1]
        away = reflux * u[i] if i < n // 2 else lower * u[i]
        out[i] = (down - away + boilup * (vapour[i + 1] - vapour[i])) / 0.5
    out[n // 2] += feed * fraction / 0.5
    bottom = lower - boilup
    out[n - 1] = (lower * u[n - 2] - bottom * u[n - 1] - boilup * vapour[n - 1]) / 5.0
    return out


SHARES = np.array([0.00021, 0.00142, 0.00127, 0.00257, 0.00075, 0.00027])
DECAYS = np.array([0.0124, 0.0305, 0.111, 0.301, 1.14, 3.01])


def reactor(t, u, p):  # neutrons, six groups of precursors, temperature, iodine, xenon
    inserted, feedback, generation, cooling = p
    neutrons, temperature, iodine, xenon = u[0], u[7], u[8], u[9]
    precursors = u[1:7]
    reactivity = inserted - feedback * (temperature - 1.0) - 0.02 * (xenon - 1.0)
    growth = (reactivity - 0.00649) / generation * neutrons
    return np.concatenate(
        [
            np.array([growth + np.sum(DECAYS * precursors)]),
            SHARES / generation * neutrons - DECAYS * precursors,
            np.array(
                [
                    cooling * (neutrons - temperature),
                    2.9e-5 * (neutrons - iodine),
                    2.1e-5 * iodine + 1e-4 * (0.3 * neutrons - xenon * (0.1 + neutrons)),
                ]
            ),
        ]
    )


def pipeline(t, u, p):  # isothermal Euler equations, staggered, pressures in bar
    friction, inlet, demand, sound = p
    n, length = 10, 5.0
    pressure, flow = u[:n], u[n:]
    taken = demand * (1 + 0.3 * np.sin(2 * np.pi * t))  # hours
    before = np.concatenate([np.array([inlet]), pressure[:-1]])
    after = np.concatenate([flow[1:], np.array([taken])])
    middle = 0.5 * (before + pressure)
    drag = friction * flow * np.abs(flow) / middle
    return np.concatenate(
        [-sound * (after - flow) / length, -sound * ((pressure - before) / length + drag)]
    )


def laser(
    t, u, p
):  # carriers and photons of a diode, in 1e24 and 1e20 per cubic metre, nanoseconds
    current, gain, lifetime, spontaneous = p
    n, s = u
    stimulated = gain * (n - 1.0) / (1 + 1e-3 * s) * s
    return [
        current - n / lifetime - 1e-4 * stimulated,
        0.3 * stimulated - s / 2e-3 + 0.3e4 * spontaneous * n / lifetime,
    ]


def bloch(t, u, p):
    t1, t2, rabi, detuning = p
    drive = rabi * np.exp(-(((t - 2.0) / 0.5) ** 2))
    x, y, z = u
    return [
        detuning * y - x / t2,
        -detuning * x + drive * z - y / t2,
        -drive * y - (z - 1) / t1,
    ]


def hydration(t, u, p):  # age at 23 degrees Celsius in hours, and temperature of concrete
    final, time, shape, activation = p
    age, temperature = u
    pace = np.exp(-activation / 8.314 * (1 / (temperature + 273.15) - 1 / 296.15))
    slow = (time / age) ** shape
    return np.array([pace, 45.0 * pace * final * shape / age * slow * np.exp(-slow)])


CASES = [
    Case(
        "Wheelset on straight track",
        "text book (Klingel; Wickens)",
        rhs=wheelset,
        u0=[0.004, 0.001, 0.01, 0.01],
        p={"speed": 30.0, "conicity": 0.15, "creep": 5e6, "friction": 0.3},
        span=(0.0, 1.0),
        terminal=lambda t, u, p: u[0],
    ),
    Case(
        "Crane that hoists",
        "text book",
        rhs=crane,
        u0=[0.1, 0.1, 0.05, 0.01, 8.0, 0.1],
        p={"kp": 0.4, "kd": 1.1, "target": 10.0, "hoist": 4.0},
        span=(0.0, 20.0),
        terminal=lambda t, u, p: u[0] + u[4] * np.sin(u[2]),
    ),
    Case(
        "Parametric rolling of a ship",
        "text book (Mathieu)",
        rhs=ship,
        u0=[0.02, 0.01],
        p={"damping": 0.02, "omega": 0.5, "depth": 0.35, "encounter": 1.0},
        span=(0.0, 60.0),
        terminal=lambda t, u, p: u[0] ** 2 + 4.0 * u[1] ** 2,
    ),
    Case(
        "Slalom on Pacejka's tyres",
        "Pacejka; CasADi, acados",
        rhs=car,
        u0=[0.1, 0.05, 0.02, 1.0],
        p={"stiffness": 10.0, "shape": 1.9, "peak": 0.9, "steer": 0.08},
        span=(0.0, 4.0),
        terminal=lambda t, u, p: u[3],
    ),
    Case(
        "Distillation of two components",
        "Skogestad; do-mpc, APMonitor",
        rhs=column,
        u0=np.linspace(0.9, 0.1, 12),
        p={"alpha": 1.8, "reflux": 2.7, "boilup": 3.2, "feed": 1.0, "fraction": 0.5},
        span=(0.0, 20.0),
        method="esdirk5",
        terminal=lambda t, u, p: u[0] - u[11],
    ),
    Case(
        "Reactor with xenon",
        "text book (point kinetics, six groups)",
        rhs=reactor,
        u0=[1.0, *(SHARES / DECAYS / 1e-4), 1.0, 1.0, 1.0],
        p={"inserted": 0.002, "feedback": 0.01, "generation": 1e-4, "cooling": 0.1},
        span=(0.0, 1000.0),
        method="esdirk5",
        terminal=lambda t, u, p: u[0],
    ),
    Case(
        "Gas pipeline",
        "text book (isothermal Euler equations)",
        rhs=pipeline,
        u0=[*np.linspace(59.8, 58.0, 10), *[10.0] * 10],
        p={"friction": 0.13, "inlet": 60.0, "demand": 10.0, "sound": 40.0},
        span=(0.0, 2.0),
        method="esdirk5",
        terminal=lambda t, u, p: u[9],
    ),
    Case(
        "Laser diode switched on",
        "text book (rate equations)",
        rhs=laser,
        u0=[1.0, 0.01],
        p={"current": 1.9, "gain": 1500.0, "lifetime": 2.0, "spontaneous": 1e-4},
        span=(0.0, 1.5),
        method="esdirk5",
        terminal=lambda t, u, p: u[1],
    ),
    Case(
        "Bloch equations under a pulse",
        "QuTiP; text book",
        rhs=bloch,
        u0=[0.1, 0.1, 0.9],
        p={"t1": 5.0, "t2": 1.5, "rabi": 3.5, "detuning": 0.8},
        span=(0.0, 6.0),
        terminal=lambda t, u, p: u[1],
    ),
    Case(
        "Concrete that hardens without losing heat",
        "text book (Freiesleben Hansen and Pedersen)",
        rhs=hydration,
        u0=[0.5, 20.0],
        p={"final": 0.75, "time": 14.0, "shape": 0.9, "activation": 4e4},
        span=(0.0, 72.0),
        method="auto",
        terminal=lambda t, u, p: u[1],
    ),
]
