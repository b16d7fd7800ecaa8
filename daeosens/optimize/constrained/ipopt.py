"""Minima under constraints by IPOPT's interior-point method, with second derivatives.

IPOPT comes with CasADi's wheels.  It runs on rank 0 alone; the other ranks wait for what it asks
(``_Request``) and take part in every evaluation, so that all of them stay together.
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Mapping
from enum import Enum
from typing import Any

import numpy as np
from petsc4py import PETSc

from daeosens.errors import InputError, OptionError, SolveError
from daeosens.optimize.constrained.kkt import SearchRecord
from daeosens.optimize.constrained.lagrangian import Point
from daeosens.petsc.vectors import Array, gather, scatter
from daeosens.problem.callback_guard import unwrapped

_Reason = PETSc.TAO.ConvergedReason

DEFAULTS: Mapping[str, Any] = {
    "print_level": 0,
    "sb": "yes",
    # the search has stopping rules of its own, which do not depend on units
    "tol": 1e-15,
    "dual_inf_tol": 1e-300,
    "constr_viol_tol": 1e-300,
    "compl_inf_tol": 1e-300,
    "acceptable_iter": 0,
    "max_iter": 100_000_000,
    # J and the constraints are scaled already, and bounds are where the model ends
    "nlp_scaling_method": "none",
    "bound_relax_factor": 0.0,
}
"""IPOPT's options, which those of the caller replace."""


class _Request(Enum):
    """What rank 0 asks the others to take part in."""

    EVALUATE = "evaluate"
    HESSIAN = "hessian"
    ACCEPT = "accept"
    END = "end"


class Ipopt:
    """IPOPT's callbacks: J / s_0 and c_j / s_j with their derivatives, as CasADi's functions.

    Collective on the communicator of ``x``.

    Parameters
    ----------
    search : SearchRecord
        The record, which has begun: scales are those of the start.
    x : Vec [k]
        The start, not changed.
    options : mapping
        IPOPT's options by their names.

    Source
    ------
    Waechter and Biegler, Math. Program. 106, 2006.
    """

    def __init__(self, search: SearchRecord, x: PETSc.Vec, options: Mapping[str, Any]) -> None:
        assert search.reference is not None
        self.search = search
        self.comm = x.comm.tompi4py()
        self.options = {**DEFAULTS, **options}
        self.start = gather(x)
        self._vec = x.duplicate()
        law, (force, size, self._scale) = search.lagrangian, search.reference
        # As in scales(): a change of x by max(1, |x0|) along the gradient changes J / s_0 by
        # about 1.
        self._value_scale = force * size or 1.0
        self._sides = law.lower / self._scale, law.upper / self._scale
        self._limits = _limits(search, len(self.start), self.comm)
        self._failure: BaseException | None = None
        self._last: SolveError | None = None
        self._refused = self._status = ""
        self._reason = int(_Reason.CONTINUE_ITERATING)

    def run(self) -> int:
        """Minimise, and return the reason to stop as TAO numbers it.

        Raises
        ------
        SolveError
            J or a constraint does not exist at the start, moved inside its bounds.
        OptionError
            An option that IPOPT does not know or take.
        """
        try:
            if self.comm.rank:
                self._serve()
            else:
                try:
                    self._drive()
                finally:
                    # Also after an error here: the other ranks would wait for the next request
                    # for ever.
                    self.comm.bcast((_Request.END, None))
        finally:
            self._vec.destroy()
        refused, self._status = self.comm.bcast((self._refused, self._status))
        if self._failure is not None:
            raise self._failure
        if refused:
            raise OptionError(
                f"IPOPT refuses its options: {refused}",
                expected="names and values of IPOPT's options, without a prefix",
                remedy='options={"mu_strategy": "adaptive"}',
            )
        if self._last is not None and not self.search.iterates:
            raise SolveError(
                "J or a constraint cannot be evaluated at the start moved inside its bounds: "
                f"{self._last}",
                remedy="another x0, or wider bounds",
            ) from self._last
        return self._outcome()

    def _outcome(self) -> int:
        """Return the reason; where IPOPT stopped by itself, say what kept it."""
        if self._reason != _Reason.CONTINUE_ITERATING:
            return self._reason
        if self._status.startswith("Maximum"):  # a limit among the caller's options
            self.search.message = f"IPOPT ended: {self._status.replace('_', ' ')}"
            return int(_Reason.DIVERGED_MAXITS)
        cause = self._last if self._last is not None else self.search.worst()
        self.search.message = f"no step leads on: {cause}"
        return int(_Reason.DIVERGED_USER)

    # ---- the two sides of a request ----

    def _serve(self) -> None:
        """Take part in what rank 0 asks for."""
        while True:
            request, data = self.comm.bcast(None)
            if request is _Request.END:
                return
            self._do(request, data)

    def _ask(self, request: _Request, data: Any) -> Any:
        """Do something on all ranks; None where it failed."""
        if self._failure is not None:
            return None
        self.comm.bcast((request, data))
        return self._do(request, data)

    def _do(self, request: _Request, data: Any) -> Any:
        """Do one thing on this rank; an error that is no failed solve ends the search."""
        try:
            if request is _Request.EVALUATE:
                return self._evaluate(data)
            if request is _Request.HESSIAN:
                x, multipliers, weight = data
                vec = scatter(x, self._vec)
                return self.search.lagrangian.hessian(vec, multipliers, weight)
            return self._accept(*data)
        except SolveError as error:
            # A failed solve becomes NaN, to which IPOPT answers by a shorter step.
            self._last = error
        except BaseException as error:  # noqa: BLE001 (through foreign code; raised at the end)
            self._failure = error
        return None

    def _evaluate(self, x: Array) -> tuple[Point, Array, Array]:
        """Return the point, its whole gradient [k] and Jacobian [m, k]."""
        point = unwrapped(self.search.evaluate)(scatter(x, self._vec))
        # Ranks hold consecutive parts of x, so that their parts in rank order are the whole.
        parts = self.comm.allgather((point.gradient, point.jacobian))
        gradient = np.concatenate([part for part, _ in parts])
        return point, gradient, np.hstack([part for _, part in parts])

    def _accept(self, x: Array, multipliers: Array) -> int:
        """Record an iterate and decide whether to go on."""
        point, _, _ = self._evaluate(x)
        self._last = None
        self._reason = self.search.accept(point, multipliers)
        return self._reason

    # ---- rank 0 ----

    def _drive(self) -> None:
        casadi = _casadi()
        k, m = len(self.start), len(self._scale)
        functions = _functions(casadi, self, k, m)
        x, p = casadi.MX.sym("x", k), casadi.MX.sym("p", 0)
        program = {
            "x": x,
            "p": p,
            "f": functions["objective"](x),
            "g": functions["constraints"](x),
        }
        settings = {
            "print_time": False,
            "show_eval_warnings": False,
            "error_on_fail": False,
            # Without this CasADi would make a gradient function of its own from the callbacks.
            "no_nlp_grad": True,
            "calc_lam_p": False,
            "grad_f": functions["gradient"],
            "jac_g": functions["jacobian"],
            "hess_lag": functions["hessian"],
            "iteration_callback": functions["iteration"],
            **{f"ipopt.{name}": value for name, value in self.options.items()},
        }
        try:
            solver = casadi.nlpsol("minimum", "ipopt", program, settings)
        except RuntimeError as error:
            # the last line, without the place in CasADi's sources where it arose
            self._refused = str(error).splitlines()[-1].partition(": ")[2]
            return
        low, high = self._limits
        lower, upper = self._sides
        # Equalities have equal bounds of c / s, intervals both: IPOPT takes the constraints as
        # they are.
        solver(x0=self.start, lbx=low, ubx=high, lbg=lower, ubg=upper)
        self._status = solver.stats()["return_status"]

    def numbers(self, x: Array) -> tuple[float, Array, Array, Array]:
        """Return scaled J, its gradient [k], c [m] and its Jacobian [m, k]; NaN where none is."""
        done = self._ask(_Request.EVALUATE, x)
        if done is None:
            k, m = len(self.start), len(self._scale)
            return math.nan, np.full(k, np.nan), np.full(m, np.nan), np.full((m, k), np.nan)
        point, gradient, jacobian = done
        outputs, rows = point.outputs / self._scale, jacobian / self._scale[:, None]
        return point.value / self._value_scale, gradient / self._value_scale, outputs, rows

    def hessian(self, x: Array, weight: float, multipliers: Array) -> Array:
        """Return the Hessian [k, k] of weight J / s_0 + sum_j v_j c_j / s_j."""
        # The Lagrangian is evaluated in the user's units; the scales go into its weights.
        data = (x, multipliers / self._scale, weight / self._value_scale)
        done = self._ask(_Request.HESSIAN, data)
        return np.full((len(x), len(x)), np.nan) if done is None else done

    def goes_on(self, x: Array, multipliers: Array) -> bool:
        """Record an iterate, and return whether there is to be another one."""
        # From J / s_0 + sum_j lam_j c_j / s_j to J + sum_j v_j c_j; signs are the same in both.
        v = self._value_scale * multipliers / self._scale
        reason = self._ask(_Request.ACCEPT, (x, v))
        return reason is not None and reason == _Reason.CONTINUE_ITERATING


def _limits(search: SearchRecord, k: int, comm: Any) -> tuple[Array, Array]:
    """Return the bounds of all of x."""
    if search.limits is None:
        return np.full(k, -np.inf), np.full(k, np.inf)
    parts = comm.allgather(search.limits)
    return np.concatenate([low for low, _ in parts]), np.concatenate([high for _, high in parts])


def _casadi() -> Any:
    """Import CasADi, which is optional."""
    return importlib.import_module("casadi")


def check_casadi() -> None:
    """Refuse, before any evaluation, where IPOPT is not installed.

    Raises
    ------
    InputError
        Names the extra.
    """
    try:
        _casadi()
    except ImportError as error:
        raise InputError(
            'method "ipopt" needs CasADi, whose wheels bring IPOPT, and which is not installed',
            remedy='pip install casadi, or method="almm"',
        ) from error


def _functions(casadi: Any, problem: Ipopt, k: int, m: int) -> dict[str, Any]:
    """Return what IPOPT calls, as CasADi's functions."""
    dense, column, single = casadi.Sparsity.dense, (k, 1), casadi.Sparsity.dense(1, 1)
    nothing = dense(0, 1)
    of_x, of_m = dense(*column), dense(m, 1)

    def make(name: str, inputs: Any, outputs: Any, evaluate: Any) -> Any:
        class Call(casadi.Callback):
            """One function, whose derivatives IPOPT gets from others."""

            def __init__(self) -> None:
                casadi.Callback.__init__(self)
                self.construct(name, {})

            def get_n_in(self) -> int:
                return len(inputs)

            def get_n_out(self) -> int:
                return len(outputs)

            def get_name_in(self, i: int) -> str:
                return inputs[i][0]

            def get_name_out(self, i: int) -> str:
                return outputs[i][0]

            def get_sparsity_in(self, i: int) -> Any:
                return inputs[i][1]

            def get_sparsity_out(self, i: int) -> Any:
                return outputs[i][1]

            def eval(self, arguments: Any) -> Any:
                return evaluate(*(np.asarray(value.full()) for value in arguments))

        return Call()

    def numbers(x: Array) -> tuple[float, Array, Array, Array]:
        return problem.numbers(x[:, 0].copy())

    def hessian(x: Array, _p: Array, weight: Array, multipliers: Array) -> list[Any]:
        matrix = problem.hessian(x[:, 0].copy(), float(weight[0, 0]), multipliers[:, 0].copy())
        # IPOPT's interface takes one triangle of a symmetric matrix.
        return [casadi.triu(casadi.DM(matrix))]

    def iterated(*arguments: Array) -> list[Any]:
        by_name = dict(zip(casadi.nlpsol_out(), arguments, strict=True))
        go_on = problem.goes_on(by_name["x"][:, 0].copy(), by_name["lam_g"][:, 0].copy())
        # CasADi ends a search where the callback returns another number than 0.
        return [0 if go_on else 1]

    sparsities = {"x": of_x, "f": single, "g": of_m, "lam_x": of_x, "lam_g": of_m}
    outcome = [(name, sparsities.get(name, nothing)) for name in casadi.nlpsol_out()]
    upper = casadi.Sparsity.upper(k)
    both = [("x", of_x), ("p", nothing)]
    return {
        "objective": make("objective", [("x", of_x)], [("f", single)], lambda x: [numbers(x)[0]]),
        "constraints": make("constraints", [("x", of_x)], [("g", of_m)], lambda x: [numbers(x)[2]]),
        "gradient": make(
            "gradient",
            both,
            [("f", single), ("grad_f_x", of_x)],
            lambda x, _p: [*numbers(x)[:2]],
        ),
        "jacobian": make(
            "jacobian",
            both,
            [("g", of_m), ("jac_g_x", dense(m, k))],
            lambda x, _p: [*numbers(x)[2:]],
        ),
        "hessian": make(
            "hessian",
            [*both, ("lam_f", single), ("lam_g", of_m)],
            [("hess_gamma_x_x", upper)],
            hessian,
        ),
        "iteration": make("iteration", outcome, [("ret", single)], iterated),
    }
