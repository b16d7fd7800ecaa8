"""Phase separation in a flash drum: at every instant the split of lowest Gibbs energy.

A drum holds N_i moles of each substance, exp(y_i) times as much as vapour as there is as liquid.
y is what minimises the Gibbs energy at the temperature and pressure of the drum ("TP"), or what
maximises the entropy for its energy and volume ("UV"):

    N_i' = feed z_i - drain liquid_i - vent vapour_i,  vapour_i = N_i / (1 + exp(-y_i))
    TP:  T = start + heat t, and y minimises G(y; T, P, N)
    UV:  U' = heat + what feed, drain and vent carry, and y minimises -S(y; U, V, N)

Vapour is an ideal gas.  Liquids are regular solutions of Margules: G_excess / RT is the sum of
A_ij x_i x_j over pairs; heat capacities are constant.  Where |y_i| is at its bound there is one
phase, and 0.7 % of the substance are in the other, so that this one has a composition too; reaching
or leaving the bound is an event.  From measurements of what has left as vapour the A_ij
are estimated, by gradients that go through all these events.

    python drivers/flash.py configs/flash.toml   (or mpiexec -n 2 python ...)

Results: flash.png (split, temperature or pressure, and products), states and split in results.h5.
"""

import sys
from dataclasses import dataclass
from itertools import combinations
from typing import Annotated, Any, Literal

import numpy as np

import daeosens as ds
from daeosens.cli.study import drive
from daeosens.io import Results, positive
from daeosens.timestepping import Trajectory
from daeosens.tracing import DAEOModel, SearchEffort
from daeosens.verify import Taylor

R = 8.314462618  # J / mol K
T_0, P_0 = 298.15, 101325.0  # K, Pa: where energies and entropies of vapours are zero
FROZEN = 1.0  # K: ln T goes on smoothly below it, where no split can be
FAR = 5.0  # |y| at which there is one phase: 0.7 % of each substance stay in the other


@dataclass(frozen=True)
class Substance:
    """Boiling point [K], heat of evaporation there [J/mol], heat capacities [J/mol K], m^3/mol."""

    boils: float
    evaporation: float
    liquid: float
    vapour: float
    volume: float

    @property
    def energy(self) -> float:
        """Of evaporation at T_0, at constant volume."""
        more = self.vapour - self.liquid
        return self.evaporation - R * self.boils - more * (self.boils - T_0)

    @property
    def entropy(self) -> float:
        """Of evaporation at T_0 to P_0."""
        more = self.vapour + R - self.liquid
        return self.evaporation / self.boils - more * np.log(self.boils / T_0)


SUBSTANCES = {
    "acetone": Substance(329.2, 29.1e3, 125.0, 66.7, 74.0e-6),
    "methanol": Substance(337.7, 35.2e3, 81.0, 35.7, 40.7e-6),
    "water": Substance(373.15, 40.66e3, 75.3, 25.3, 18.1e-6),
}


@dataclass(frozen=True)
class Config:
    stepping: ds.Stepping
    specification: Literal["TP", "UV"] = "TP"
    substances: tuple[Literal["acetone", "methanol", "water"], ...] = ("methanol", "water")
    margules: tuple[float, ...] = (0.55,)  # A_12, then A_13, A_23
    amount: Annotated[float, positive(), "at the start, in equal parts [mol]"] = 10.0
    start: Annotated[float, positive(), "temperature at the start and of the feed [K]"] = 340.0
    heat: float = 0.8  # K/min, or J/min
    feed: Annotated[float, positive(), "in equal parts [mol/min]"] = 0.5
    drain: Annotated[float, positive(), "of liquid [1/min]"] = 0.02
    vent: Annotated[float, positive(), "of vapour [1/min]"] = 0.2
    volume: Annotated[float, positive(), "of the drum, UV [m^3]"] = 0.1
    noise: Annotated[float, positive(), "of measurements, relative to the largest"] = 0.01
    measurements: Annotated[int, positive(), "times of them"] = 15
    proof: Annotated[int, positive(), "boxes looked at to prove that the split only moved"] = 30000
    guess: float = 0.2  # added to all A_ij
    seed: int = 1

    def __post_init__(self) -> None:
        names, pairs = self.substances, len(self.pairs)
        if not 2 <= len(set(names)) == len(names):
            raise ds.InputError(
                f"substances = {list(names)}", expected="two or three that are different"
            )
        if len(self.margules) != pairs:
            raise ds.InputError(
                f"margules = {list(self.margules)}",
                expected=f"{pairs} numbers, one for each pair of substances",
                remedy=f"margules = {[0.5] * pairs}",
            )

    @property
    def data(self) -> list[Substance]:
        return [SUBSTANCES[name] for name in self.substances]

    @property
    def pairs(self) -> list[tuple[int, int]]:
        return list(combinations(range(len(self.substances)), 2))

    @property
    def between(self) -> list[str]:
        """Names of the A_ij."""
        return [f"A_{self.substances[i]}_{self.substances[j]}" for i, j in self.pairs]

    @property
    def states(self) -> list[str]:
        out = [f"{name}_out" for name in self.substances]
        return [*self.substances, *out, *(["U"] if self.specification == "UV" else [])]

    @property
    def parameters(self) -> dict[str, float]:
        margules = dict(zip(self.between, self.margules, strict=True))
        return {"feed": self.feed, "heat": self.heat, **margules}

    @property
    def start_of(self) -> list[float]:
        """Return the states at the start: liquid, whose volume is next to nothing."""
        n = len(self.substances)
        amount = self.amount / n
        energy = sum(amount * self.molar_energy(k, self.start, 0.0) for k in range(n))
        states = [amount] * n + [0.0] * n
        return [*states, energy] if self.specification == "UV" else states

    def molar_energy(self, k: int, temperature: Any, vapour: float) -> Any:
        """Return U of a liquid (0) or vapour (1) [J/mol]."""
        data = self.data[k]
        if vapour:
            return data.vapour * (temperature - T_0)
        return data.liquid * (temperature - T_0) - data.energy


def split(config: Config, x: Any, y: Any) -> tuple[list[Any], list[Any]]:
    """Return moles of vapour and of liquid."""
    places = range(len(config.substances))
    vapour = [x[k] / (1.0 + np.exp(-y[k])) for k in places]
    return vapour, [x[k] / (1.0 + np.exp(y[k])) for k in places]


def mixed(config: Config, liquid: list[Any], p: Any) -> Any:
    """Return G of mixing of a liquid over RT."""
    total = sum(liquid)
    ideal = sum(part * (np.log(part) - np.log(total)) for part in liquid)
    excess = sum(
        p[name] * liquid[i] * liquid[j]
        for name, (i, j) in zip(config.between, config.pairs, strict=True)
    )
    return ideal + excess / total


def gibbs(config: Config, t: Any, x: Any, y: Any, p: Any) -> Any:
    """Return G / RT per mole at (T, P_0), up to what does not depend on y."""
    temperature = config.start + p["heat"] * t
    vapour, liquid = split(config, x, y)
    total, whole = sum(vapour), sum(vapour + liquid)
    value = mixed(config, liquid, p)
    for gas, part, data in zip(vapour, liquid, config.data, strict=True):
        more = data.vapour + R - data.liquid
        enthalpy = data.evaporation + more * (temperature - data.boils)
        entropy = data.evaporation / data.boils + more * np.log(temperature / data.boils)
        pressure = entropy / R - enthalpy / (R * temperature)  # ln of that of the pure liquid, P_0
        value = value + gas * (np.log(gas) - np.log(total)) + part * pressure
    return value / whole


def thermal(config: Config, x: Any, y: Any) -> tuple[Any, Any, Any]:
    """Return the heat capacity, the temperature, and the room of the vapour, for U and V."""
    vapour, liquid = split(config, x, y)
    parts = list(zip(vapour, liquid, config.data, strict=True))
    capacity = sum(gas * data.vapour + part * data.liquid for gas, part, data in parts)
    energy = x[2 * len(parts)] + sum(part * data.energy for _, part, data in parts)
    room = config.volume - sum(part * data.volume for _, part, data in parts)
    return capacity, T_0 + energy / capacity, room


def minus_entropy(config: Config, t: Any, x: Any, y: Any, p: Any) -> Any:
    """Return -S / R per mole for U and V."""
    vapour, liquid = split(config, x, y)
    capacity, temperature, room = thermal(config, x, y)
    logarithm = np.arcsinh(0.5 * temperature / FROZEN) - np.log(T_0 / FROZEN)
    value = mixed(config, liquid, p) - capacity * logarithm / R
    for gas, part, data in zip(vapour, liquid, config.data, strict=True):
        value = value + part * data.entropy / R
        value = value - gas * (np.log(room * P_0 / (R * T_0)) - np.log(gas))
    return value / sum(vapour + liquid)


def rates(config: Config, t: Any, x: Any, y: Any, p: Any) -> Any:
    n = len(config.substances)
    vapour, liquid = split(config, x, y)
    out = [config.vent * gas for gas in vapour]
    drained = [config.drain * part for part in liquid]
    change = [p["feed"] / n - a - b for a, b in zip(out, drained, strict=True)]
    if config.specification == "TP":
        return np.array([*change, *out])
    _, temperature, _ = thermal(config, x, y)
    energy = p["heat"]
    for k in range(n):
        fed = config.molar_energy(k, config.start, 0.0)
        gas = config.molar_energy(k, temperature, 1.0) + R * temperature
        part = config.molar_energy(k, temperature, 0.0)
        energy = energy + p["feed"] / n * fed - out[k] * gas - drained[k] * part
    return np.array([*change, *out, energy])


def drum(config: Config) -> DAEOModel:
    energy = gibbs if config.specification == "TP" else minus_entropy
    return ds.DAEO(
        lambda t, x, y, p: rates(config, t, x, y, p),
        lambda t, x, y, p: energy(config, t, x, y, p),
        size=(config.states, [f"y_{name}" for name in config.substances]),
        parameters=list(config.parameters),
        box=[(-FAR, FAR)] * len(config.substances),
        effort=SearchEffort(proof=config.proof, proof_per_step=config.proof // 100),
    )


def functional(config: Config, model: DAEOModel) -> tuple[ds.Reduced, np.ndarray]:
    """Return the misfit of what has left as vapour as a function of the A_ij, and the data."""
    first, last = config.stepping.t_span
    times = np.linspace(first, last, config.measurements + 1)[1:]
    p = model.pack(config.parameters)
    run = ds.solve(model, config.start_of, p, config.stepping, t_eval=times)
    measured = [f"{name}_out" for name in config.substances]
    columns = [config.states.index(name) for name in measured]
    exact = run.u[np.searchsorted(run.times, times - 1e-9)][:, columns]
    sigma = config.noise * exact.max(axis=0)
    data = exact + sigma * np.random.default_rng(config.seed).normal(size=exact.shape)
    values = {
        name: ds.Parameter(
            value + (config.guess if name in config.between else 0.0), name in config.between
        )
        for name, value in config.parameters.items()
    }
    control = ds.Parameters(values, initial_state=config.start_of)
    misfit = ds.LeastSquares(times, data, sigma=sigma, observe=measured)
    return ds.Reduced(model, misfit, config.stepping, control), np.column_stack([times, data])


def check(config: Config) -> Taylor:
    return ds.taylor(functional(config, drum(config))[0], hessian=True)


def study(config: Config, results: Results) -> bool:
    model = drum(config)
    reduced, data = functional(config, model)
    evidence = ds.taylor(reduced, hessian=True)
    results.say(evidence)
    run = ds.solve(model, config.start_of, model.pack(config.parameters), config.stepping)
    results.say(f"\n{run}\n\n{run.report}")
    light = f"{config.substances[0]}_out"
    place = config.states.index(light)
    gradient = model.unpack(ds.adjoint(run, model.terminal(lambda t, x, y, p: x[place])).p)
    results.say(f"\n{light} at the end: {run.u[-1, place]:.6g} mol; its derivatives by")
    for name in config.parameters:
        results.say(f"  {name:24s}{gradient[name]:14.6g}")
    optimum = ds.minimize(
        reduced,
        method="bntr",
        gradient_tolerance=1e-6,
        restart=results.restart("minimisation.h5"),
    )
    results.say(f"\n{optimum}")
    assert isinstance(reduced.control, ds.Parameters)
    estimates = reduced.control.values_at(model, optimum.x)
    for name in config.between:
        results.say(f"  {name:24s}{estimates[name]:10.5f}   (truth {config.parameters[name]:g})")
    results.record("estimates", {name: estimates[name] for name in config.between})
    results.record("gradient", {name: gradient[name] for name in config.parameters})
    results.record("changes", [crossing.t for crossing in run.crossings])
    for name, values in {"times": run.times, "states": run.u, "measurements": data}.items():
        results.write(name, values)
    results.once(lambda: draw(config, results, run))
    return evidence.passed and optimum.converged


def draw(config: Config, results: Results, run: Trajectory) -> None:
    from daeosens.report.switched_runs import (  # noqa: PLC0415 (optional extra)
        Course,
        Row,
        switching_figure,
    )

    n, x, times = len(config.substances), run.u[1:], run.times[1:]  # the first y is not found yet
    y = x[:, len(config.states) : len(config.states) + n]
    vapour, liquid = (np.transpose(part) for part in split(config, x.T, y.T))
    if config.specification == "TP":
        level = Row("T [K]", [Course("", times, config.start + config.heat * times)])
    else:
        _, temperature, room = thermal(config, x.T, y.T)
        pressure = vapour.sum(axis=1) * R * temperature / room
        level = Row("pressure [bar]", [Course("", times, 1e-5 * pressure)])
    light = config.substances[0]
    rows = [
        level,
        Row(
            "part that is\nvapour",
            [
                Course(name, times, vapour[:, k] / x[:, k])
                for k, name in enumerate(config.substances)
            ],
        ),
        Row(
            f"part of {light}",
            [
                Course("in vapour", times, vapour[:, 0] / vapour.sum(axis=1)),
                Course("in liquid", times, liquid[:, 0] / liquid.sum(axis=1)),
            ],
        ),
        Row(
            "left as vapour\n[mol]",
            [Course(name, times, x[:, n + k]) for k, name in enumerate(config.substances)],
        ),
    ]
    one_phase = (np.abs(y) >= 0.999 * FAR).any(axis=1)
    edges = np.flatnonzero(np.diff(np.concatenate([[0], one_phase.astype(int), [0]])))
    shaded = [
        (float(times[start]), float(times[end - 1]))
        for start, end in zip(edges[::2], edges[1::2], strict=True)
    ]
    switching_figure(
        results.path("flash.png"), rows, shaded, time_label="t [min]", shade_label="one phase"
    )


if __name__ == "__main__":
    sys.exit(drive(__doc__, Config, study, check))
