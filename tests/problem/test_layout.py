"""What all equations have in common: layouts and names, and wrong ones."""

import numpy as np
import pytest
from forms import MASS, NAMES, rhs
from petsc4py import PETSc

from daeosens import DAE, ODE, InputError
from daeosens.problem.layout import make_frame


def vec(n=2):
    return PETSc.Vec().createSeq(n, comm=PETSc.COMM_SELF)


def test_parameters_have_names():
    assert ODE(rhs, 3, NAMES).parameter_names == NAMES
    assert ODE(rhs, 3, list(NAMES)).parameter_names == NAMES
    assert ODE(rhs, 3, 2).parameter_names == ("p0", "p1")
    assert ODE(rhs, 3).parameter_names == ()
    assert ODE(rhs, np.int64(3), np.int64(2)).n_parameters == 2


def test_matrices_are_dense_or_those_of_the_dm_or_like_the_one_given():
    grid = PETSc.DMDA().create([4], dof=1, stencil_width=1, comm=PETSc.COMM_SELF)
    value = PETSc.Mat().createAIJ((2, 2), nnz=1, comm=PETSc.COMM_SELF)
    value.setUp()
    value.assemble()
    for state, matrix, expected in (
        (vec(), None, ("seqdense", (2, 2))),
        (grid, None, ("seqaij", (4, 4))),
        (vec(), value, ("seqaij", (2, 2))),
    ):
        made = make_frame(rhs, None, state, (), matrix, "rhs").template()
        assert (made.getType(), made.getSize()) == expected
        assert made.handle != value.handle


def test_template_of_a_petsc_style_problem_is_copied():
    template = PETSc.Vec().createSeq(2, comm=PETSc.COMM_SELF)
    problem = ODE(lambda t, u, p, out: u.copy(out), state=template, parameters=template)
    assert problem.field_parameter
    assert problem.style == "petsc"
    template.destroy()
    assert problem.create_state().size == problem.create_parameters().size == 2


WRONG = {
    "no size": (lambda: ODE(rhs), r"neither size nor state given\n  expected: size=n for NumPy"),
    "both": (lambda: ODE(rhs, 3, state=vec()), r"both size and state are given"),
    "not callable": (lambda: ODE(MASS, 3), r"rhs is ndarray\n  expected: a function"),
    "residual not callable": (
        lambda: DAE(None, 3),
        r"residual is NoneType\n  expected: a function",
    ),
    "size 0": (lambda: ODE(rhs, 0), r"size = 0\n  expected: an integer of at least 1"),
    "size 1.5": (lambda: ODE(rhs, 1.5), r"size = 1\.5\n  expected: an integer"),
    "size True": (lambda: ODE(rhs, True), r"size = True\n  expected: an integer"),
    "state": (lambda: ODE(rhs, state=[1.0]), r"state is list\n  expected: a PETSc Vec or DM"),
    "repeated": (lambda: ODE(rhs, 3, ["a", "b", "a"]), r"parameter names \['a'\] appear more than"),
    "one string": (
        lambda: ODE(rhs, 3, "abc"),
        r"parameters = 'abc'\n  expected: a number, or names",
    ),
    "names": (
        lambda: ODE(rhs, 3, [1, 2]),
        r"parameters = \[1, 2\]\n  expected: a number, or names",
    ),
}


@pytest.mark.parametrize(("describe", "message"), WRONG.values(), ids=WRONG)
def test_wrong_layouts_are_named(describe, message):
    with pytest.raises(InputError, match=message):
        describe()
