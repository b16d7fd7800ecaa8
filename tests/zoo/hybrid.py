"""Impacts, switches, doses, spikes; their truth is a closed form or a program of its own."""

from itertools import pairwise

import mpmath as mp
import numpy as np
from scipy.integrate import solve_ivp

from zoo.case import Case

# ---- closed forms --------------------------------------------------------------------------------


def ball(t, u, p):
    return np.array([u[1], -p[0]])


def ball_height(x, end=2.0):
    height, speed, g, restitution = x
    t = mp.mpf(0)
    while True:
        flight = (speed + mp.sqrt(speed**2 + 2 * g * height)) / g
        if t + flight > end:
            rest = end - t
            return height + speed * rest - g * rest**2 / 2
        t, height, speed = t + flight, 0, restitution * (g * flight - speed)


def second_bounce(x):
    height, speed, g, restitution = x
    first = (speed + mp.sqrt(speed**2 + 2 * g * height)) / g
    return first + 2 * restitution * (first - speed / g)


def room(t, u, p):
    return -p[0] * (u - 5.0)


def heated_room(t, u, p):
    return -p[0] * (u - 5.0) + p[1]


def thermostat(x, end=12.0):
    temperature, k, power, lower, upper = x
    t, on = mp.mpf(0), True
    while True:
        rest = 5 + (power / k if on else 0)
        goal = upper if on else lower
        switch = mp.log((temperature - rest) / (goal - rest)) / k
        if t + switch > end:
            return rest + (temperature - rest) * mp.exp(-k * (end - t))
        t, temperature, on = t + switch, goal, not on


def membrane(t, u, p):
    return (p[1] - u) / p[0]


PERIOD = 2e-5


def charging(t, u, p):
    return np.array([p[0] + 0.0 * u[0]])


def discharging(t, u, p):
    return np.array([-p[1] + 0.0 * u[0]])


def saw_tooth_beyond(t, u, p):
    return t / PERIOD - np.floor(t / PERIOD) - (p[2] - p[3] * u[0])


def pulses(x):
    level, up, down, duty, gain = x
    period = mp.mpf(PERIOD)
    for _ in range(30):
        on = (duty - gain * level) / (1 / period + gain * up)
        level += up * on - down * (period - on)
    return level


def cell_with_leak(t, u, p):
    return -p[0] - p[1] * u


def voltage_above_cut_off(t, u, p):
    with np.errstate(invalid="ignore"):
        return 3.7 + p[2] * np.log(u[0]) - 3.4


def empty_cell(x):
    charge, current, leak, slope = x
    last = mp.exp((mp.mpf(3.4) - mp.mpf(3.7)) / slope)
    return mp.log((charge + current / leak) / (last + current / leak)) / leak


def third_spike(x):
    u, tau, drive = x
    first = tau * mp.log((drive - u) / (drive - 1))
    return first + 2 * tau * mp.log(drive / (drive - 1))


def last_potential(x, end=10.0):
    u, tau, drive = x
    first = tau * mp.log((drive - u) / (drive - 1))
    period = tau * mp.log(drive / (drive - 1))
    since = mp.mpf(end) - first
    since -= period * mp.floor(since / period)
    return drive * (1 - mp.exp(-since / tau))


def two_compartments(t, u, p):
    return np.array([-p[0] * u[0], p[0] * u[0] - p[1] * u[1]])


def doses(x, end=24.0):
    gut, blood, ka, ke, dose = x
    t = mp.mpf(0)
    for after in (6, 12, 18, end):
        h = after - t
        decayed = gut * mp.exp(-ka * h)
        blood = blood * mp.exp(-ke * h) + ka * gut / (ka - ke) * (mp.exp(-ke * h) - mp.exp(-ka * h))
        gut, t = decayed + (dose if after < end else 0), after
    return blood


def tank(t, u, p):
    return np.array([-p[0] * np.sqrt(u[0])])


def draining(x, end=3.0):  # the valve closes by half where the level is 1
    level, opening = x
    t = 2 * (mp.sqrt(level) - 1) / opening
    return (1 - opening / 2 * (end - t) / 2) ** 2


def cell(t, u, p):
    return p[0] * u


def division(x, end=5.0):
    size, rate, largest = x
    t = mp.log(largest / size) / rate
    while True:
        period = mp.log(2) / rate
        if t + period > end:
            return largest / 2 * mp.exp(rate * (end - t))
        t += period


def shot(t, u, p):  # SciPy's cannon
    return [u[1], -p[0]]


def landing(x):
    height, speed, g = x
    return (speed + mp.sqrt(speed**2 + 2 * g * height)) / g


def switched_filter(t, u, p):
    r, inductance, capacity = p[0], p[1], p[2]
    return np.array([-u[1] / inductance, u[0] / capacity - u[1] / (r * capacity)])


def driven_filter(t, u, p):
    r, inductance, capacity = p[0], p[1], p[2]
    return np.array([(5.0 - u[1]) / inductance, u[0] / capacity - u[1] / (r * capacity)])


def converter(x, end=2.0):
    current, voltage, r, inductance, capacity, off, on = x
    a = mp.matrix([[0, -1 / inductance], [1 / capacity, -1 / (r * capacity)]])
    u, t = mp.matrix([current, voltage]), mp.mpf(0)
    for time, source in ((off, 5), (on, 0), (mp.mpf(end), 5)):
        rest = mp.matrix([source / r, source])
        u, t = rest + mp.expm(a * (time - t)) * (u - rest), time
    return u[1]


def oscillator(t, u, p):
    return np.array([u[1], -p[0] * u[0]])


def wall(x, end=8.0):  # at 0.5, restitution p[1]
    place, speed, stiffness, restitution = x
    w, t = mp.sqrt(stiffness), mp.mpf(0)
    while True:
        size, phase = mp.sqrt(place**2 + (speed / w) ** 2), mp.atan2(speed / w, place)
        hit = mp.inf
        if size > mp.mpf("0.5"):
            # place = size cos(w s - phase), rising where its sine is negative
            hit = (phase - mp.acos(mp.mpf("0.5") / size)) / w
            while hit < mp.mpf(10) ** -20:
                hit += 2 * mp.pi / w
        if t + hit > end:
            return size * mp.cos(w * (end - t) - phase)
        t += hit
        speed = -restitution * (-size * w * mp.sin(w * hit - phase))
        place = mp.mpf("0.5")


def sliding(t, u, p):  # a block slows down by dry friction, and stays
    return np.array([u[1], -p[0]])


def stuck(t, u, p):
    return np.array([0 * u[0], 0 * u[1]])


def stopping(x):
    place, speed, friction = x
    return place + speed**2 / (2 * friction)


def limited(t, u, p):  # no event: a kink in the rate
    return p[0] - p[1] * np.maximum(u - 1.0, 0.0)


def limiter(x, end=3.0):
    level, inflow, outflow = x
    t = (1 - level) / inflow
    return 1 + inflow / outflow * (1 - mp.exp(-outflow * (end - t)))


# ---- programs of their own -----------------------------------------------------------------------


def follow(f, t, x, end, when, reset):
    """Integrate with DOP853; ``when`` falls to zero at events, found by Newton's method."""
    options = {"method": "DOP853", "rtol": 1e-13, "atol": 1e-14}

    def event(t, x):
        return when(t, x)

    event.direction, event.terminal = -1, True
    while True:
        solution = solve_ivp(f, (t, end), x, events=event, **options)
        if solution.status == 0:
            return solution.y[:, -1]
        hit = solution.t[-1]
        for _ in range(3):
            at = solve_ivp(f, (t, hit), x, **options).y[:, -1]
            rate = (when(hit, at + 1e-7 * np.asarray(f(hit, at))) - when(hit, at)) / 1e-7
            hit -= when(hit, at) / rate
        at = solve_ivp(f, (t, hit), x, **options).y[:, -1]
        t, x = hit, np.asarray(reset(at))


def izhikevich(t, u, p):
    v, w = u
    return np.array([0.04 * v**2 + 5 * v + 140 - w + p[2], p[0] * (p[1] * v - w)])


def izhikevich_program(x):
    p = x[2:]

    def reset(u):
        return [p[3], u[1] + p[4]]

    return follow(
        lambda t, u: izhikevich(t, u, p), 0.0, x[:2], 12.0, lambda t, u: 30 - u[0], reset
    )[1]


def ball_with_drag(t, u, p):
    v = u[2:]
    return np.concatenate([v, np.array([0.0, -9.81]) - p[0] * np.sqrt(v @ v) * v])


def ball_with_drag_program(x):
    p = x[4:]

    def reset(u):
        return u * [1, 0, 1, -p[1]]

    return follow(lambda t, u: ball_with_drag(t, u, p), 0.0, x[:4], 2.0, lambda t, u: u[1], reset)[
        0
    ]


def harvested(t, u, p):
    x, y = u
    return np.array([p[0] * x * (1 - x / 4) - x * y, 0.5 * x * y - p[1] * y])


def harvest_program(x):
    p = x[2:]
    return follow(
        lambda t, u: harvested(t, u, p),
        0.0,
        x[:2],
        10.0,
        lambda t, u: 1.2 - u[0],
        lambda u: [p[2] * u[0], u[1]],
    )[1]


def crack(n, u, p):  # its length over the cycles of a load, by Paris' law
    return p[0] * (p[2] * np.sqrt(np.pi * u)) ** p[1]


def cycles_to_failure(x):
    length, factor, power, stress, critical = x
    rest = 1 - power / 2
    grown = (critical**rest - length**rest) / rest
    return grown / (factor * (stress * mp.sqrt(mp.pi)) ** power)


def avalanche(t, u, p):  # a block on Voellmy's friction, on a slope that becomes flat
    x, v = u
    slope = np.arctan(0.4 * np.exp(-x / 1000.0))
    pull = np.sin(slope) - p[0] * np.cos(slope) - v**2 / (p[1] * p[2])
    return np.array([v * np.cos(slope), 9.81 * pull])


def run_out(x):
    def stands(t, u):
        return u[1]

    stands.terminal, stands.direction = True, -1
    options = {"events": stands, "rtol": 3e-14, "atol": 1e-13}
    return solve_ivp(lambda t, u: avalanche(t, u, x[2:]), (0, 500), x[:2], "DOP853", **options).y[
        0, -1
    ]


def rolling(t, u, p):  # a wheel without a rim, on one of its spokes
    return np.array([u[1], p[0] * np.sin(u[0])])


def next_spoke(t, u, p):
    return np.array([p[2] - p[1], np.cos(2 * p[1]) * u[1]])


def rolling_program(x):
    p = x[2:]
    return follow(
        lambda t, u: rolling(t, u, p),
        0.0,
        x[:2],
        2.5,
        lambda t, u: p[2] + p[1] - u[0],
        lambda u: next_spoke(0.0, u, p),
    )[1]


def above_paddle(t, u, p):
    return u[0] - p[1] * np.sin(p[2] * t)


def hit_by_paddle(t, u, p):
    speed = p[1] * p[2] * np.cos(p[2] * t)
    return np.array([u[0], (1 + p[3]) * speed - p[3] * u[1]])


def third_hit(x):
    height, speed, g, size, frequency, restitution = x
    t = mp.mpf(0)
    for _ in range(3):

        def gap(s, t=t, height=height, speed=speed):
            paddle = size * mp.sin(frequency * (t + s))
            return height + speed * s - g * s**2 / 2 - paddle

        s = mp.mpf("0.01")
        while gap(s) > 0:
            s += mp.mpf("0.01")
        s = mp.findroot(gap, s)
        t, speed = t + s, speed - g * s
        height = size * mp.sin(frequency * t)
        paddle = size * frequency * mp.cos(frequency * t)
        speed = (1 + restitution) * paddle - restitution * speed
    return t


def snow_and_melt(t, p):  # in millimetres of water a day, t in days
    warm = (p[1] - p[2] * np.cos(2 * np.pi * t / 365.0)) / 0.5
    return p[3] / (1 + np.exp(warm)), p[0] * 0.5 * np.log(1 + np.exp(warm))


def under_snow(t, u, p):  # the pack, and the water in the ground
    snow, melt = snow_and_melt(t, p)
    return np.array([snow - melt, melt - 0.05 * u[1]])


def bare(t, u, p):
    snow, _ = snow_and_melt(t, p)
    return np.array([0.0 * u[0], snow - 0.05 * u[1]])


def snow_stays(t, u, p):
    snow, melt = snow_and_melt(t, p)
    return snow - melt


def winters(x, end=400.0):
    p, u, t, lies = x[2:], np.array(x[:2]), 0.0, True
    while True:

        def turns(t, u, lies=lies):
            return u[0] if lies else -snow_stays(t, u, p)

        turns.terminal, turns.direction = True, -1
        f = under_snow if lies else bare
        options = {"events": turns, "rtol": 1e-13, "atol": 1e-13, "max_step": 5.0}
        run = solve_ivp(lambda t, u, f=f: f(t, u, p), (t, end), u, "DOP853", **options)
        t, u = run.t[-1], run.y[:, -1]
        if t >= end:
            return u[0] + u[1]
        lies = not lies
        u[0] = 1e-14 * lies  # it does not begin on the surface that it is to meet later


def choke_charged(t, u, p):  # a boost converter: current and voltage; the switch is closed
    return np.array([p[3] / p[0], -u[1] / (p[2] * p[1])])


def choke_feeding(t, u, p):
    return np.array([(p[3] - u[1]) / p[0], (u[0] - u[1] / p[2]) / p[1]])


def choke_empty(t, u, p):  # the diode blocks
    return np.array([0.0 * u[0], -u[1] / (p[2] * p[1])])


def boosted(x, periods=4):
    (current, voltage), (inductance, capacity, load, source, duty) = x[:2], x[2:]

    def blocks(t, u):
        return u[0]

    blocks.terminal, blocks.direction = True, -1
    for _ in range(periods):
        current += source / inductance * duty * PERIOD
        voltage *= np.exp(-duty * PERIOD / (load * capacity))
        off = (1 - duty) * PERIOD
        options = {"events": blocks, "rtol": 1e-13, "atol": 1e-13}
        run = solve_ivp(
            lambda t, u: choke_feeding(t, u, x[2:]), (0, off), [current, voltage], **options
        )
        current, voltage = run.y[:, -1]
        voltage *= np.exp(-(off - run.t[-1]) / (load * capacity))
    return voltage


FALL = {"when": lambda t, u, p: u[0], "direction": -1, "name": "bounce"}
BOUNCE = {**FALL, "reset": lambda t, u, p: np.array([0.0 * u[0], -p[1] * u[1]])}
BALL = {"rhs": ball, "u0": [1.0, 0.5], "p": {"g": 9.81, "restitution": 0.8}, "events": (BOUNCE,)}
SPIKE = {
    "when": lambda t, u, p: u[0] - 1.0,
    "reset": lambda t, u, p: 0 * u,
    "direction": 1,
    "name": "spike",
}
NEURON = {"rhs": membrane, "u0": [0.2], "p": {"tau": 2.0, "drive": 1.5}, "events": (SPIKE,)}


def dose(t, u, p):
    return u + p[2] * np.array([1.0, 0.0])


def slipping(t, u, p):  # engine and load; the clutch is pressed on as t grows
    engine, load, friction, j1, j2 = p
    return np.array([(engine - friction * t) / j1, (friction * t - load) / j2])


def locked(t, u, p):
    engine, load, _, j1, j2 = p
    rate = (engine - load) / (j1 + j2)
    return np.stack([rate, rate])


def clutch(x, end=2.0):
    fast, slow, engine, load, friction, j1, j2 = x
    # fast + (engine t - friction t^2/2)/j1 = slow + (friction t^2/2 - load t)/j2
    half, linear = friction * (1 / j1 + 1 / j2) / 2, engine / j1 + load / j2
    t = (linear + mp.sqrt(linear**2 + 4 * half * (fast - slow))) / (2 * half)
    return slow + (friction * t**2 / 2 - load * t) / j2 + (engine - load) / (j1 + j2) * (end - t)


def chemotherapy(t, u, p):  # Simeoni's model: cells that divide, and three stages of dying
    exponential, linear, transit, potency, elimination = p
    total = u[0] + u[1] + u[2] + u[3]
    killed = potency * u[4] * u[0]
    grown = exponential * u[0] / (1 + (exponential / linear * total) ** 20) ** (1 / 20)
    return np.array(
        [
            grown - killed,
            killed - transit * u[1],
            transit * (u[1] - u[2]),
            transit * (u[2] - u[3]),
            -elimination * u[4],
        ]
    )


def chemotherapy_program(x):
    u, p = np.array(x[:5]), x[5:]
    tight = {"rtol": 1e-13, "atol": 1e-15}
    times = (0.0, 9.0, 13.0, 17.0, 30.0)
    for begin, end in pairwise(times):
        if begin > 0.0:
            u[4] += 1.0
        u = solve_ivp(lambda t, y: chemotherapy(t, y, p), (begin, end), u, "DOP853", **tight).y[
            :, -1
        ]
    return u[:4].sum()


CASES = [
    Case(
        "Bouncing ball",
        "MATLAB ballode, PETSc ex40, SciML",
        span=(0.0, 2.0),
        terminal=lambda t, u, p: u[0],
        truth=ball_height,
        **BALL,
    ),
    Case(
        "Time of the second bounce",
        "MATLAB ballode",
        span=(0.0, 2.0),
        event_time=("bounce", 1),
        truth=second_bounce,
        **BALL,
    ),
    Case(
        "Thermostat",
        "Modelica, SciML",
        modes={"on": heated_room, "off": room},
        start="on",
        u0=[18.0],
        p={"k": 0.3, "power": 8.0, "lower": 19.0, "upper": 21.0},
        span=(0.0, 12.0),
        events=(
            {
                "when": lambda t, u, p: u[0] - p[3],
                "direction": 1,
                "mode": "off",
                "within": ["on"],
                "name": "warm",
            },
            {
                "when": lambda t, u, p: u[0] - p[2],
                "direction": -1,
                "mode": "on",
                "within": ["off"],
                "name": "cold",
            },
        ),
        terminal=lambda t, u, p: u[0],
        truth=thermostat,
    ),
    Case(
        "Integrate and fire",
        "Brian, diffrax",
        span=(0.0, 10.0),
        terminal=lambda t, u, p: u[0],
        truth=last_potential,
        **NEURON,
    ),
    Case(
        "Time of the third spike",
        "Brian, NEST",
        span=(0.0, 10.0),
        event_time=("spike", 2),
        truth=third_spike,
        **NEURON,
    ),
    Case(
        "Repeated doses",
        "Pumas, nlmixr, AMICI",
        rhs=two_compartments,
        u0=[10.0, 0.0],
        p={"ka": 0.9, "ke": 0.2, "dose": 10.0},
        span=(0.0, 24.0),
        events=tuple({"when": float(t), "reset": dose} for t in (6, 12, 18)),
        terminal=lambda t, u, p: u[1],
        truth=doses,
    ),
    Case(
        "Draining tank with a valve",
        "text book (Torricelli)",
        rhs=tank,
        u0=[4.0],
        p={"opening": 0.8},
        span=(0.0, 3.0),
        events=(
            {
                "when": lambda t, u, p: u[0] - 1.0,
                "direction": -1,
                "changes": {"opening": lambda t, u, p: p[0] / 2},
            },
        ),
        terminal=lambda t, u, p: u[0],
        truth=draining,
    ),
    Case(
        "Growth and division of a cell",
        "text book",
        rhs=cell,
        u0=[1.1],
        p={"rate": 0.7, "largest": 2.0},
        span=(0.0, 5.0),
        events=(
            {"when": lambda t, u, p: u[0] - p[1], "direction": 1, "reset": lambda t, u, p: u / 2},
        ),
        terminal=lambda t, u, p: u[0],
        truth=division,
    ),
    Case(
        "Cannon shot until it lands",
        "SciPy, solve_ivp",
        rhs=shot,
        u0=[1.0, 10.0],
        p={"g": 9.81},
        span=(0.0, 100.0),
        events=({**FALL, "terminal": True, "name": "landing"},),
        event_time=("landing", 0),
        truth=landing,
    ),
    Case(
        "Converter switched at times that are parameters",
        "Modelica, PLECS",
        modes={"driven": driven_filter, "free": switched_filter},
        start="driven",
        u0=[0.0, 0.0],
        p={"R": 2.0, "L": 0.1, "C": 0.2, "off": 0.7, "on": 1.3},
        span=(0.0, 2.0),
        events=({"when": "off", "mode": "free"}, {"when": "on", "mode": "driven"}),
        terminal=lambda t, u, p: u[1],
        truth=converter,
    ),
    Case(
        "Pulse width by a saw tooth and a clock",
        "PLECS, Modelica; t / T - floor(t / T)",
        modes={"on": charging, "off": discharging},
        start="on",
        u0=[0.1],
        p={"up": 2e4, "down": 1.7e4, "duty": 0.45, "gain": 0.3},
        span=(0.0, 30 * PERIOD),
        events=(
            *({"when": k * PERIOD, "mode": "on"} for k in range(1, 30)),
            {"when": saw_tooth_beyond, "direction": 1, "mode": "off", "within": ["on"]},
        ),
        terminal=lambda t, u, p: u[0],
        truth=pulses,
    ),
    Case(
        "Cell discharged to a cut-off",
        "PyBaMM; a voltage that no charge below 0 has",
        rhs=cell_with_leak,
        u0=[1.0],
        p={"current": 0.5, "leak": 0.03, "slope": 0.11},
        span=(0.0, 20.0),
        events=(
            {
                "when": voltage_above_cut_off,
                "direction": -1,
                "terminal": True,
                "name": "cut-off",
            },
        ),
        event_time=("cut-off", 0),
        truth=empty_cell,
    ),
    Case(
        "Oscillator against a wall",
        "text book (impact oscillator)",
        rhs=oscillator,
        u0=[-1.0, 0.0],
        p={"stiffness": 2.0, "restitution": 0.7},
        span=(0.0, 8.0),
        events=(
            {
                "when": lambda t, u, p: u[0] - 0.5,
                "direction": 1,
                "reset": lambda t, u, p: np.array([u[0], -p[1] * u[1]]),
            },
        ),
        terminal=lambda t, u, p: u[0],
        truth=wall,
    ),
    Case(
        "Block that comes to rest",
        "text book (dry friction)",
        modes={"slides": sliding, "rests": stuck},
        start="slides",
        u0=[0.0, 2.0],
        p={"friction": 1.5},
        span=(0.0, 3.0),
        events=({"when": lambda t, u, p: u[1], "direction": -1, "mode": "rests"},),
        terminal=lambda t, u, p: u[0],
        truth=stopping,
    ),
    Case(
        "Tank with overflow, a kink without an event",
        "text book",
        rhs=limited,
        u0=[0.2],
        p={"inflow": 0.8, "outflow": 1.5},
        span=(0.0, 3.0),
        terminal=lambda t, u, p: u[0],
        truth=limiter,
    ),
    Case(
        "Izhikevich's neuron",
        "Brian, SciML",
        rhs=izhikevich,
        u0=[-65.0, -13.0],
        p={"a": 0.02, "b": 0.2, "current": 15.0, "c": -65.0, "d": 8.0},
        span=(0.0, 12.0),
        events=(
            {
                "when": lambda t, u, p: u[0] - 30.0,
                "direction": 1,
                "reset": lambda t, u, p: np.array([p[3], u[1] + p[4]]),
            },
        ),
        terminal=lambda t, u, p: u[1],
        truth=izhikevich_program,
        exact=False,
    ),
    Case(
        "Bouncing ball with drag in the plane",
        "PETSc ex44",
        rhs=ball_with_drag,
        u0=[0.0, 1.0, 2.0, 1.0],
        p={"drag": 0.1, "restitution": 0.85},
        span=(0.0, 2.0),
        events=(
            {
                "when": lambda t, u, p: u[1],
                "direction": -1,
                "reset": lambda t, u, p: np.array([u[0], 0.0, u[2], -p[1] * u[3]]),
            },
        ),
        terminal=lambda t, u, p: u[0],
        truth=ball_with_drag_program,
        exact=False,
    ),
    Case(
        "Harvest at a threshold",
        "text book",
        rhs=harvested,
        u0=[0.8, 0.6],
        p={"growth": 1.5, "death": 0.4, "left": 0.6},
        span=(0.0, 10.0),
        events=(
            {
                "when": lambda t, u, p: u[0] - 1.2,
                "direction": 1,
                "reset": lambda t, u, p: np.stack([p[2] * u[0], u[1]]),
            },
        ),
        terminal=lambda t, u, p: u[1],
        truth=harvest_program,
        exact=False,
    ),
    Case(
        "Clutch that locks",
        "text book; Modelica",
        modes={"slipping": slipping, "locked": locked},
        start="slipping",
        u0=[150.0, 10.0],
        p={"engine": 100.0, "load": 20.0, "friction": 200.0, "j1": 0.3, "j2": 1.5},
        span=(0.0, 2.0),
        events=(
            {
                "when": lambda t, u, p: u[0] - u[1],
                "direction": -1,
                "mode": "locked",
                "within": ["slipping"],
            },
        ),
        terminal=lambda t, u, p: u[1],
        truth=clutch,
    ),
    Case(
        "Chemotherapy in cycles",
        "Simeoni; Pumas, nlmixr",
        rhs=chemotherapy,
        u0=[0.05, 0.01, 0.01, 0.01, 0.1],
        p={
            "exponential": 0.27,
            "linear": 0.8,
            "transit": 0.9,
            "potency": 0.5,
            "elimination": 1.2,
        },
        span=(0.0, 30.0),
        events=tuple(
            {
                "when": time,
                "reset": lambda t, u, p: u + np.array([0.0, 0.0, 0.0, 0.0, 1.0]),
            }
            for time in (9.0, 13.0, 17.0)
        ),
        terminal=lambda t, u, p: u[0] + u[1] + u[2] + u[3],
        truth=chemotherapy_program,
        exact=False,
    ),
    Case(
        "Crack that grows until it breaks",
        "text book (Paris; NASGRO)",
        rhs=crack,
        u0=[2e-3],
        p={"factor": 3e-11, "power": 3.2, "stress": 90.0, "critical": 2.5e-2},
        span=(0.0, 1e6),
        method="rk8vr",
        events=(
            {
                "when": lambda t, u, p: u[0] - p[3],
                "direction": 1,
                "terminal": True,
                "name": "failure",
            },
        ),
        event_time=("failure", 0),
        truth=cycles_to_failure,
    ),
    Case(
        "Avalanche until it stands",
        "Voellmy; RAMMS",
        rhs=avalanche,
        u0=[0.0, 1.0],
        p={"friction": 0.18, "turbulence": 1500.0, "depth": 1.5},
        span=(0.0, 500.0),
        method="auto",
        events=({"when": lambda t, u, p: u[1], "direction": -1, "terminal": True},),
        terminal=lambda t, u, p: u[0],
        truth=run_out,
        exact=False,
    ),
    Case(
        "Wheel without a rim",
        "McGeer; Drake",
        rhs=rolling,
        u0=[-0.2, 1.4],
        p={"gravity": 9.81, "half": 0.35, "slope": 0.1},
        span=(0.0, 2.5),
        method="auto",
        events=(
            {
                "when": lambda t, u, p: u[0] - p[2] - p[1],
                "direction": 1,
                "reset": next_spoke,
            },
        ),
        terminal=lambda t, u, p: u[1],
        truth=rolling_program,
        exact=False,
    ),
    Case(
        "Ball on a paddle that moves",
        "text book (juggling)",
        rhs=ball,
        u0=[0.4, 0.0],
        p={"g": 9.81, "size": 0.05, "frequency": 13.0, "restitution": 0.6},
        span=(0.0, 0.8),
        method="auto",
        events=({"when": above_paddle, "direction": -1, "reset": hit_by_paddle, "name": "hit"},),
        event_time=("hit", 2),
        truth=third_hit,
    ),
    Case(
        "Snow that comes and goes",
        "text book (degree days)",
        modes={"snow": under_snow, "bare": bare},
        start="snow",
        u0=[20.0, 1.0],
        p={"melting": 3.0, "mean": 4.0, "season": 12.0, "snow": 4.0},
        span=(0.0, 400.0),
        method="auto",
        events=(
            {
                "when": lambda t, u, p: u[0],
                "direction": -1,
                "within": ["snow"],
                "mode": "bare",
                "reset": lambda t, u, p: np.stack([0.0 * u[0], u[1]]),
            },
            {"when": snow_stays, "direction": 1, "within": ["bare"], "mode": "snow"},
        ),
        terminal=lambda t, u, p: u[0] + u[1],
        truth=winters,
        exact=False,
    ),
    Case(
        "Boost converter whose current ends",
        "PLECS, Modelica (discontinuous conduction)",
        modes={"closed": choke_charged, "open": choke_feeding, "empty": choke_empty},
        start="closed",
        u0=[0.1, 12.0],
        p={"inductance": 5e-5, "capacity": 2e-5, "load": 60.0, "source": 12.0, "duty": 0.35},
        span=(0.0, 4 * PERIOD),
        method="auto",
        events=(
            {
                "when": lambda t, u, p: u[0],
                "direction": -1,
                "within": ["open"],
                "mode": "empty",
            },
            *({"when": k * PERIOD, "mode": "closed"} for k in range(1, 4)),
            {
                "when": lambda t, u, p: t / PERIOD - np.floor(t / PERIOD) - p[4],
                "direction": 1,
                "within": ["closed"],
                "mode": "open",
            },
        ),
        terminal=lambda t, u, p: u[1],
        truth=boosted,
        exact=False,
    ),
]
