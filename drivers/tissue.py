"""The diffusivity of a tissue at each of its points, and two rates, from noisy snapshots of waves.

    v_t = div(k grad v) + v - v^3 - w + 0.05      (FitzHugh and Nagumo)
    w_t = eps (v - b w)                           nothing flows through the walls

in the box (0, 10)^d with d = 2 or 3.  The field k and the rates eps and b are unknown together;
data are snapshots of v alone, with noise at every point.  The logarithm of k has a Matern prior, of
which the true one is a sample; those of the rates are normal.  Gauss-Newton steps by conjugate
gradients, preconditioned with the covariance of the prior, find the most probable values.  How well
they are known is told by the low-rank Laplace approximation, as standard deviations at each point.
Runs keep a few of their states only ("checkpoints").

    mpiexec -n 2 python drivers/tissue.py configs/tissue.toml

The truth, the noise and the random directions are the same on any number of ranks.

Results: truth, estimate and standard deviations in results.h5, fields.xdmf for ParaView,
fields.png, snapshots.png.
"""

import math
import sys
import time
from dataclasses import dataclass
from typing import Annotated

import numpy as np
from petsc4py import PETSc

import daeosens as ds
from daeosens.cli.study import drive
from daeosens.functional import FieldParameters
from daeosens.inverse import GaussianPrior, Regularized, joint_prior, laplace, matern
from daeosens.inverse.uncertainty.gaussian_prior import white_noise
from daeosens.io import (
    Results,
    Snapshot,
    UniformGrid,
    between,
    length,
    positive,
    read_array,
    write_xdmf,
)
from daeosens.petsc import read
from daeosens.problem.grids import Grid

SIDE = 10.0
RATES = {"eps": (0.12, 0.15), "b": (0.6, 0.5)}  # true, and expected
SPREAD = 0.3  # of the logarithm of a rate beforehand
SOLVER = {"ksp_type": "cg", "pc_type": "gamg", "ksp_rtol": 1e-11}  # of the prior, on any ranks
FIELDS = ("log_k_true", "log_k_prior", "log_k", "sd_prior", "sd", "error")


@dataclass(frozen=True)
class Config:
    """What the configuration may hold."""

    stepping: ds.Stepping
    points: Annotated[tuple[int, ...], length(2, 3), "along x, y (and z)"]
    checkpoints: Annotated[int, positive(), "states that a run keeps"] = 20
    snapshots: Annotated[int, positive(), "evenly spaced, the last one at the end"] = 2
    noise: Annotated[float, positive(), "standard deviation of the data"] = 0.1
    typical: Annotated[float, positive(), "median of k beforehand"] = 0.0015
    sigma: Annotated[float, positive(), "standard deviation of log k beforehand"] = 0.4
    correlation: Annotated[float, positive(), "length of the prior"] = 4.0
    modes: Annotated[int, positive(), "of the posterior"] = 100
    tolerance: Annotated[float, positive(), "of J, relative, in the last step"] = 1e-8
    max_iterations: Annotated[int, positive(), "of Gauss and Newton"] = 20
    seed: Annotated[int, between(0), "of truth and noise"] = 1

    def __post_init__(self) -> None:
        """Refuse what is no grid."""
        if min(self.points) < 8:
            raise ds.InputError(f"points = {self.points}", expected="8 along each side at least")


@dataclass(frozen=True)
class Inverse:
    """What is to be found, and what the answer is compared with."""

    grid: Grid
    model: ds.tracing.FieldModel
    control: FieldParameters
    misfit: ds.Reduced
    prior: GaussianPrior
    true: PETSc.Vec  # log k

    def field(self, x: PETSc.Vec) -> PETSc.Vec:
        """Return the part of a vector of unknowns that is the field."""
        at, _ = self.control.parts(self.model)["k"]
        out = self.model.fields.grid.create_vec()
        out.getArray()[...] = read(x)[at]
        return out


def waves(t, u, p):
    v, w = u.center
    return [u.laplacian(p.k)[0] + v - v**3 - w + 0.05, p.eps * (v - p.b * w)]


def inverse(config: Config) -> Inverse:
    """Make truth, data, misfit and prior."""
    box = ((0.0, SIDE),) * len(config.points)
    grid = Grid(box, config.points, "neumann", dof=2)
    model = ds.trace_stencil(waves, grid, list(RATES), fields=["k"])
    of_field = model.fields.grid
    mean, u0 = of_field.create_vec(), grid.create_vec()
    rough = matern(of_field, mean, sigma=1.0, length=0.15 * SIDE)
    for k, (scale, seed) in enumerate([(1.0, config.seed), (0.5, config.seed + 2)]):
        sample = of_field.values(sampled(rough, seed))[..., 0]
        grid.writable(u0)[..., k] = scale * np.tanh(sample)  # in bounds
    mean.set(math.log(config.typical))
    smooth = matern(of_field, mean, config.sigma, config.correlation)
    true = sampled(smooth, config.seed + 1)
    k = true.copy()
    k.exp()
    known = model.pack(k=k, **{name: value for name, (value, _) in RATES.items()})
    start, end = config.stepping.t_span
    times = np.linspace(start, end, config.snapshots + 1)[1:]
    run = ds.solve(model, u0, known, config.stepping, times)
    data = [observed(config, grid, run.at(t), j) for j, t in enumerate(times)]
    free = {name: ds.Parameter(value, scale="log") for name, (_, value) in RATES.items()}
    control = FieldParameters({**free, "k": ds.Parameter(config.typical, scale="log")}, u0)
    misfit = ds.Reduced(
        model,
        ds.LeastSquares(times, data, sigma=config.noise),
        config.stepping,
        control,
        checkpoint=ds.timestepping.Checkpoints(config.checkpoints),
    )
    numbers = {name: (math.log(value), SPREAD) for name, (_, value) in RATES.items()}
    prior = joint_prior(misfit, {**numbers, "k": smooth}, SOLVER)
    return Inverse(grid, model, control, misfit, prior, true)


def sampled(prior: GaussianPrior, seed: int) -> PETSc.Vec:
    return GaussianPrior(prior.mean, prior.operator, prior.weight, SOLVER).sample(seed)


def observed(config: Config, grid: Grid, state: PETSc.Vec, number: int) -> PETSc.Vec:
    """Return a noisy snapshot of v; of w nothing is seen."""
    data = state + config.noise * white_noise(state, 1000 * config.seed + number)
    grid.writable(data)[..., 1] = np.nan
    return data


def check(config: Config) -> ds.verify.Taylor:
    """Return the Taylor test of the misfit."""
    return ds.taylor(inverse(config).misfit)


def study(config: Config, results: Results) -> bool:
    """Find the most probable field and rates, and how well they are known."""
    known = inverse(config)
    results.say(f"{known.prior.mean.size} unknowns, {known.grid.create_vec().size} in each state")
    taylor = ds.taylor(known.misfit)
    results.say(taylor)
    if not taylor.passed:
        return False
    results.say(ds.optimize.result.HEADING)
    found = ds.minimize(
        Regularized(known.misfit, known.prior),
        method="nls",
        hessian="gauss_newton",
        preconditioner=lambda x, r: known.prior.solve(r),
        gradient_tolerance=0.0,
        predicted_decrease_tolerance=config.tolerance,
        max_iterations=config.max_iterations,
        restart=results.restart("minimum.h5"),
        progress=lambda iterate, _x: results.say(iterate),
    )
    results.say(found)
    begun = time.perf_counter()
    posterior = laplace(known.misfit, found.x, known.prior, rank=config.modes)
    results.say(posterior)
    before = known.prior.variance()
    after = posterior.variance(before)
    seconds = time.perf_counter() - begun
    facts = compare(known, found.x, before, after, results)
    facts |= {"iterations": found.iterations, "evaluations": found.evaluations}
    facts |= {"products": posterior.products, "eigenvalues": posterior.eigenvalues}
    facts |= {"seconds": found.seconds, "seconds_of_posterior": seconds, "J": found.value}
    facts |= {"taylor_order": taylor.order, "counts": found_counts(known.misfit)}
    results.record("tissue", facts)
    keep_snapshots(known, found.x, results)
    results.once(lambda: draw(config, known, results))
    return found.converged


def found_counts(misfit: ds.Reduced) -> dict[str, int]:
    count = misfit.count
    return {"runs": count.forward, "adjoints": count.adjoint, "tangents": count.tangent}


def compare(
    known: Inverse, x: PETSc.Vec, before: PETSc.Vec, after: PETSc.Vec, results: Results
) -> dict[str, object]:
    """Write the fields; say how far they are from the truth, and were expected to be."""
    prior_mean, estimate = known.field(known.prior.mean), known.field(x)
    deviations = [known.field(variance) for variance in (before, after)]
    for deviation in deviations:
        deviation.sqrtabs()
    error = estimate - known.true
    error.abs()
    fields = (known.true, prior_mean, estimate, *deviations, error)
    for name, field in zip(FIELDS, fields, strict=True):
        results.write(name, field)
    scaled = error.copy()
    scaled.pointwiseDivide(error, deviations[1])
    ratio = error.norm() / (prior_mean - known.true).norm()
    within = {
        f"within_{width}": mean_of(scaled, lambda z, width=width: z < width) for width in (1, 2)
    }
    square = mean_of(scaled, np.square)
    rates = known.control.values_at(known.model, x)
    # the numbers are the first entries of x, on the first rank; deviations of logarithms
    of_rates = known.model.comm.tompi4py().bcast(np.sqrt(read(after)[: len(RATES)]))
    results.say(
        f"log k: error {ratio:.3f} times that beforehand, standard deviation "
        f"{mean_of(deviations[1], np.asarray):.3f} ({mean_of(deviations[0], np.asarray):.3f} "
        f"beforehand) on average; {within['within_1']:.1%} of the points within one, "
        f"{within['within_2']:.1%} within two; mean square {square:.2f}"
    )
    facts: dict[str, object] = {"error_beside_prior": ratio, **within, "mean_square": square}
    for (name, (true, _)), deviation in zip(RATES.items(), of_rates, strict=True):
        value = float(getattr(rates, name))
        off = (math.log(value) - math.log(true)) / deviation
        results.say(
            f"{name} = {value:.5f} +- {value * deviation:.5f}, true {true:g} ({off:+.1f} sd)"
        )
        facts[name] = {"estimate": value, "sd_of_log": float(deviation), "off": float(off)}
    return facts


def mean_of(field: PETSc.Vec, function) -> float:
    """Return the mean over all points of a function of the values.  Collective."""
    total = field.comm.tompi4py().allreduce(float(np.sum(function(read(field)))))
    return total / field.size


def keep_snapshots(known: Inverse, x: PETSc.Vec, results: Results) -> None:
    """Write data and fitted states, and where ParaView finds all fields."""
    run, costs, grid = known.misfit.trajectory(x), known.misfit.objective, known.model.fields.grid
    for number, (t, data) in enumerate(zip(costs.times, costs.data, strict=True)):
        for kind, state in {"data": data, "fitted": run.at(t)}.items():
            potential = grid.create_vec()
            grid.writable(potential)[..., 0] = known.grid.values(state)[..., 0]
            results.write(f"{kind}/{number}", potential)
    points, xdmf = UniformGrid(grid.spacing, grid.origin), results.path("fields.xdmf")
    one = Snapshot(0.0, {name: name for name in FIELDS})
    results.once(lambda: write_xdmf(xdmf, results.hdf5, points, [one], ("",)))


def draw(config: Config, known: Inverse, results: Results) -> None:
    """Draw fields and deviations, and data beside what was fitted; of a box its slices."""
    from daeosens.report.figures import fields_figure  # noqa: PLC0415 (optional extra)

    def slices(name: str) -> dict[str, np.ndarray]:
        values = read_array(results.hdf5, name)[..., 0]
        if values.ndim == 2:
            return {"": values}
        places = [round(share * len(values)) for share in (0.3, 0.7)]
        return {f"\nz = {SIDE * (j + 0.5) / len(values):.1f}": values[j] for j in places}

    fields = {name: slices(name) for name in FIELDS}
    rows = {
        f"{label}{place}": [fields[name][place] for name in names]
        for label, names in {
            "log k": ("log_k_prior", "log_k", "log_k_true"),
            "deviation\nof log k": ("sd_prior", "sd", "error"),
        }.items()
        for place in fields["sd"]
    }
    box = (0.0, SIDE, 0.0, SIDE)
    titles = ["prior", "posterior", "truth, and error"]
    fields_figure(results.path("fields.png"), rows, titles, extent=box)
    times = known.misfit.objective.times
    middle = list(fields["sd"])[len(fields["sd"]) // 2]
    shown = {
        f"v, {label}{middle}": [slices(f"{kind}/{number}")[middle] for number in range(len(times))]
        for label, kind in {"data": "data", "fitted": "fitted"}.items()
    }
    titles = [f"t = {t:g}" for t in times]
    fields_figure(results.path("snapshots.png"), shown, titles, extent=box)


if __name__ == "__main__":
    sys.exit(drive(__doc__, Config, study, check))
