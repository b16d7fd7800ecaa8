"""The two ways to describe a problem: M u' = f(t, u, p) and F(t, u, u', p) = 0."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy.typing as npt
from petsc4py import PETSc

from daeosens.errors import InputError, require
from daeosens.problem.automatic_derivatives import ignores
from daeosens.problem.batched.compiled import CompiledBatch
from daeosens.problem.batched.protocol import Batch, make_batch
from daeosens.problem.branches import Branches
from daeosens.problem.breakpoints import admit_breakpoints
from daeosens.problem.c_callback import Compiled
from daeosens.problem.differences import DIFFERENCES, admit_differences, is_by_differences
from daeosens.problem.event import EventLike, admit_known_events
from daeosens.problem.hessian_products import (
    array_products,
    lower_hessian,
    lower_mass_hessian,
    lower_time_hessian,
    on_vectors,
    residual_hessian,
    residual_time_hessian,
)
from daeosens.problem.joint_jacobians import JointJacobians
from daeosens.problem.layout import make_frame
from daeosens.problem.lowering import (
    Lowering,
    Matrix,
    admit_natives,
    is_automatic,
    known_in_time,
    natives,
    parameter_derivative,
    sources,
    state_derivative,
)
from daeosens.problem.mass import check_of_mass, mass_derivative, mass_p_derivative, with_mass_p
from daeosens.problem.matrices import Derivative, negative, refused
from daeosens.problem.problem import COLORING, Problem, VecFunction


def ODE(  # noqa: N802 (a noun of the public interface)
    rhs: Callable[..., Any],
    size: int | Sequence[str] | None = None,
    parameters: int | Sequence[str] | PETSc.Vec = (),
    *,
    state: PETSc.Vec | PETSc.DM | None = None,
    jacobian: Matrix | str | None = None,
    jacobian_p: Matrix | None = None,
    rhs_t: Callable[..., Any] | str | None = None,
    mass: Any = None,
    mass_p: Callable[..., Any] | None = None,
    hessian_product: Callable[..., Any] | None = None,
    hessian_t: Callable[..., Any] | None = None,
    mass_hessian: Callable[..., Any] | None = None,
    jacobian_matrix: PETSc.Mat | None = None,
    batched: bool = False,
    breakpoints: npt.ArrayLike = (),
    events: Iterable[EventLike] = (),
) -> Problem:
    """Describe M u' = f(t, u, p); M may be singular (an index-1 DAE) or depend on p.

    Collective on the communicator of ``state``, where there is one.

    Parameters
    ----------
    rhs : callable
        NumPy style ``rhs(t, u, p) -> array [n]``, or PETSc style ``rhs(t, u, p, out)`` on vectors.
    size : int or sequence of str
        How many unknowns or their names, by which data, events and starts may speak of them:
        chooses NumPy style, which is serial.
    parameters : int, sequence of str, or Vec
        How many parameters or their names (callbacks get an array [m], the same on every rank), or
        a template of a distributed field (callbacks get a vector [m]).
    state : Vec or DM
        Template of the state: chooses PETSc style, on its communicator.
    jacobian, jacobian_p : callable or Products, optional
        f_u [n, n] and f_p [n, m]: ``(t, u, p) -> array or SciPy sparse``, or ``(t, u, p, out)``
        filling a Mat, or ``Products``.  NumPy style: automatic where missing.
        ``jacobian="differences"``: central differences of ``rhs``, exact to about 1e-10 of its
        terms, for NumPy-style callbacks that cannot be differentiated (those that call C); so are
        ``jacobian_p`` and ``rhs_t`` then, if missing.  Results say so; there are no Hessians.
        ``jacobian="coloring"`` lets PETSc difference ``rhs`` by colouring (no adjoint then).
    rhs_t : callable or "autonomous", optional
        f_t [n]; only needed where step times are differentiated.
    mass : array, sparse matrix, Mat or callable, optional
        M [n, n]; ``mass(p)`` (PETSc style ``mass(p, out)``) when it depends on the parameters.
    mass_p : callable, optional
        The matrix [n, m] of d(M(p) v)/dp, ``mass_p(p, v)`` (PETSc style ``mass_p(p, v, out)``).
    hessian_product : callable, optional
        Products of the Hessian of w^T f, for second-order adjoints: NumPy style
        ``(t, u, p, w, du, dp) -> (array [n], array [m])``, the derivatives of f_u^T w and f_p^T w
        along (du, dp); automatic where missing.  PETSc style ``(t, u, p, w, du, dp, out)``
        fills the first and returns the second, the same on every rank (for a field parameter
        ``(..., out_u, out_p)`` fills both).
    hessian_t : callable, optional
        Derivatives of w^T f_t, for second derivatives through events: ``(t, u, p, w) ->
        (array [n], array [m], number)``, those in u, p and t; automatic where missing.  PETSc
        style ``(t, u, p, w, out) -> (array [m], number)`` (for a field ``(..., out_u, out_p) ->
        number``).  Not needed if ``rhs_t="autonomous"``.
    mass_hessian : callable, optional
        As ``hessian_product`` for w^T M(p) v: ``(v, p, w, dv, dp) -> (array [n], array [m])``.
    jacobian_matrix : Mat, optional
        PETSc style: template (type and pattern) of f_u; by default the DM's matrix or a dense one.
    batched : bool
        NumPy style: ``rhs``, ``jacobian``, ``jacobian_p`` and ``hessian_product`` also take many
        points in one call, t [K], u [K, n] (and w, du [K, n]), and return [K, ...]; sums over the
        points are what ``hessian_product`` returns for the parameters [m], and ``apply_transpose``
        of ``Products`` [M, m] for weights [M, K, n].  Compared with single points at the first use;
        makes sweeps of small problems several times faster (``engine="arrays"``).
    events : sequence of Event, optional
        What may happen along a run: events, or any objects with their attributes (``EventLike``).
    breakpoints : array_like [K], optional
        Increasing times at which f may jump or have a kink in t: steps end there, and take f (and
        running costs) from their inside.  On either side of a breakpoint callbacks see a time some
        1e-12 of it away, so ``t < breakpoint`` tells the sides apart, also if they know its time
        by a number that rounding made another one.

    Returns
    -------
    Problem

    Raises
    ------
    InputError
        Neither or both of ``size`` and ``state``; bad names, shapes or breakpoints; ``batched``
        for PETSc-style callbacks.

    Examples
    --------
    >>> import numpy as np
    >>> decay = ODE(lambda t, u, p: -p[0] * u, size=1, parameters=["rate"])
    >>> decay.size, decay.parameter_names
    (1, ('rate',))
    >>> def spread(t, u, p):
    ...     infections, recoveries = p[0] * u[0] * u[1], p[1] * u[1]
    ...     return np.array([-infections, infections - recoveries])
    >>> ODE(spread, ["susceptible", "infected"], ["transmission", "recovery"]).state_names
    ('susceptible', 'infected')
    """
    frame = make_frame(rhs, size, state, parameters, jacobian_matrix, "rhs")
    admitted = admit_natives(
        frame,
        1,
        rhs=rhs,
        jacobian=jacobian,
        jacobian_p=jacobian_p,
        rhs_t=rhs_t,
        hessian_product=hessian_product,
        hessian_t=hessian_t,
    )
    rhs, jacobian, jacobian_p, rhs_t, hessian_product, hessian_t = admitted.values()
    require(batched, bool, "batched", "batched=True")
    check_of_mass(mass, mass_p=mass_p, mass_hessian=mass_hessian)
    if batched and not is_automatic(frame, rhs):
        raise InputError(
            "batched = True for PETSc-style or C callbacks", expected="callbacks that return arrays"
        )
    lower = Lowering(frame, "rhs", 3)
    rhs_t = known_in_time(rhs, rhs_t)
    by_keyword = {"jacobian": (1, jacobian), "jacobian_p": (2, jacobian_p), "rhs_t": (0, rhs_t)}
    jacobian, jacobian_p, rhs_t = admit_differences(frame.style, rhs, by_keyword).values()
    coloring = isinstance(jacobian, str) and jacobian == COLORING
    # beside a mass the matrix of steps has one pattern for good
    rhs_u = state_derivative(lower, rhs, jacobian, "jacobian", 1, colored=mass is None)
    rhs_p = parameter_derivative(lower, rhs, jacobian_p)
    rhs_t_function = lower.time_derivative(rhs, rhs_t, "rhs_t")
    residual_udot, mass_u = mass_derivative(mass, frame)
    # F = M u' - f: the derivatives of f with a minus, and those of M in p below
    residual_p = negative(rhs_p)
    first = {1: jacobian, 2: jacobian_p}
    of_rhs = (frame, rhs, first, hessian_product, "rhs", "hessian_product")
    # second derivatives as products (f_u^T w)_u du: on arrays, from which those on vectors are made
    products = array_products(*of_rhs) if frame.style == "numpy" else None
    if products is None or isinstance(hessian_product, Compiled):
        rhs_hessian = lower_hessian(*of_rhs)
    else:
        rhs_hessian = on_vectors(products, len(first))
    first = {0: rhs_t, **first}
    rhs_time_hessian = lower_time_hessian(frame, rhs, first, hessian_t, "rhs", "hessian_t")
    of_mass: VecFunction | None = None
    mass_by_p: Derivative | None = None
    if mass_u is not None:
        of_mass = lower_mass_hessian(frame, mass, mass_p, mass_hessian)
        mass_by_p = mass_p_derivative(mass, mass_p, frame)
        residual_p = with_mass_p(residual_p, mass_by_p, frame)

    batch: Batch | None = None
    needed = (jacobian, jacobian_p) if frame.parameter.size else (jacobian,)
    # arrays need all first derivatives: the user's, or automatic ones
    known = is_automatic(frame, rhs) or None not in needed
    if products is not None and not frame.field_parameter and known:
        sizes = (frame.state.size, frame.parameter.size)
        callbacks = rhs, jacobian, jacobian_p, hessian_product, products
        # differences are taken point by point, since their step sizes are
        many = batched and not any(is_by_differences(derivative) for derivative in needed)
        batch = make_batch(*callbacks, sizes, batched=many)
        if batch is not None and any(
            isinstance(callback, Compiled) for callback in (rhs, jacobian)
        ):
            batch = CompiledBatch(batch, rhs, jacobian, jacobian_p, hessian_product)

    def residual_t(t: float, u: PETSc.Vec, _udot: PETSc.Vec, p: Any, out: PETSc.Vec) -> None:
        rhs_t_function(t, u, p, out)
        out.scale(-1.0)

    return Problem(
        form="rhs" if mass is None else "mass",
        rhs_function=lower.function(rhs),
        residual_function=None,
        rhs_u=rhs_u,
        rhs_p=rhs_p,
        rhs_t_function=rhs_t_function,
        residual_u=negative(rhs_u),
        residual_udot=residual_udot,
        residual_p=residual_p,
        residual_t_function=residual_t,
        rhs_hessian_function=rhs_hessian,
        residual_hessian_function=residual_hessian(rhs_hessian, of_mass),
        rhs_time_hessian_function=rhs_time_hessian,
        residual_time_hessian_function=residual_time_hessian(rhs_time_hessian),
        constant_mass=mass_u is None,
        mass_p=mass_by_p,
        mass_hessian_function=of_mass,
        coloring=coloring,
        batch=batch,
        sources=sources(
            frame,
            rhs,
            jacobian=jacobian,
            jacobian_p=jacobian_p,
            rhs_t=rhs_t,
            hessian_product=hessian_product,
            hessian_t=hessian_t,
        )
        | sources(frame, mass, mass_p=mass_p, mass_hessian=mass_hessian),
        native=natives(admitted),
        breakpoints=admit_breakpoints(breakpoints),
        branches=Branches(rhs) if is_automatic(frame, rhs) else None,
        events=admit_known_events(events, ()),
        **frame.fields(),
    )


def DAE(  # noqa: N802 (a noun of the public interface)
    residual: Callable[..., Any],
    size: int | Sequence[str] | None = None,
    parameters: int | Sequence[str] | PETSc.Vec = (),
    *,
    state: PETSc.Vec | PETSc.DM | None = None,
    jacobian: Matrix | str | None = None,
    jacobian_udot: Matrix | None = None,
    jacobian_p: Matrix | None = None,
    residual_t: Callable[..., Any] | str | None = None,
    hessian_product: Callable[..., Any] | None = None,
    hessian_t: Callable[..., Any] | None = None,
    jacobian_matrix: PETSc.Mat | None = None,
    linear_in_udot: bool = False,
    breakpoints: npt.ArrayLike = (),
    events: Iterable[EventLike] = (),
) -> Problem:
    """Describe F(t, u, u', p) = 0, of index at most one.

    Collective on the communicator of ``state``, where there is one.

    Parameters
    ----------
    residual : callable
        NumPy style ``residual(t, u, udot, p) -> array [n]``; PETSc style with ``out`` added.
    size, parameters, state, jacobian_matrix, breakpoints, events
        As for ``ODE``.
    jacobian, jacobian_udot, jacobian_p : callable or Products, optional
        F_u, F_udot [n, n] and F_p [n, m] at ``(t, u, udot, p)``; NumPy style: automatic
        where missing, or ``"differences"`` as for ``ODE``.
    residual_t : callable or "autonomous", optional
        F_t [n]; only needed where step times are differentiated.
    hessian_product : callable, optional
        Products of the Hessian of w^T F, for ``hessian_product``: NumPy style
        ``(t, u, udot, p, w, du, dudot, dp) -> (array [n], array [n], array [m])``, the derivatives
        of F_u^T w, F_udot^T w and F_p^T w along (du, dudot, dp); automatic where missing.
        PETSc style with ``out_u, out_udot`` added, returning the last (for a field: ``out_p`` too).
    hessian_t : callable, optional
        Derivatives of w^T F_t in u, udot, p and t, as for ``ODE``.
    linear_in_udot : bool
        F = M u' - f(t, u, p) with M constant: lets PETSc's own adjoint be used (it is wrong for a
        mass that depends on u, or on p with the midpoint rule; PETSc 3.26).

    Returns
    -------
    Problem

    Examples
    --------
    >>> pendulum = DAE(lambda t, u, udot, p: udot + p[0] * u, size=1, parameters=1)
    >>> pendulum.form
    'residual'
    """
    require(linear_in_udot, bool, "linear_in_udot", "linear_in_udot=True")
    frame = make_frame(residual, size, state, parameters, jacobian_matrix, "residual")
    admitted = admit_natives(
        frame,
        2,
        residual=residual,
        jacobian=jacobian,
        jacobian_udot=jacobian_udot,
        jacobian_p=jacobian_p,
        residual_t=residual_t,
        hessian_product=hessian_product,
        hessian_t=hessian_t,
    )
    residual, jacobian, jacobian_udot, jacobian_p, *others = admitted.values()
    residual_t, hessian_product, hessian_t = others
    lower = Lowering(frame, "residual", 4)
    residual_t = known_in_time(residual, residual_t)
    by_keyword = {
        "jacobian": (1, jacobian),
        "jacobian_udot": (2, jacobian_udot),
        "jacobian_p": (3, jacobian_p),
        "residual_t": (0, residual_t),
    }
    jacobian, jacobian_udot, jacobian_p, residual_t = admit_differences(
        frame.style, residual, by_keyword
    ).values()
    first = {1: jacobian, 2: jacobian_udot, 3: jacobian_p}
    by_u, by_udot, by_p = jacobian, jacobian_udot, jacobian_p
    function = lower.function(residual)
    if is_automatic(frame, residual):
        keywords = {1: "jacobian", 2: "jacobian_udot", 3: "jacobian_p"}
        missing = [k for k, derivative in first.items() if derivative is None]
        if ignores(residual, 3) or not frame.parameter.size:
            missing = [k for k in missing if k != 3]  # zero, by its code
        remedies = {k: f'{keywords[k]}=callback or "{DIFFERENCES}"' for k in missing}
        joint = JointJacobians(residual, "residual", remedies)
        by_u = joint.of(1) if 1 in missing else by_u
        by_udot = joint.of(2) if 2 in missing else by_udot
        by_p = joint.of(3) if 3 in missing else by_p
        function = joint.emptied_by(function)
    p_derivative = parameter_derivative(lower, residual, by_p)
    # F(t, u, u', p) = 0 has no f that explicit steps could evaluate
    never = refused("rhs", "an implicit method: beuler, cn, theta:<value> or midpoint")
    return Problem(
        form="residual",
        rhs_function=None,
        residual_function=function,
        rhs_u=never,
        rhs_p=never,
        rhs_t_function=never.fill,
        residual_u=state_derivative(lower, residual, by_u, "jacobian", 1),
        residual_udot=lower.square(by_udot, "jacobian_udot"),
        residual_p=p_derivative,
        residual_t_function=lower.time_derivative(residual, residual_t, "residual_t"),
        rhs_hessian_function=never.fill,
        residual_hessian_function=lower_hessian(
            frame,
            residual,
            first,
            hessian_product,
            "residual",
            "hessian_product",
        ),
        residual_time_hessian_function=lower_time_hessian(
            frame, residual, {0: residual_t, **first}, hessian_t, "residual", "hessian_t"
        ),
        constant_mass=linear_in_udot,
        # unless the user says otherwise F_udot may change with everything
        udot_nonlinear=not linear_in_udot,
        coloring=isinstance(jacobian, str) and jacobian == COLORING,
        sources=sources(
            frame,
            residual,
            jacobian=jacobian,
            jacobian_udot=jacobian_udot,
            jacobian_p=jacobian_p,
            residual_t=residual_t,
            hessian_product=hessian_product,
            hessian_t=hessian_t,
        ),
        native=natives(admitted),
        breakpoints=admit_breakpoints(breakpoints),
        branches=Branches(residual) if is_automatic(frame, residual) else None,
        events=admit_known_events(events, ()),
        **frame.fields(),
    )
