"""The forced van der Pol oscillator of native_model.c, and the same in NumPy."""

import numpy as np

from daeosens import ODE, Event, Running, Terminal
from daeosens.petsc.c_function import admit_native
from daeosens.problem import Native

U0, P = [1.2, 0.4], [0.7, 0.3]

# ---- the same in NumPy ---------------------------------------------------------------------------


def rhs(t, u, p):
    return np.array([u[1], p[0] * (1.0 - u[0] * u[0]) * u[1] - u[0] + p[1] * t])


def jacobian(t, u, p):
    return np.array([[0.0, 1.0], [-2.0 * p[0] * u[0] * u[1] - 1.0, p[0] * (1.0 - u[0] * u[0])]])


def jacobian_p(t, u, p):
    return np.array([[0.0, 0.0], [(1.0 - u[0] * u[0]) * u[1], t]])


def rhs_t(t, u, p):
    return np.array([0.0, p[1]])


def cost(t, u, p):
    return 0.5 * (u[0] * u[0] + p[1] * u[1] * u[1]) + t * u[0]


def when(t, u, p):
    return u[0] - p[1]


def reset(t, u, p):
    return np.array([u[0], -p[0] * u[1]])


def numpy_ode(**more):
    return ODE(rhs, 2, 2, jacobian=jacobian, jacobian_p=jacobian_p, rhs_t=rhs_t, **more)


def numpy_costs():
    return Terminal(cost) + 0.5 * Running(cost)


# ---- the same in C -------------------------------------------------------------------------------


def sparse(function):
    pattern = (np.array([0, 1, 3], dtype=np.int32), np.array([1, 1, 0], dtype=np.int32))
    return Native(admit_native(function).address, keeps=function, pattern=pattern)


def compiled_ode(c, *, pattern=False, **more):
    return ODE(
        c.rhs,
        2,
        2,
        jacobian=sparse(c.sparse_jacobian) if pattern else c.jacobian,
        jacobian_p=c.jacobian_p,
        rhs_t=c.rhs_t,
        hessian_product=c.hessian_product,
        hessian_t=c.hessian_t,
        **more,
    )


def compiled_costs(c):
    values = {
        "gradient_u": c.cost_u,
        "gradient_p": c.cost_p,
        "hessian_product": c.cost_hessian,
        "hessian_t": c.cost_hessian_t,
    }
    return Terminal(c.cost, value_t=c.cost_t, **values) + 0.5 * Running(
        c.cost, density_t=c.cost_t, **values
    )


def compiled_event(c):
    return Event(
        c.when,
        c.reset,
        direction=-1,
        when_u=c.when_u,
        when_p=c.when_p,
        when_t=c.when_t,
        when_hessian=c.nothing,
        when_hessian_t="independent",
        reset_u=c.reset_u,
        reset_p=c.reset_p,
        reset_t="autonomous",
        reset_hessian=c.reset_hessian,
    )
