"""``bilevel``: parameters from interpolated measurements, without solving the equations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from mpi4py import MPI

from daeosens.errors import InputError, UnsupportedError, real_number, whole_number
from daeosens.functional.parameters import Parameters
from daeosens.inverse.bilevel.formulation import Formulation, bilevel_functional
from daeosens.inverse.bilevel.functional import BilevelFunctional, pulled, ran_away, spread_starts
from daeosens.inverse.bilevel.inner import Row, combination
from daeosens.inverse.bilevel.interpolants import Kind
from daeosens.inverse.bilevel.outer_constraints import constraint_values, outer_constraints
from daeosens.inverse.likelihood.experiments import Experiment
from daeosens.inverse.search.multistart import Multistart, multistart
from daeosens.inverse.search.start_points import MOST_STARTS
from daeosens.inverse.search.start_records import Attempt
from daeosens.optimize import Constraint
from daeosens.petsc.agreement import on_every_rank, on_first_rank
from daeosens.petsc.ranks import agree
from daeosens.petsc.vectors import Array, gather


@dataclass(frozen=True, eq=False, repr=False)
class Bilevel:
    """What ``bilevel`` has found; prints itself.

    Attributes
    ----------
    estimate : dict of str to float
        All parameters, those that were fixed too.
    linear, nonlinear, unused : tuple of str
        Which free parameters were solved for in the inner problem, which in the outer one, and
        which the right-hand side does not depend on: these keep their start.
    value : float
        Half the sum of squares.
    functional : BilevelFunctional
    x : array [k]
        The nonlinear parameters in their scales.
    starts : Multistart or None
        All attempts.
    active, degenerate : tuple of str
        Inequalities and bounds that hold as equalities; those of them that would hold by
        themselves, at which derivatives of the linear parameters are one-sided.
    unidentified : tuple of str
        Combinations on which the data do not depend.
    constraints : dict of str to (str, array [q])
        Those of the outer problem: in words, and their values.

    Examples
    --------
    >>> import daeosens as ds
    >>> model = ds.trace(lambda t, u, p: -p.rate * u, size=1, parameters=["rate"])
    >>> t = np.linspace(0.0, 2.0, 21)
    >>> result = bilevel(model, {"t": t, "u": np.exp(-0.5 * t)}, {"rate": ds.Parameter(1.0)})
    >>> result.linear, round(result.estimate["rate"], 4)
    (('rate',), 0.5)
    """

    estimate: dict[str, float]
    linear: tuple[str, ...]
    nonlinear: tuple[str, ...]
    unused: tuple[str, ...]
    value: float
    functional: BilevelFunctional
    x: Array
    starts: Multistart | None
    active: tuple[str, ...]
    degenerate: tuple[str, ...]
    unidentified: tuple[str, ...]
    constraints: dict[str, tuple[str, Array]]

    def __repr__(self) -> str:
        """Return the estimates and what to know about them."""
        lines = [f"bi-level estimate: half the sum of squares is {self.value:.4g}"]
        for kind, names in (("linear", self.linear), ("nonlinear", self.nonlinear)):
            lines += [f"  {name:20s} {self.estimate[name]:12.6g}  {kind}" for name in names]
        if self.unused:
            lines.append(f"not in the right-hand side, so as given: {', '.join(self.unused)}")
        if self.active:
            lines.append(f"active: {', '.join(self.active)}")
        if self.degenerate:
            held = ", ".join(self.degenerate)
            lines.append(
                f"degenerate, so that linear parameters have one-sided derivatives: {held}"
            )
        for words, values in self.constraints.values():
            numbers = ", ".join(f"{value:.6g}" for value in values)
            lines.append(f"constraint {words}: {numbers}")
        if self.unidentified:
            lines.append(f"not determined by the data: {', '.join(self.unidentified)}")
        return "\n".join(lines)


def bilevel(
    model: Any,
    data: Any,
    parameters: Parameters | Mapping[str, Any],
    *,
    times: str | npt.ArrayLike | None = None,
    columns: Sequence[str] | None = None,
    observe: Any = None,
    linear: Sequence[str] | None = None,
    interpolant: Kind = "cubic",
    nodes: int = 3,
    block: int = 0,
    form: Literal["integral", "weak"] = "integral",
    sigma: npt.ArrayLike | None = None,
    ridge: float = 0.0,
    equalities: Sequence[Row] = (),
    inequalities: Sequence[Row] = (),
    constraints: Constraint | Sequence[Constraint] = (),
    starts: int = 1,
    decades: float = 1.0,
    seed: int = 0,
    gradient_tolerance: float = 1e-8,
    max_iterations: int = 200,
    comm: MPI.Intracomm | None = None,
) -> Bilevel:
    """Estimate parameters of u' = f(t, u, p) by putting interpolated measurements into f.

    Collective on ``comm``.

    Then nothing has to be integrated but known functions of time.  Parameters in which f is linear
    solve a linear least squares problem, exactly; the others are minimised over (bi-level).  No
    guess is needed of the linear ones, and hardly one of the others.  The result is as good as the
    interpolation: it is the place from which ``fit`` or ``fit_windows`` go on.

    The residuals are, for each unknown and each of its times, what was measured minus the integral
    of f from the first time on; the state at the first time is estimated along with the rest.

    Parameters
    ----------
    model : Model
        From ``trace``, with delays or without.  History holds until the run of an ``Experiment``
        begins, or else until the first measurement.
    data, times, columns, observe
        As for ``fit``: a table, or a list of ``Experiment``, NaN where nothing was measured.  All
        unknowns have to be measured.
    parameters : Parameters, or mapping of str to Parameter
        Starts, bounds and scales.  Of the linear ones starts are of no account; ``scale="log"``
        makes them non-negative.
    linear : sequence of str, optional
        Parameters of the inner problem; by default a largest set in which f is linear.
    interpolant : "cubic", "hermite", "pchip", "akima", "smooth" or "gaussian"
        Through the measurements, or near them ("smooth", "gaussian").  Where measurements are not
        negative, or not by more than their noise, neither is the curve.
    nodes : int
        Gauss points in each interval between neighbouring times.
    block : int
        Begin integrals anew after so many times, from another unknown state.  What curves miss
        then does not add up along the run, but slow changes count for less.
    form : "integral" or "weak"
        In the weak form residuals are integrals of ``psi_j (f - u')``, by parts, with smooth test
        functions psi_j of compact support, as wide as the spectrum of the data says.
    sigma : float or array_like [q], optional
        Noise level of each column; weights are one over its standard deviation otherwise.
    ridge : float
        Adds ridge/2 |p|^2, in units that make each column of the linear problem of length one at
        the start.
    equalities, inequalities : sequence of ({name: weight}, value)
        The weighted sum of linear parameters is the value, or at least the value.
    constraints : Constraint or sequence of Constraint
        Of the outer problem: functions of ``parameters`` by name, nonlinear ones or both.  It is
        the nonlinear parameters that satisfy them; the linear ones still solve the inner problem.
        Leave out of ``linear`` what is to move by itself.
    starts : int
        Starts of the nonlinear parameters: between their bounds, or within ``decades`` powers of
        ten of the start where they have none.  Delays without bounds lie between a tenth of the
        time between measurements and the length of the run.
    decades, seed
        As said.
    gradient_tolerance, max_iterations
        As for ``minimize``; the former relative to half the number of measurements, which is the
        value without a model, and where constraints have a part in the minimum to their forces.
    comm : MPI.Intracomm, optional
        Ranks that share the starts.

    Returns
    -------
    Bilevel

    Raises
    ------
    InputError
        A model that is not linear in what was declared so; an unknown that was not measured; too
        few samples; constraints that contradict each other; a linear problem of deficient rank,
        with the combination that the data do not determine.
    SolveError
        No start leads anywhere, or none to where constraints hold: delays that are not positive,
        for instance.

    Source
    ------
    Golub, Pereyra, Inverse Problems 19, 2003; Kaufman, BIT 15, 1975 (variable projection).
    Messenger, Bortz, Multiscale Modeling & Simulation 19, 2021 (the weak form).

    Examples
    --------
    >>> import daeosens as ds
    >>> model = ds.trace(lambda t, u, p: -p.v * u / (p.K + u), size=1, parameters=["v", "K"])
    >>> t = np.linspace(0.0, 4.0, 21)
    >>> run = ds.solve(model, [2.0], [1.3, 0.7], ds.Stepping((0.0, 4.0), "rk4", dt=0.1), t_eval=t)
    >>> data = {"time": run.times[::2], "u": run.u[::2, 0]}
    >>> start = {"v": ds.Parameter(1.0), "K": ds.Parameter(10.0, scale="log")}
    >>> result = bilevel(model, data, start)
    >>> result.linear, round(result.estimate["v"], 3), round(result.estimate["K"], 3)
    (('v',), 1.3, 0.7)
    """
    if not isinstance(parameters, Parameters):
        parameters = Parameters(parameters, None)
    whole = parameters
    ranks = MPI.COMM_SELF if comm is None else comm
    if comm is not None:
        agree(comm, "bilevel", starts=starts, seed=seed, decades=decades)
    starts = whole_number(starts, "starts", least=1, most=MOST_STARTS)
    seed = whole_number(seed, "seed")
    decades = real_number(decades, "decades", least=0.0)
    tolerance = real_number(gradient_tolerance, "gradient_tolerance", least=0.0)
    formulation = Formulation(
        linear, interpolant, nodes, block, sigma, ridge, equalities, inequalities, form
    )

    def described() -> tuple[BilevelFunctional, tuple[str, ...], list[Constraint], Array]:
        functional, unused = bilevel_functional(
            model, _listed(data, times), whole, formulation, columns=columns, observe=observe
        )
        limits: list[Constraint] = []
        if isinstance(constraints, Constraint) or list(constraints):
            known = {name: float(entry.value) for name, entry in whole.entries.items()}
            limits = outer_constraints(constraints, functional, known)
        return functional, unused, limits, spread_starts(functional, starts, decades, seed)

    # each rank has its own copy of the model, which may fail on one of them
    functional, unused, limits, points = on_every_rank(ranks, described)
    attempts, x = minimized(
        functional,
        points,
        decades,
        tolerance,
        max_iterations=max_iterations,
        constraints=limits,
        comm=ranks,
    )
    return on_every_rank(
        ranks,
        lambda: _result(functional, x, whole, unused, attempts, constraint_values(limits, x)),
    )


def minimized(
    functional: BilevelFunctional,
    points: Array,
    decades: float,
    gradient_tolerance: float,
    *,
    max_iterations: int,
    constraints: Sequence[Constraint] = (),
    comm: MPI.Intracomm | None = None,
) -> tuple[Multistart | None, Array]:
    """Return all attempts from points [s, k], and the best x [k].

    Other arguments as for ``bilevel``.
    """
    # without nonlinear parameters the inner problem is all: one linear least squares problem
    if not functional.others:
        return None, np.zeros(0)
    settings = _settings(functional, gradient_tolerance, max_iterations)
    ranks = settings["comm"] = MPI.COMM_SELF if comm is None else comm
    attempts = multistart(lambda _comm: functional, points, **settings)
    attempts = _brought_back(functional, attempts, decades, settings)
    if constraints:
        # relative to forces, which do not depend on units: as ``minimize`` has it
        own = settings | {"gradient_tolerance": gradient_tolerance}
        attempts = _constrained(functional, attempts, constraints, own)
    return attempts, on_first_rank(ranks, lambda: _best_determined(functional, attempts))


def _constrained(
    functional: BilevelFunctional,
    attempts: Multistart,
    constraints: Sequence[Constraint],
    settings: dict[str, Any],
) -> Multistart:
    """Return the attempts, with those that violate constraints minimised again under these.

    From where they ended: interior-point steps have no trust region, and from far away go to where
    logarithms are of any size, and nothing comes back.
    """
    # one rank says which: others, whose numbers may differ, wait in the next search
    outside = on_first_rank(
        settings["comm"],
        lambda: [
            attempt
            for attempt in attempts.attempts
            if not (np.isfinite(attempt.value) and _satisfied(constraints, attempt.x))
        ],
    )
    if not outside:
        return attempts
    again = multistart(
        lambda _comm: functional,
        [attempt.x for attempt in outside],
        # matrices are small, and second derivatives are there
        method="ipopt",
        constraints=constraints,
        gradient_tolerance=settings["gradient_tolerance"],
        max_iterations=settings["max_iterations"],
        comm=settings["comm"],
    )
    return _merged(attempts, outside, again)


def _satisfied(constraints: Sequence[Constraint], x: Array) -> bool:
    """Whether constraints hold at x, without any tolerance."""
    values = [(item, np.asarray(item.what(x), dtype=float)) for item in constraints]
    return all(
        bool(np.all((value >= item.lower) & (value <= item.upper))) for item, value in values
    )


def _merged(attempts: Multistart, tried: Sequence[Attempt], again: Multistart) -> Multistart:
    """Return attempts with those that were tried again in their places.

    After Ctrl-C without those that were not reached, which violate constraints or have run away.
    """
    left = {attempt.index: attempt for attempt in attempts.attempts}
    for attempt in tried:
        del left[attempt.index]
    for result in again.attempts:
        attempt = tried[result.index]
        left[attempt.index] = replace(result, index=attempt.index, start=attempt.start)
    return replace(
        attempts,
        attempts=tuple(left[index] for index in sorted(left)),
        interrupted=attempts.interrupted or again.interrupted,
    )


def _brought_back(
    functional: BilevelFunctional, attempts: Multistart, decades: float, settings: dict[str, Any]
) -> Multistart:
    """Return the attempts, with those that ran away minimised again under a pull to the start.

    They rank by what they come to with the pull, which is no less than without.
    """
    # one rank says which: others, whose numbers may differ, wait in the next search
    away = on_first_rank(
        settings["comm"],
        lambda: [
            attempt
            for attempt in attempts.attempts
            if np.isfinite(attempt.value) and ran_away(functional, attempt.x, decades)
        ],
    )
    if not away:
        return attempts
    # the noise level of the pull is that of the best attempt that ran away
    lowest = min(away, key=lambda attempt: attempt.value)
    held = on_every_rank(settings["comm"], lambda: pulled(functional, lowest.x, decades))
    again = multistart(lambda _comm: held, [attempt.start for attempt in away], **settings)
    return _merged(attempts, away, again)


def _settings(
    functional: BilevelFunctional, gradient_tolerance: float, max_iterations: int
) -> dict[str, Any]:
    """Return arguments of ``multistart``.

    Steps are at most two units long, of logarithms a factor of seven, from the first one on: longer
    ones end where a parameter is so large, or small, that nothing depends on it any more.  The
    exact Hessian takes a tenth to a quarter of the iterations of Gauss-Newton: what curves miss is
    left in the residual, and directions that hardly matter are where its curvature counts.
    """
    size = float(np.max(gather(functional.typical()[0]), initial=0.0))
    longest = max(2.0 * size, 1e-8)
    return {
        "method": "bntr",
        "hessian": "exact",
        "preconditioner": "dense",
        # of parameters that are large in their unit gradients are small
        "gradient_tolerance": gradient_tolerance * functional.typical()[1] / max(size, 1.0),
        "max_iterations": max_iterations,
        "options": {
            "tao_bnk_init_type": "constant",
            "tao_trust0": longest,
            "tao_bnk_max_radius": longest,
        },
    }


def _listed(data: Any, times: str | npt.ArrayLike | None) -> list[Experiment]:
    entries: list[Any] = [*data] if isinstance(data, (list, tuple)) else [data]
    if any(isinstance(experiment, Experiment) for experiment in entries):
        for k, experiment in enumerate(entries):
            if not isinstance(experiment, Experiment):
                raise InputError(
                    f"experiments[{k}] is {type(experiment).__name__}", expected="an Experiment"
                )
            if experiment.doses is not None:
                raise UnsupportedError(
                    f"experiments[{k}] has doses",
                    expected="states that are smooth between measurements",
                    remedy="the data between two doses as an experiment of their own",
                )
        return entries
    return [Experiment(data, times=times)]


def _best_determined(functional: BilevelFunctional, attempts: Multistart) -> Array:
    """Return the best x whose inner problem has a unique solution, or else the best."""
    # an estimate with a parameter that the data do not determine is no better for its value
    for attempt in attempts.ranked:
        finite = np.isfinite(attempt.value)
        if finite and not functional.at(attempt.x).inner.unidentified.size:
            return attempt.x
    return attempts.best.x


def _result(
    functional: BilevelFunctional,
    x: Array,
    parameters: Parameters,
    unused: tuple[str, ...],
    attempts: Multistart | None,
    constraints: dict[str, tuple[str, Array]],
) -> Bilevel:
    """Sum up, and refuse an inner problem of deficient rank."""
    at = functional.at(x)
    linear, others = tuple(functional.linear), tuple(functional.others)
    lost = at.inner.unidentified
    words = tuple(combination(lost[:, k], linear) for k in range(lost.shape[1]))
    if words and functional.ridge == 0.0:
        raise InputError(
            f"the data do not determine {' nor '.join(words)} "
            "(linear parameters, each in units of the length of its column)",
            expected="columns of the linear problem that are independent",
            remedy="one of them fixed, an equality between them, other experiments, or ridge=1e-6",
        )
    estimate = {name: float(entry.value) for name, entry in parameters.entries.items()}
    estimate |= dict(zip(linear, at.inner.p.tolist(), strict=True))
    estimate |= dict(zip(others, functional.unscaled(x).tolist(), strict=True))
    # equalities always hold: only inequalities are told as active
    labels = functional.constraints.labels[len(functional.constraints.equal) :]
    return Bilevel(
        estimate,
        linear,
        others,
        unused,
        functional.value(functional.vector(x)),
        functional,
        x,
        attempts,
        tuple(labels[k] for k in at.inner.active),
        tuple(labels[k] for k in at.inner.degenerate),
        words,
        constraints,
    )
