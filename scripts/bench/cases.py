"""What is measured: settings, contestants and figures of each case, as data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import product
from typing import Any

from contest import Contestant
from stiff import SYSTEMS


@dataclass(frozen=True)
class Figure:
    """One panel for each value of ``panels``, one line for each contestant, both axes logarithmic.

    ``x`` is "error", "parameters" (how many) or the name of a setting, ``y`` "milliseconds" or
    "megabytes"; ``where`` are settings that are held.
    """

    name: str
    task: str
    x: str
    y: str = "milliseconds"
    panels: str = ""
    where: tuple[tuple[str, Any], ...] = ()


@dataclass(frozen=True)
class Case:
    """A contest: the first contestant is what the others are compared with.

    ``quotients`` name two tasks each; the page shows the time of the first in those of the second.
    ``quantity`` is what the page's table shows; ``tasks`` are those that are measured, by default
    all.  Contestants compute on one core, or on ``all_cores``.
    """

    name: str
    title: str
    about: str
    contestants: tuple[Contestant, ...]
    settings: tuple[Mapping[str, Any], ...]
    quick: tuple[Mapping[str, Any], ...]
    reference: Contestant | None = None
    figures: tuple[Figure, ...] = ()
    quotients: tuple[tuple[str, str], ...] = ()
    quantity: str = "milliseconds"
    tasks: tuple[str, ...] = ()
    all_cores: bool = False


@dataclass(frozen=True)
class Script:
    """A program of its own that takes --output and --repeat and writes rows.

    ``program`` is its name where that is not the case's.
    """

    name: str
    title: str
    about: str
    arguments: tuple[str, ...] = ()
    program: str = ""


LOTKA_VOLTERRA = Case(
    "lotka_volterra",
    "Generalised Lotka-Volterra",
    "x_i' = x_i (r_i + sum_j A_ij x_j), x_i(0) = r_i = 0.1, t in [0, 10], A normal with deviation "
    "0.5 / sqrt(N) and seed N, its diagonal -1; rtol = atol = tolerance.  The parameters are all "
    'N + N^2 numbers p = (r, A).  "full" is d x(T) / d p, "scalar" the gradient of sum_i x_i(T).  '
    "Each time is that of a run and its derivatives.  Errors are relative to the variational "
    "equations at 1e-13.  daeosens and the C program take the 5(4) pair of Bogacki and Shampine.  "
    "By hand: the adjoint recurrence of all outputs at once over stages that are kept, and one "
    "product of matrices for d / dA, as an expert would write it for these equations.  "
    "All contestants may compute on all cores.",
    (
        Contestant("daeosens", "lotka_volterra.ours"),
        Contestant("C on PETSc TSAdjoint", "lotka_volterra.petsc_c"),
        Contestant("diffrax Dopri5", "lotka_volterra.diffrax_dopri5", peer=True),
        Contestant("diffrax Tsit5", "lotka_volterra.diffrax_tsit5", peer=True),
        Contestant("diffrax Dopri8", "lotka_volterra.diffrax_dopri8", peer=True),
        Contestant("C on PETSc's steps, by hand", "lotka_volterra.petsc_blocks"),
        Contestant("NumPy, by hand", "lotka_volterra.numpy_by_hand"),
        Contestant("JAX, by hand", "lotka_volterra.jax_by_hand", peer=True),
        Contestant("CasADi CVODES adjoint", "lotka_volterra.casadi_adjoint", peer=True),
        Contestant("CasADi CVODES forward", "lotka_volterra.casadi_forward", peer=True),
        Contestant("finite differences", "lotka_volterra.differences"),
    ),
    tuple(
        {"N": n, "tolerance": tolerance}
        for n in (10, 55, 100, 200)
        for tolerance in (1e-4, 1e-6, 1e-7, 1e-8, 1e-10, 1e-12)
    ),
    ({"N": 3, "tolerance": 1e-5},),
    Contestant("reference", "lotka_volterra.reference"),
    (
        Figure("precision", "full", "error", panels="N"),
        Figure("precision_scalar", "scalar", "error", panels="N"),
        Figure("scaling", "full", "parameters", where=(("tolerance", 1e-7),)),
        Figure("scaling_scalar", "scalar", "parameters", where=(("tolerance", 1e-7),)),
    ),
    all_cores=True,
)

MANY_PARAMETERS = Case(
    "many_parameters",
    "Generalised Lotka-Volterra, a quarter of a million and a million parameters",
    'The equations above; "ten" is d x_i(T) / d p for the first ten i.  Errors are relative to '
    "exact derivatives of steps at 1e-13.",
    (
        Contestant("daeosens", "lotka_volterra.ours"),
        Contestant("C on PETSc's steps, by hand", "lotka_volterra.petsc_blocks"),
        Contestant("diffrax Tsit5", "lotka_volterra.diffrax_tsit5", peer=True),
        Contestant("NumPy, by hand", "lotka_volterra.numpy_by_hand"),
        Contestant("JAX, by hand", "lotka_volterra.jax_by_hand", peer=True),
    ),
    tuple({"N": n, "tolerance": tolerance} for n in (500, 1000) for tolerance in (1e-4, 1e-7)),
    ({"N": 500, "tolerance": 1e-3},),
    Contestant("reference", "lotka_volterra.large_reference"),
    all_cores=True,
)

GRAY_SCOTT = Case(
    "gray_scott",
    "Gray-Scott",
    "Two species on a periodic box of side 2.5, ten steps from the tutorial's spots.  "
    '"forward" is the run alone, which keeps nothing for a gradient; "gradient" is the run and the '
    "gradient of |final|^2 / 2 in the initial state.  Its two parts, timed apart: "
    '"forward sweep", the run with all that it keeps for the gradient, and "adjoint sweep", the '
    'rest.  "gradient, rates too" is that in the initial state and the four rates.  '
    "Implicit steps solve to 1e-10 by BiCGStab without preconditioner.  daeosens asks for "
    "large pages of memory; `GLIBC_TUNABLES=glibc.malloc.hugetlb=1` gives them to all.  Errors are "
    "differences from daeosens: all take the same steps.",
    (
        Contestant("daeosens", "gray_scott.ours"),
        Contestant("daeosens, states", "gray_scott.ours_states"),
        Contestant("daeosens, TSAdjoint", "gray_scott.ours_tsadjoint"),
        Contestant("C on PETSc TSAdjoint", "gray_scott.petsc_c"),
        Contestant("JAX", "gray_scott.with_jax", peer=True),
        Contestant("numba, by hand", "gray_scott.with_numba", peer=True),
    ),
    tuple(
        {"points": points, "method": method, "dt": dt, "steps": 10}
        # the largest stable step of RK4 among 0.5, 0.25 and 0.0625
        for points, stable in ((100, 0.5), (256, 0.25), (512, 0.0625))
        for method, dt in (("rk4", stable), ("cn", 0.5), ("beuler", 0.5))
    ),
    tuple(
        {"points": 12, "method": method, "dt": 0.5, "steps": 2}
        for method in ("rk4", "cn", "beuler")
    ),
    figures=(Figure("scaling", "gradient", "points", panels="method"),),
    quotients=(
        ("adjoint sweep", "forward sweep"),
        ("adjoint sweep", "forward"),
        ("gradient", "forward"),
    ),
)

STIFF = Case(
    "stiff",
    "Stiff systems",
    "Van der Pol's oscillator with mu = 1, t in [0, 10], and mu = 1000, t in [0, 0.5]; Robertson's "
    "reactions, t in [0, 40]; Verwer's air pollution mechanism, 20 species and 25 reactions with "
    "the published rates, t in [0, 60]; methane and air by GRI-Mech 3.0, 53 species and 325 "
    "reactions, at 1500 K over ignition, t in [0, 2 ms].  rtol = tolerance; atol the same, for the "
    'last three 1e-4 of it.  "full" is p d u(T) / d p, "scalar" its first row, '
    '"hessian" (but for the last) p times the Hessian of the first unknown in p times '
    "p cos(k), k the number of the parameter.  Errors are relative to the "
    "variational equations at 1e-10, of second order at 1e-11; for methane, where that takes too "
    "long, to esdirk6 at 3e-12 (CVODES at its tightest agrees to 4e-7).",
    (
        Contestant("daeosens", "stiff.ours"),
        Contestant("diffrax Kvaerno5", "stiff.diffrax_kvaerno5", peer=True),
        Contestant("diffrax Kvaerno5, Chord", "stiff.diffrax_chord", peer=True),
        Contestant("CasADi CVODES", "stiff.casadi_cvodes", peer=True),
        Contestant("CasADi CVODES, compiled", "stiff.casadi_compiled", peer=True),
        Contestant("C on CVODES", "stiff.cvodes_c"),
        Contestant("CasADi IDAS", "stiff.casadi_idas", peer=True),
    ),
    tuple(
        {"problem": problem, "tolerance": tolerance}
        for problem, system in SYSTEMS.items()
        for tolerance in (1e-3, 1e-4, 1e-6, 1e-8, 1e-10, 1e-11, 1e-12)
        # the tightest one where those before it do not reach errors of 1e-9
        if (tolerance > 1e-12 or problem == "van der Pol, mu = 1e3")
        # hundreds of parameters at tighter tolerances are a matter of minutes for some
        and (len(system.parameters) < 100 or tolerance in (1e-4, 1e-6, 1e-8))
    ),
    ({"problem": "van der Pol, mu = 1e3", "tolerance": 1e-4},),
    Contestant("reference", "stiff.reference"),
    (
        Figure("precision", "full", "error", panels="problem"),
        Figure("precision_scalar", "scalar", "error", panels="problem"),
        Figure("precision_hessian", "hessian", "error", panels="problem"),
    ),
)

MEMORY = Case(
    "memory",
    "Memory against number of steps",
    "Gray-Scott on 128 x 128 points by RK4, dt = 0.5: the most memory [MB] that a run and its "
    "gradient take beyond the idle process, compiled code included.  A state has 0.25 MB.",
    (
        Contestant("daeosens, stages", "gray_scott.ours"),
        Contestant("daeosens, states", "gray_scott.ours_states"),
        *GRAY_SCOTT.contestants[2:],
    ),
    tuple(
        {"points": 128, "method": "rk4", "dt": 0.5, "steps": steps}
        for steps in (10, 20, 40, 80, 160, 320)
    ),
    tuple({"points": 16, "method": "rk4", "dt": 0.5, "steps": steps} for steps in (2, 4)),
    figures=(Figure("steps", "gradient", "steps", "megabytes"),),
    quantity="megabytes",
    tasks=("gradient",),  # before a run alone stands what an earlier gradient has left
)


def large(points: int, steps: int, memory: float) -> dict[str, Any]:
    """Return a setting whose states fit into memory [bytes], by a stable step of RK4."""
    spacing = 2.5 / points
    return {
        "points": points,
        "unknowns": 2 * points**2,
        "method": "rk4",
        "dt": min(0.5, 0.2 * spacing**2 / 8e-5),
        "steps": steps,
        "states": min(steps + 1, int(memory / (16 * points**2))),
    }


LARGE_RUNS = Case(
    "large_runs",
    "Gradients of large runs",
    "Gray-Scott by RK4, the run and the gradient of |final|^2 / 2 in the initial state, on one "
    "core; at most 10^9 steps of an unknown.  Both keep as many states as 4 GB hold and compute "
    "the others again: daeosens by `Checkpoints`, JAX by the loop of equinox that diffrax takes.",
    (
        Contestant("daeosens", "gray_scott.ours_checkpoints"),
        Contestant("JAX", "gray_scott.jax_checkpoints", peer=True),
    ),
    tuple(
        large(points, steps, 4e9)
        # those that take least first
        for points, steps in sorted(
            product((22, 71, 224, 707, 2236), (10, 100, 1000, 10_000, 100_000)),
            key=lambda size: size[0] ** 2 * size[1],
        )
        if points**2 * steps < 6e8
    ),
    tuple(large(16, steps, 16 * 16**2 * 3.0) for steps in (2, 9)),
    figures=(
        Figure("unknowns", "gradient", "unknowns", panels="steps"),
        Figure("memory", "gradient", "unknowns", "megabytes", panels="steps"),
    ),
    tasks=("gradient",),
)

CASES: dict[str, Case | Script] = {
    case.name: case
    for case in (
        LOTKA_VOLTERRA,
        MANY_PARAMETERS,
        STIFF,
        GRAY_SCOTT,
        MEMORY,
        LARGE_RUNS,
        Script(
            "compiled_steps",
            "Steps and calls of compiled models",
            "Microseconds of a step, and of whole calls of ten steps, over those of C on PETSc.",
        ),
        Script(
            "styles",
            "Ways to write a right-hand side",
            "Milliseconds of processor time of a run, a gradient and all derivatives of the last "
            "state; generalised Lotka-Volterra with 10 species and 110 parameters, `rk6vr`, "
            "rtol = 1e-6.",
        ),
        Script(
            "numpy_callbacks",
            "NumPy callbacks beside SciPy",
            "Milliseconds of processor time of runs of NumPy callbacks without Jacobians, of "
            "SciPy's solver of the same order, their ratio, and that of a gradient to the run; "
            "unknowns + parameters, rtol = 1e-6.",
        ),
        Script(
            "events",
            "Events",
            "What an event costs, in steps: forward, watching its function, and in the sweep.",
        ),
        Script(
            "engines",
            "The choice of an engine",
            "Milliseconds of processor time of each engine in 100 seeded random settings, and of "
            'engine="auto", over the least.',
        ),
        Script(
            "global_search",
            "Searches for all minimisers",
            "Milliseconds of a search over a box with proof, for the lowest minimiser and for all, "
            "and of the proof that they only move in an interval of the state.",
        ),
        Script(
            "daeo",
            "DAEOs",
            "Milliseconds of runs whose optimisers are tracked through jumps, and of their "
            "gradients; of runs that search the box in every right-hand side; and of more and "
            "more optimisers.",
        ),
        Script(
            "flux_balance",
            "Dynamic flux balance",
            "Milliseconds of a run and a gradient with tracked bases, and of runs that solve a "
            "linear programme in every right-hand side.",
        ),
        Script(
            "long_runs",
            "Long runs in NumPy",
            "Resident bytes a step of 100 000 steps of `rk4` with ten unknowns, and of a gradient, "
            "after each and at their most; processor seconds.  Derivatives given, or automatic.",
        ),
        Script(
            "initial_state",
            "An initial state from the state at the end",
            "Gray-Scott on 100 x 100, dt = 0.5 on [0, 5], four spots from one by L-BFGS, as "
            "published for another code: milliseconds of processor time of a run and of the "
            "adjoint, their ratio, and that published (of products with f_u); iterations and "
            "evaluations until the misfit is 1e-10 of what it was, and their seconds.  Jacobians "
            "are traced and assembled, found by colors of directions of NumPy code, or never "
            "formed.",
        ),
        Script(
            "checkpoints",
            "Checkpoints in time",
            "Gray-Scott, a tenth of the states kept: processor seconds of a run, of a sweep with "
            "all states there, of both with the steps that the theory takes again, each as long as "
            "a step of the run, and of the gradient with checkpoints; the ratio is the last over "
            "the one before.",
        ),
        Script(
            "grids",
            "Implicit steps on grids",
            "Linear iterations of a solve and seconds of two steps of Crank-Nicolson, forward, in "
            "the adjoint and in a Hessian product, with default settings.",
            ("--all",),
        ),
        Script(
            "finite_elements",
            "Burgers' equation on finite elements",
            "Evaluations and milliseconds of 16 steps on [0, 2] and of the adjoint in the initial "
            "velocities and the viscosity, 0.01: P2 elements on the unit square, a Gaussian of "
            "amplitude 1 and width 0.06, the square of the H1 norm at the end.  A step takes one "
            "Jacobian and a factorisation for each Newton iteration, its adjoint one of both: the "
            "ratio is about one over their number.  Published for another code are 0.25 (`beuler`) "
            "and 0.14 (`cn`).",
        ),
        Script(
            "imex",
            "Implicit and explicit parts",
            "The Brusselator with diffusion and a wind that turns, by steps that follow the wind: "
            "`arkimex` methods solve for the diffusion, the others for all.  Relative errors of "
            "the state at the end; evaluations of rates, Jacobians filled and iterations of GMRES "
            "of a run; millions of floating-point operations and milliseconds of a run and of a "
            "gradient without it.  A diffusion that is linear is factorised once.",
        ),
        Script(
            "own_paths",
            "What own code for speed gains",
            "Least milliseconds of calls with it and without it, timed in turn: of processor time, "
            "for the thread pool of the clock.  Without it there are TSRK, TSTHETA or an ESDIRK "
            "step by SNES; stage sums and passes of their own on grids; OpenBLAS with both cores; "
            "the memory of PETSc's vectors; KSPBCGS; C as CasADi writes it.  What gains less than "
            "1.3 times on what users run is taken out again.",
        ),
        Script(
            "second_order",
            "Hessian products",
            "Milliseconds of the sweeps, and a product over an adjoint and a tangent.",
        ),
        Script(
            "hessians",
            "Whole Hessians",
            "Milliseconds of processor time of the whole Hessian of |x(10)|^2 / 2 in the 2 n "
            "starting values and rates of generalised Lotka-Volterra, by steps and in blocks; "
            "callbacks that take many points, `hessian_product` given.",
            ("--full",),
            "second_order",
        ),
        Script(
            "block_adjoint",
            "Sweeps in blocks",
            "Milliseconds of processor time of the gradient of one cost, and of the derivatives of "
            "all n states, by steps and in blocks; callbacks that take many points, `rk5dp`.",
        ),
        Script(
            "accuracy",
            "Steps and errors",
            "What docs/stepping.md and docs/daeo.md have tables of; no times.  Van der Pol's "
            "oscillator, mu = 1000, over one jump, by rtol = atol, absolute errors; from its slow "
            "manifold, with steps that resolve states or derivatives, relative errors; and the "
            "DAEO whose optimiser jumps, by step size, absolute errors.",
        ),
        Script(
            "fit_methods",
            "Methods for fits",
            "Runs and sweeps that the fits of the [zoo](zoo.md) take; each method comes to the "
            "same minimum.  A gradient comes with each run of L-BFGS, and with each accepted point "
            "of the others.",
        ),
        Script(
            "lynx_intervals",
            "How well rates are known",
            "Estimates, standard errors and 95 % intervals of the rates of lynx and hare "
            "(`drivers/lynx_hare.py`), beside standard deviations that were published (B. "
            "Carpenter, 2018), and the part of their reach by which symmetric intervals miss the "
            "ends of the profiles'.",
        ),
        Script(
            "tissue",
            "A field and two rates",
            "What `drivers/tissue.py` finds, once in each setting: processor time of all ranks; "
            "the error of log k beside that of the prior's mean, in the mean square; shares of the "
            "points whose error is within one and two posterior standard deviations, and the mean "
            "square of their quotient; the largest difference from the run on one rank, of the "
            "field in standard deviations, and of these, relative.",
        ),
    )
}
