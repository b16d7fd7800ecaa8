"""Numbers of the pages that no clock has measured: sentences, and what stands behind each.

Behind a sentence stands a file of the package that has its numbers, as a default or a limit; a
test, ``FILE::NAME``, in whose file they are asserted; or, where neither can be, one of ``REASONS``.
"""

from __future__ import annotations

DEFINITION = "what a word or a column means, or the setting of an example"
ADVICE = "a rule of thumb, or a reason for it"
THEORY = "follows from a formula on the page, or from arithmetic of doubles"
PETSC = "a constant in the source of PETSc 3.26.1"
CITED = "a published number, cited on the page"
REASONS = (DEFINITION, ADVICE, THEORY, PETSC, CITED)

BLOCKS = (
    "tests/derivatives/test_array_adjoint.py::test_blocks_give_the_gradients_of_the_sweep_by_steps"
)
CELLS = "tests/test_support.py::test_each_cell_is_proved_or_refused_with_an_alternative"
CHECKPOINTS = "tests/timestepping/test_checkpoints.py"
COMPILED = "tests/derivatives/test_compiled_adjoint.py"
DAEO = "daeosens/tracing/daeo"
DAE_STEPS = (
    "tests/methods/test_circuits.py::test_what_steps_of_a_dae_are_as_the_page_on_steps_tells"
)
DEFAULTS = "daeosens/timestepping/ts_defaults.py"
LINEAR = "daeosens/methods/linear_solver.py"
RANKS = "daeosens/petsc/ranks.py"
STEPPING = "daeosens/timestepping/stepping.py"

STATED: dict[str, tuple[tuple[str, str], ...]] = {
    "README": (("L-stable ESDIRK methods of orders 3 to 6", DEFINITION),),
    "adjoints": (
        ("The first two agree to 1e-13", BLOCKS),
        ("all to 1e-12", f"{COMPILED}::test_gradients_are_those_of_an_independent_program"),
        ("at most 128 MiB", "daeosens/derivatives/engines/arrays/step_blocks.py"),
    ),
    "architecture": (
        ("What gains less than 1.3 times on a case that users have goes", DEFINITION),
    ),
    "bilevel": (
        ("begins the integrals anew after ten times", DEFINITION),
        ("ends three times `decades` powers of ten from the start", DEFINITION),
        ("parameters are within 5 % of the truth", "scripts/bench/bilevel.py"),
        ("is larger than 5 % is not in the data", "scripts/bench/bilevel.py"),
        ('"Determined to 5 %" counts', "scripts/bench/bilevel.py"),
    ),
    "callbacks": (
        (
            "relative changes of state and parameters by 1e-6 make",
            "daeosens/timestepping/consistency_check.py",
        ),
        ("`hypot`, where they are 0 | 0 |", DEFINITION),
        ("coarser than 1e-8 of its argument", "daeosens/problem/automatic_derivatives.py"),
        ("each variable moved by 6e-6 of its size", THEORY),
        ("Errors are about 1e-10 of the terms", THEORY),
    ),
    "checking": (
        ("at rounding level (1e-12)", CELLS),
        ("above 1.9 (gradient) or 2.9 (Hessian)", "daeosens/verify/table.py"),
        (
            "wrong by a part of 1e-3 is found",
            "tests/verify/test_taylor.py::test_a_gradient_that_is_a_little_wrong_is_wrong_all_the_same",
        ),
    ),
    "checkpoints": (
        ("10^6 unknowns that is 160 GB", THEORY),
        ("20001 states take 160 GB a rank, and 21.2 GB are free", DEFINITION),
        ("states in 50% of the memory", "daeosens/timestepping/thinning.py"),
        ("a gradient takes 0.93 times the steps of the run again", DEFINITION),
        (
            "up to 2 N / n steps more, and 5 %",
            f"{CHECKPOINTS}::test_adaptive_runs_are_as_good_up_to_the_distance_of_what_they_leave",
        ),
    ),
    "concepts": (("for a p of about 0.6", DEFINITION),),
    "contributing": (
        ("duality of adjoint and tangent to 1e-12", CELLS),
        ('those of `engine="vectors"` to 1e-13', BLOCKS),
    ),
    "daeo": (
        ("from the optimiser that is followed has lost it: 1e-6", f"{DAEO}/effort.py"),
        ("told in floating point, to 1e-7", f"{DAEO}/constrained_search.py"),
    ),
    "delays": (
        (
            "an independent program (to 1e-12)",
            "tests/derivatives/test_delays.py::test_derivatives_are_those_of_the_program",
        ),
    ),
    "events": (
        ("the start lies 1e-13 before the surface | an event after 1e-13 of a second", DEFINITION),
    ),
    "flux_balance": (
        ("beyond their bounds by more than 1e-6", "daeosens/tracing/linear_daeo/bases.py"),
        ("may be passed by 1e-7", "daeosens/tracing/linear_daeo/bases.py"),
    ),
    "mathematics": (
        ("adjoint-tangent duality to 1e-12, agreement of both engines to 1e-12", CELLS),
        ("symmetric to 1e-12", CELLS),
        ("augmented system (u, du) to 1e-10", CELLS),
    ),
    "mpi": (
        ("the job ends after five seconds", RANKS),
        ("does so five seconds later", RANKS),
        ("ends the job after 60 seconds", RANKS),
    ),
    "optimization": (
        ("Krylov methods to min(1e-2, |g|/|g0|)", "daeosens/optimize/tao/newton.py"),
        ("`gradient_tolerance` (default 1e-8)", "daeosens/optimize/stopping.py"),
        ("Unless a `gradient_tolerance` below 1e-8", "daeosens/optimize/stopping.py"),
    ),
    "petsc": (
        (r"where \|f\| > 1e16 all rows", PETSC),
        ("a time within 1e-6 h", PETSC),
        ("after a trial of 1e20 the state has no digits left", THEORY),
        ("GMRES with block Jacobi to 1e-12 by default", LINEAR),
        ("`as_tol` is 1e-3, absolute", PETSC),
        ("a finite 1e250 instead", "daeosens/optimize/failed_solve_barrier.py"),
        ("changes J by less than 1e-6, absolute", PETSC),
        ("shifts of Newton's matrix begin at 1e-4", PETSC),
        ("near its first value; 4e-11", "daeosens/optimize/tao/setup.py"),
    ),
    "reference": (("left in the steps is more than 1e-5", "daeosens/derivatives/looks/look.py"),),
    "second_order": (
        ("Lotka-Volterra, n from 10 to 100", DEFINITION),
        ("products are symmetric to 1e-12", CELLS),
        ("agree to 1e-10 with PETSc's", CELLS),
    ),
    "speed": (
        ("rtol = 1e-6", DEFINITION),
        ("equations with 10 to 200 unknowns", DEFINITION),
        ("up to some 20 000 operations", "daeosens/tracing/derivatives.py"),
        ("up to 256 MiB a rank", "daeosens/timestepping/trajectory/trajectory.py"),
        ("of which 80 are the state", THEORY),
        ("dt / h^2 goes to 1e12", DEFINITION),
        ("Runs solve to 1e-8", DEFAULTS),
        ("sweeps to 1e-11", LINEAR),
    ),
    "stepping": (
        ("`rtol` is 1e-6 unless given", STEPPING),
        ("at most 1e-9", STEPPING),
        ("steps grow four times at most", DEFAULTS),
        ("an `atol` a thousand times below them", ADVICE),
        ("errors of gradients should be below 1e-6", ADVICE),
        ("`DiscretizationWarning` above 0.1 %", "daeosens/derivatives/looks/resolution.py"),
        ("| rk1fe, rk2b, rk3, rk4 | 1, 2, 3, 4 |", DEFINITION),
        ("rk5ts, rk6vr, rk7vr, rk8vr | 2, 3, 5, 5, 5, 5, 6, 7, 8 |", DEFINITION),
        (r"| beuler, theta:\<value\> | 1 |", DEFINITION),
        ("| cn, midpoint, theta:0.5 | 2 |", DEFINITION),
        ("esdirk6, kencarp3 | 3, 4, 5, 6, 3 |", DEFINITION),
        ("arkimex5 | 3, 4, 5 |", DEFINITION),
        ("0 = 1.5 y + y^3 - sin 2x - cos 3t", DAE_STEPS),
        ("| steps of the DAE (error) | 1e-6 | 1e-8 | 1e-10 |", DAE_STEPS),
        ("| esdirk4 | 37 (5e-7) | 90 (8e-9) | 259 (1e-10) |", DAE_STEPS),
        ("| esdirk5 | 29 (7e-8) | 54 (1e-9) | 118 (2e-11) |", DAE_STEPS),
        ("| esdirk6 | 175 (5e-12) | 761 (< 2e-14) | 3504 (< 2e-14) |", DAE_STEPS),
        ("ars222 | 2 |", DEFINITION),
        ("a theta below 0.5 is refused", THEORY),
        ("u' = -0.66 over one jump", DEFINITION),
        ("| steps (error of u(2)) | 1e-5 | 1e-7 | 1e-9 |", DEFINITION),
        ("a tolerance ten to a hundred times that error", ADVICE),
        ("PETSc takes a time within 1e-6 of a step", PETSC),
        ("| esdirk5, rtol 1e-8 |", DEFINITION),
        ("Callbacks see times 1e-12 of the breakpoint away", "daeosens/problem/breakpoints.py"),
        ("also if the callback says 0.3", DEFINITION),
        ("`snes_rtol` 1e-11, LU on one rank", "daeosens/methods/method.py"),
        ("GMRES to 1e-12 with any other", LINEAR),
        ("GMRES with block Jacobi to 1e-12 on several", LINEAR),
        ("unknowns of 1e-12 count beside those of 1e12", DEFINITION),
        ("changes below 1e-8 of the unknowns", "daeosens/petsc/_kernels/newton_rounding.c"),
        ("So multigrid solves to 1e-8 only in runs", DEFAULTS),
        ("corrected with their residual until that is below 1e-11", LINEAR),
        ("Above 1e-5 a `SolverErrorWarning`", "daeosens/derivatives/looks/look.py"),
        ("a `ksp_rtol` above 1e-6 are refused", LINEAR),
        (
            "to a factor of about 20",
            "tests/derivatives/test_solver_error.py::test_estimates_are_as_large_as_errors",
        ),
        ("makes the residual ten times smaller", CITED),
        ("solved to `snes_rtol` 1e-12", "daeosens/methods/esdirk/stages.py"),
    ),
    "tracing": (("reads u twice as far away", THEORY),),
    "uncertainty": (
        ("for a parameter of about 0.6", DEFINITION),
        ("at most ten times the steps of the best run", "daeosens/functional/runs.py"),
        ("some thousandths to a thousand times the start", "daeosens/inverse/search/plateau.py"),
        ("An eigenvalue below 1e-10", "daeosens/inverse/identifiability.py"),
        ("half as many prior solves", THEORY),
        ("until lambda < 0.1", "daeosens/inverse/uncertainty/laplace.py"),
        ("Intervals are for 95 %", "daeosens/inverse/uncertainty/covariance.py"),
    ),
}
