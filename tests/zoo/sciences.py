"""Earth and stars, physiology, devices, money: what nobody here had tried before."""

import numpy as np
from mpmath import mp
from scipy.integrate import solve_ivp

from zoo.case import Case


def fault(t, u, p):  # a slider with rate and state friction, ageing law; velocities of 1e-9 m/s
    a, b, length, stiffness, friction, loading = p
    stress, theta, slip = u
    sigma, v0 = 50e6, 1e-6
    v = v0 * np.exp((stress / sigma - friction - b * np.log(v0 * theta / length)) / a)
    return np.array([stiffness * (loading - v), 1 - v * theta / length, v])


def lake(t, u, p):  # phosphorus that sediment gives back, under a load that rises and has seasons
    load, loss, recycling, half, rise = p
    inflow = load * (1 + 0.3 * np.sin(2 * np.pi * t)) + rise * t
    return [inflow - loss * u[0] + recycling * u[0] ** 8 / (half**8 + u[0] ** 8)]


def parcel(t, u, p):  # a cloud: droplets of three sizes grow in air that is lifted
    lift, few, some, many, kappa = p
    saturation, r1, r2, r3 = u
    rates, taken = [], 0.0
    for number, dry, r in ((many, 2e-8, r1), (some, 5e-8, r2), (few, 1e-7, r3)):
        rate = 1e-10 / r * (saturation - 1.2e-9 / r + kappa * dry**3 / r**3)
        taken = taken + 4e3 * np.pi * number * r**2 * rate
        rates.append(rate)
    return np.array([5e-4 * lift - 300.0 * taken, *rates])


def ozone(t, u, p):  # Chapman's cycle in a day, molecules per cubic centimetre
    recombination, loss, from_o2, from_o3, air = p
    o, o3 = u
    o2 = 0.21 * air
    sun = np.exp(-0.3 / (0.1 + np.sin(np.pi * t / 86400.0) ** 2))
    made, split = from_o2 * sun * o2, from_o3 * sun * o3
    joined, lost = recombination * o * o2 * air, loss * o * o3
    return np.array([2 * made + split - joined - lost, joined - split - lost])


def star(t, u, p):  # a neutron star, in kelvin and seconds
    capacity, neutrinos, light = p
    temperature = u[0]
    lost = neutrinos * (temperature / 1e9) ** 8 + light * (temperature / 1e8) ** 2.2
    return [-lost / (capacity * temperature / 1e9)]


def universe(t, u, p):  # the scale factor of Friedmann's equation
    matter, radiation, dark, hubble = p
    return [hubble * u[0] * np.sqrt(matter / u[0] ** 3 + radiation / u[0] ** 4 + dark)]


def foucault(t, u, p):
    length, latitude, g = p
    x, y, vx, vy = u
    turn = 7.2921e-5 * np.sin(latitude)
    return np.array([vx, vy, -g / length * x + 2 * turn * vy, -g / length * y - 2 * turn * vx])


def trebuchet(t, u, p):  # beam and sling
    heavy, light, short, long, sling = p
    th, ph, w, z = u
    c, s = np.cos(th - ph), np.sin(th - ph)
    masses = np.array(
        [
            [heavy * short**2 + light * long**2, light * long * sling * c],
            [light * long * sling * c, light * sling**2],
        ]
    )
    forces = np.array(
        [
            -light * long * sling * s * z**2 - (light * long - heavy * short) * 9.81 * np.sin(th),
            light * long * sling * s * w**2 - light * sling * 9.81 * np.sin(ph),
        ]
    )
    a = np.linalg.solve(masses, forces)
    return np.array([w, z, a[0], a[1]])


def harmonic(z, u, p):  # generation of the second harmonic, off the phase match
    coupling, mismatch, loss = p
    re, im, re2, im2 = u
    c, s = np.cos(mismatch * z), np.sin(mismatch * z)
    # i k conj(a) b exp(-i dk z), and i k a^2 exp(i dk z)
    x, y = re2 * c + im2 * s, im2 * c - re2 * s
    xx, yy = re * re - im * im, 2 * re * im
    return np.array(
        [
            -coupling * (re * y - im * x) - loss * re,
            coupling * (re * x + im * y) - loss * im,
            -coupling * (xx * s + yy * c),
            coupling * (xx * c - yy * s),
        ]
    )


def raman(z, u, p):  # pump, signal and noise along a fibre
    gain, pump_loss, loss, noise = p
    pump, signal, spontaneous = u
    return np.array(
        [
            pump_loss * pump + gain * pump * signal,
            -loss * signal + gain * pump * signal,
            -loss * spontaneous + gain * pump * (spontaneous + noise),
        ]
    )


def membrane(t, u, p):  # a switch of micrometres, its voltage rising; SI units
    mass, stiffness, damping, area, gap, voltage = p
    x, v = u
    volts = voltage * np.tanh(t / 1e-5)
    pull = 8.854e-12 * area * volts**2 / (2 * (gap - x) ** 2)
    return np.array([v, (pull - damping * v - stiffness * x) / mass])


def motor(t, u, p):  # an induction motor started at the mains, in a frame at rest
    stator, rotor, own, mutual, inertia, load = p
    ds, qs, dr, qr, w = u
    grid, det = 2 * np.pi * 50, own * own - mutual * mutual
    ids, iqs = (own * ds - mutual * dr) / det, (own * qs - mutual * qr) / det
    idr, iqr = (own * dr - mutual * ds) / det, (own * qr - mutual * qs) / det
    return np.array(
        [
            325 * np.cos(grid * t) - stator * ids,
            325 * np.sin(grid * t) - stator * iqs,
            -rotor * idr - 2 * w * qr,
            -rotor * iqr + 2 * w * dr,
            (3 * (ds * iqs - qs * ids) - load * w) / inertia,
        ]
    )


def runaway(t, u, p):  # a cell that heats itself: two reactions, rates of 1e15
    a1, e1, h1, a2, e2, h2, cooling = p
    x, z, temperature = u
    first = a1 * np.exp(-e1 / (8.314 * temperature)) * x
    second = a2 * np.exp(-e2 / (8.314 * temperature)) * z
    heat = h1 * first + h2 * second
    return np.array([-first, -second, heat - cooling * (temperature - 430.0)])


def panel(t, u, p):  # a solar panel with a capacitor; the diode's equation is implicit
    light, dark, width, series, shunt, capacity, load = p
    v, i = u
    diode = dark * (np.exp((v + i * series) / width) - 1) + (v + i * series) / shunt
    return np.array([(i - v / load) / capacity, light * np.sin(np.pi * t) - diode - i])


def clock(t, u, p):  # Goldbeter's: the protein PER, its phosphates, its way to the nucleus
    vs, vm, km, ks, vd, k1, k2, ki = p
    m, p0, p1, p2, pn = u
    up0, down1 = 3.2 * p0 / (2 + p0), 1.58 * p1 / (2 + p1)
    up1, down2 = 5 * p1 / (2 + p1), 2.5 * p2 / (2 + p2)
    return np.array(
        [
            vs * ki**4 / (ki**4 + pn**4) - vm * m / (km + m),
            ks * m - up0 + down1,
            up0 - down1 - up1 + down2,
            up1 - down2 - k1 * p2 + k2 * pn - vd * p2 / (0.2 + p2),
            k1 * p2 - k2 * pn,
        ]
    )


def division(t, u, p):  # Tyson's cell cycle of cdc2 and cyclin, stiff
    k1, k4, k40, k6, k3 = p
    c2, cp, pm, m, y, yp = u
    total = c2 + cp + pm + m
    forward, active = k3 * cp * y, pm * (k40 + k4 * (m / total) ** 2)
    return np.array(
        [
            k6 * m - 1e3 * c2 + 1e2 * cp,
            1e3 * c2 - 1e2 * cp - forward,
            forward - active,
            active - k6 * m,
            k1 - forward,
            k6 * m - 0.6 * yp,
        ]
    )


def growth(t, u, p):  # Ramsey's household, beside the saddle path
    share, decay, impatience, aversion, skill = p
    k, c = u
    rate = share * skill * k ** (share - 1) - decay - impatience
    return np.array([skill * k**share - decay * k - c, c / aversion * rate])


def reserve(t, u, p):  # Thiele: premiums until 65, then a pension; mortality of Makeham
    interest, accidents, level, ageing, premium, benefit, pension = p
    dying = accidents + level * np.exp(ageing * t)
    income = np.where(t < 65.0, premium, -pension)
    paid = np.where(t < 65.0, benefit, 0.0)
    return [np.log(1 + interest) * u[0] + income - dying * (paid - u[0])]


def reserve_at_90(x):
    """Return the reserve: the equation is linear."""
    start, interest, accidents, level, ageing, premium, benefit, pension = x

    def dying(t):
        return accidents + level * mp.exp(ageing * t)

    def grown(t):  # from t to 90
        by_age = level * (mp.exp(90 * ageing) - mp.exp(ageing * t)) / ageing
        return mp.exp((mp.log(1 + interest) + accidents) * (90 - t) + by_age)

    paid_in = mp.quad(lambda t: grown(t) * (premium - dying(t) * benefit), [30, 40, 50, 65])
    return start * grown(30) + paid_in - pension * mp.quad(grown, [65, 75, 90])


def conduit(z, u, p):  # pressure of magma that rises; gas leaves it where it cannot be dissolved
    gas = np.maximum(p[0] - p[1] * np.sqrt(u[0]), 0.0)
    density = 1 / (gas * 4.6e5 / u[0] + (1 - gas) / 2500.0)
    return np.array([-9.81 * density - 8 * p[2] * p[3] / (900.0 * density)])


def conduit_program(x):
    p = x[1:]

    def dissolved(z, u):
        return p[0] - p[1] * np.sqrt(u[0])

    dissolved.terminal, dissolved.direction = True, 1
    below = solve_ivp(
        lambda z, u: conduit(z, u, [0.0, 0.0, *p[2:]]),
        (0.0, 4500.0),
        x[:1],
        "DOP853",
        rtol=1e-13,
        atol=1e-3,
        events=dissolved,
    )
    span = below.t[-1], 4500.0
    options = {"method": "DOP853", "rtol": 1e-13, "atol": 1e-3}
    return solve_ivp(lambda z, u: conduit(z, u, p), span, below.y[:, -1], **options).y[0, -1]


def bundle(t, u, p):  # hair cell: the bundle, its motors, and whether channels are open
    drag, slip, gate, spring, swing, pull, calcium = p
    x, motors, held = u
    strain = x - motors
    open_ = 1 / (1 + np.exp((10 + gate * swing**2 / 100) / 4.14 - strain / 4.53))
    pulled = gate * (strain - swing * open_)
    return np.array(
        [
            -(pulled + spring * x) / drag,
            (pulled - pull * (1 - calcium * held)) / slip,
            20 * (open_ - held),
        ]
    )


def digester(t, u, p):  # anaerobic digestion: two populations, their food, alkalinity, carbon
    mu1, half1, mu2, half2, inhibition, transfer, kept, dilution = p
    acid, methane, organic, fatty, alkaline, carbon = u
    growth1 = mu1 * organic / (organic + half1)
    growth2 = mu2 * fatty / (fatty + half2 + fatty**2 / inhibition)
    dissolved = carbon + fatty - alkaline
    pressure = dissolved + 16 + 453.0 / transfer * growth2 * methane
    gas = (pressure - np.sqrt(pressure**2 - 64 * dissolved)) / 32
    lost = transfer * (dissolved - 16 * gas)
    return np.array(
        [
            (growth1 - kept * dilution) * acid,
            (growth2 - kept * dilution) * methane,
            dilution * (9.5 - organic) - 42.14 * growth1 * acid,
            dilution * (93.6 - fatty) + 116.5 * growth1 * acid - 268.0 * growth2 * methane,
            dilution * (83.0 - alkaline),
            dilution * (65.0 - carbon) - lost + 50.6 * growth1 * acid + 343.6 * growth2 * methane,
        ]
    )


def reactivity(kev):  # of deuterium and tritium, m3/s, keV: Bosch and Hale
    below = 1 + kev * (7.51886e-2 + kev * (1.35e-2 + kev * 1.366e-5))
    theta = kev / (1 - kev * (1.51361e-2 + kev * (4.60643e-3 - kev * 1.0675e-4)) / below)
    xi = (34.3827**2 / (4 * theta)) ** (1 / 3)
    return 1.17302e-15 * theta * np.sqrt(xi / (1124656 * kev**3)) * np.exp(-3 * xi) * 1e-6


def tokamak(t, u, p):  # energy in MJ, fuel and helium in 1e20 per cubic metre
    quality, current, field, pumping, heating = p
    energy, fuel, helium = u
    volume = 830.0
    electrons = fuel + 2 * helium
    kev = energy * 1e6 / (1.5 * (electrons + fuel + helium) * 1e20 * 1.602e-16 * volume)
    fused = fuel**2 / 4 * reactivity(kev) * 1e20  # in 1e20 per cubic metre and second
    alphas = fused * 1e20 * 3.5e6 * 1.602e-19 * volume / 1e6
    light = 5.35e-3 * 1.6 * electrons**2 * np.sqrt(kev) * volume
    held = (
        0.0562 * quality * current**0.93 * field**0.15 * (alphas + heating - 0.3 * light) ** -0.69
    )
    held = held * (10 * electrons) ** 0.41 * 2.5**0.19 * 6.2**1.39 * 2.0**0.58 * 1.7**0.78
    return np.array(
        [
            alphas + heating - light - energy / held,
            (1 - fuel) / 5 - 2 * fused,
            fused - helium / (5 * pumping * held),
        ]
    )


def debt(t, u, p):  # wages, employment, and firms that borrow: Goodwin's cycle, Keen's debt
    phillips0, phillips1, invest0, invest1, invest2, interest, ratio = p
    wages, employed, owed = u
    profit = 1 - wages - interest * owed
    invested = invest0 + invest1 * np.exp(invest2 * profit)
    growth = invested / ratio - 0.01
    return np.array(
        [
            wages * (phillips1 / (1 - employed) ** 2 - phillips0 - 0.025),
            employed * (growth - 0.045),
            owed * (interest - growth) + invested - (1 - wages),
        ]
    )


def thrust(t, u, p):  # modified equinoctial elements and the mass, thrust on one side of the orbit
    force, exhaust, angle, sharpness = p
    q, f, g, h, k, anomaly, mass = u
    c, s = np.cos(anomaly), np.sin(anomaly)
    w, s2 = 1 + f * c + g * s, 1 + h**2 + k**2
    on = 0.5 * (1 + np.tanh(sharpness * (c + 0.5)))
    along, across = force * on / mass * np.cos(angle), force * on / mass * np.sin(angle)
    root, tilt = np.sqrt(q), h * s - k * c
    return np.array(
        [
            2 * q / w * root * along,
            root * (((w + 1) * c + f) * along - tilt * g * across) / w,
            root * (((w + 1) * s + g) * along + tilt * f * across) / w,
            root * s2 * across / (2 * w) * c,
            root * s2 * across / (2 * w) * s,
            root * (w / q) ** 2 + root * tilt * across / w,
            -force * on / exhaust,
        ]
    )


def growth_with_schooling(t, u, p):
    capital, skill, technology = u[0], u[1], u[2]
    output = capital ** p[0] * skill ** p[1]
    growth = p[4] * (1 - technology)
    return np.array(
        [
            p[2] * output - (0.06 + growth) * capital,
            p[3] * output - (0.06 + growth) * skill,
            growth * technology,
        ]
    )


def sea_ice(t, u, p):
    sky = 200.0 + 60.0 * np.cos(2 * np.pi * t / 3.15e7)
    conductance = p[0] / (u[0] + 0.02)
    surface = 250.0  # whose balance of heat is solved by Newton's method
    for _ in range(8):
        balance = sky - p[2] * 5.67e-8 * surface**4 + conductance * (271.35 - surface)
        slope = -4 * p[2] * 5.67e-8 * surface**3 - conductance
        surface = surface - balance / slope
    return np.array([(conductance * (271.35 - surface) - p[3]) / p[1]])


CASES = [
    Case(
        "Fault that creeps to an earthquake",
        "text book (rate and state, Dieterich)",
        rhs=fault,
        u0=[3e7, 5e6, 0.0],
        p={
            "a": 0.015,
            "b": 0.01,
            "length": 1e-2,
            "stiffness": 5e7,
            "friction": 0.6,
            "loading": 1e-9,
        },
        span=(0.0, 9.45e7),
        method="auto",
        terminal=lambda t, u, p: u[0] / 1e6,
    ),
    Case(
        "Lake with hysteresis",
        "Scheffer; Carpenter",
        rhs=lake,
        u0=[0.1],
        p={"load": 0.3, "loss": 0.8, "recycling": 1.2, "half": 1.0, "rise": 0.012},
        span=(0.0, 60.0),
        method="auto",
        terminal=lambda t, u, p: u[0],
        running=lambda t, u, p: (u[0] - 1) ** 2,
    ),
    Case(
        "Droplets in a cloud",
        "text book (Koehler); PySDM",
        rhs=parcel,
        u0=[-0.01, 1e-7, 2e-7, 4e-7],
        p={"lift": 1.0, "few": 1e7, "some": 1e8, "many": 3e8, "kappa": 0.6},
        span=(0.0, 120.0),
        method="auto",
        atol=1e-16,
        terminal=lambda t, u, p: u[1] * 1e6,
    ),
    Case(
        "Ozone in the course of a day",
        "text book (Chapman)",
        rhs=ozone,
        u0=[1e7, 2e12],
        p={"recombination": 1e-33, "loss": 8e-16, "from_o2": 3e-11, "from_o3": 1e-3, "air": 4e17},
        span=(0.0, 43200.0),
        method="auto",
        terminal=lambda t, u, p: u[1] / 1e12,
    ),
    Case(
        "Cooling of a neutron star",
        "text book",
        rhs=star,
        u0=[1e10],
        p={"capacity": 1e39, "neutrinos": 1e40, "light": 1e33},
        span=(0.0, 3.15e13),
        method="auto",
        terminal=lambda t, u, p: np.log(u[0]),
    ),
    Case(
        "Expansion of the universe",
        "Friedmann",
        rhs=universe,
        u0=[1e-6],
        p={"matter": 0.3, "radiation": 9e-5, "dark": 0.69991, "hubble": 0.0716},
        span=(0.0, 13.0),
        method="auto",
        terminal=lambda t, u, p: u[0],
    ),
    Case(
        "Foucault's pendulum",
        "text book",
        rhs=foucault,
        u0=[1.0, 0.0, 0.0, 0.0],
        p={"length": 67.0, "latitude": 0.8526, "g": 9.81},
        span=(0.0, 300.0),
        method="rk8vr",
        terminal=lambda t, u, p: u[0] + 50.0 * u[1],
    ),
    Case(
        "Trebuchet",
        "text book (Lagrange)",
        rhs=trebuchet,
        u0=[-0.8, -1.5, 0.0, 0.0],
        p={"heavy": 800.0, "light": 15.0, "short": 1.0, "long": 4.0, "sling": 3.5},
        span=(0.0, 1.2),
        method="auto",
        terminal=lambda t, u, p: p[3] * u[2] * np.cos(u[0]) + p[4] * u[3] * np.cos(u[1]),
    ),
    Case(
        "Second harmonic",
        "Boyd, Nonlinear Optics",
        rhs=harmonic,
        u0=[1.0, 0.0, 0.0, 0.0],
        p={"coupling": 1.3, "mismatch": 0.8, "loss": 0.05},
        span=(0.0, 10.0),
        method="auto",
        terminal=lambda t, u, p: u[2] ** 2 + u[3] ** 2,
    ),
    Case(
        "Raman amplifier",
        "text book (pumped from the end)",
        rhs=raman,
        u0=[0.02, 1e-3, 0.0],
        p={"gain": 0.7, "pump_loss": 0.055, "loss": 0.046, "noise": 1e-8},
        span=(0.0, 60.0),
        method="auto",
        terminal=lambda t, u, p: 1e6 * u[2] + u[1],
    ),
    Case(
        "Membrane pulled in",
        "text book (MEMS)",
        rhs=membrane,
        u0=[0.0, 0.0],
        p={
            "mass": 1e-11,
            "stiffness": 1.0,
            "damping": 1e-6,
            "area": 1e-8,
            "gap": 2e-6,
            "voltage": 4.0,
        },
        span=(0.0, 1e-4),
        method="auto",
        atol=1e-17,
        terminal=lambda t, u, p: 1e6 * u[0],
    ),
    Case(
        "Induction motor at the mains",
        "Krause",
        rhs=motor,
        u0=[0.0, 0.0, 0.0, 0.0, 0.0],
        p={
            "stator": 1.4,
            "rotor": 1.2,
            "own": 0.18,
            "mutual": 0.172,
            "inertia": 0.03,
            "load": 0.02,
        },
        span=(0.0, 0.4),
        method="auto",
        terminal=lambda t, u, p: u[4],
    ),
    Case(
        "Thermal runaway of a cell",
        "Hatchard; Kim",
        rhs=runaway,
        u0=[0.15, 0.95, 420.0],
        p={
            "a1": 1.7e15,
            "e1": 1.35e5,
            "h1": 500.0,
            "a2": 6.7e13,
            "e2": 1.4e5,
            "h2": 300.0,
            "cooling": 2e-4,
        },
        span=(0.0, 6.8),
        method="auto",
        terminal=lambda t, u, p: u[2],
    ),
    Case(
        "Solar panel, index 1",
        "text book (one diode)",
        rhs=panel,
        u0=[0.0, 0.0],
        p={
            "light": 5.0,
            "dark": 1e-9,
            "width": 1.3,
            "series": 0.2,
            "shunt": 200.0,
            "capacity": 0.01,
            "load": 6.0,
        },
        span=(0.0, 0.9),
        mass=np.diag([1.0, 0.0]),
        method="esdirk5",
        terminal=lambda t, u, p: u[0],
        running=lambda t, u, p: u[0] ** 2 / p[6],
    ),
    Case(
        "Circadian clock",
        "Goldbeter; BioModels",
        rhs=clock,
        u0=[0.1, 0.25, 0.25, 0.25, 0.25],
        p={
            "vs": 0.76,
            "vm": 0.65,
            "km": 0.5,
            "ks": 0.38,
            "vd": 0.95,
            "k1": 1.9,
            "k2": 1.3,
            "ki": 1.0,
        },
        span=(0.0, 120.0),
        method="auto",
        terminal=lambda t, u, p: u[0],
    ),
    Case(
        "Cell cycle",
        "Tyson; BioModels",
        rhs=division,
        u0=[0.02, 0.85, 0.1, 0.01, 0.01, 0.01],
        p={"k1": 0.015, "k4": 180.0, "k40": 0.018, "k6": 1.0, "k3": 200.0},
        span=(0.0, 30.0),
        method="auto",
        terminal=lambda t, u, p: u[3] + u[2],
    ),
    Case(
        "Growth of Ramsey",
        "Barro and Sala-i-Martin",
        rhs=growth,
        u0=[1.0, 0.6],
        p={"share": 0.33, "decay": 0.05, "impatience": 0.03, "aversion": 2.0, "skill": 1.0},
        span=(0.0, 8.0),
        method="auto",
        terminal=lambda t, u, p: u[0],
        running=lambda t, u, p: np.exp(-p[2] * t) * u[1] ** (1 - p[3]) / (1 - p[3]),
    ),
    Case(
        "Reserve of a life insurance",
        "Thiele; text book",
        rhs=reserve,
        u0=[0.0],
        p={
            "interest": 0.03,
            "accidents": 5e-4,
            "level": 7.5858e-5,
            "ageing": 0.0875,
            "premium": 2000.0,
            "benefit": 1e5,
            "pension": 9000.0,
        },
        span=(30.0, 90.0),
        breakpoints=[65.0],
        method="auto",
        terminal=lambda t, u, p: u[0],
        truth=reserve_at_90,
    ),
    Case(
        "Magma in a conduit, a kink",
        "text book (Wilson and Head)",
        rhs=conduit,
        u0=[1.3e8],
        p={"water": 0.04, "solubility": 4.1e-6, "viscosity": 1e5, "flux": 1000.0},
        span=(0.0, 4500.0),
        method="auto",
        terminal=lambda z, u, p: u[0],
        truth=conduit_program,
        exact=False,
    ),
    Case(
        "Hair bundle of the ear",
        "Nadrowski, Martin, Juelicher 2004",
        rhs=bundle,
        u0=[-10.0, 5.0, 0.3],
        p={
            "drag": 2.8,
            "slip": 10.0,
            "gate": 0.75,
            "spring": 0.6,
            "swing": 60.9,
            "pull": 35.2,
            "calcium": 0.65,
        },
        span=(0.0, 10.0),
        method="auto",
        terminal=lambda t, u, p: u[0],
    ),
    Case(
        "Digestion of sludge",
        "Bernard and others 2001 (AM2); text book",
        rhs=digester,
        u0=[0.5, 0.6, 2.0, 20.0, 75.0, 72.0],
        p={
            "mu1": 1.2,
            "half1": 7.1,
            "mu2": 0.74,
            "half2": 9.28,
            "inhibition": 256.0,
            "transfer": 19.8,
            "kept": 0.5,
            "dilution": 0.25,
        },
        span=(0.0, 20.0),
        method="auto",
        terminal=lambda t, u, p: u[3],
    ),
    Case(
        "Tokamak that burns",
        "Bosch and Hale 1992; ITER physics basis (IPB98(y,2))",
        rhs=tokamak,
        u0=[60.0, 0.7, 0.005],
        p={"quality": 1.0, "current": 15.0, "field": 5.3, "pumping": 1.0, "heating": 50.0},
        span=(0.0, 60.0),
        method="auto",
        terminal=lambda t, u, p: u[0],
    ),
    Case(
        "Goodwin's cycle with debt",
        "Keen 1995; Grasselli and Costa Lima 2012",
        rhs=debt,
        u0=[0.8, 0.9, 0.1],
        p={
            "phillips0": 0.04 / (1 - 0.04**2),
            "phillips1": 0.04**3 / (1 - 0.04**2),
            "invest0": -0.0065,
            "invest1": np.exp(-5.0),
            "invest2": 20.0,
            "interest": 0.03,
            "ratio": 3.0,
        },
        span=(0.0, 30.0),
        method="auto",
        terminal=lambda t, u, p: u[0],
    ),
    Case(
        "Orbit raised by a weak thrust",
        "Betts; Walker and others 1985",
        rhs=thrust,
        u0=[1.0, 0.01, 0.0, 0.1, 0.0, 0.0, 1.0],
        p={"force": 0.01, "exhaust": 2.0, "angle": 0.3, "sharpness": 8.0},
        span=(0.0, 25.0),
        method="auto",
        terminal=lambda t, u, p: u[0],
    ),
    Case(
        "Growth with schooling",
        "Solow; Mankiw, Romer, Weil 1992",
        rhs=growth_with_schooling,
        u0=[1.0, 0.5, 0.2],
        p={"alpha": 0.33, "beta": 0.3, "saved": 0.2, "schooled": 0.1, "progress": 0.02},
        span=(0.0, 100.0),
        method="auto",
        terminal=lambda t, u, p: u[0] + u[1],
    ),
    Case(
        "Sea ice from open water",
        "Stefan; Semtner 1976",
        rhs=sea_ice,
        u0=[0.0],
        p={"conductivity": 2.1, "latent": 3.0e8, "emissivity": 0.97, "ocean": 2.0},
        span=(0.0, 2.0e7),
        method="auto",
        terminal=lambda t, u, p: u[0],
    ),
]
