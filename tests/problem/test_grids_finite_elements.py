"""Spaces of finite elements: whose unknowns are whose, and the matrices that belong to them."""

import numpy as np
import pytest
import skfem
from petsc4py import PETSc
from skfem.models.poisson import mass

from daeosens import InputError
from daeosens.petsc import gather
from daeosens.problem.grids import FiniteElements
from daeosens.problem.grids.finite_elements import bisected

SELF = PETSc.COMM_SELF
TRIANGLES = skfem.MeshTri().refined(3).with_boundaries({"left": lambda x: x[0] == 0.0})
BASES = {
    "line": skfem.Basis(skfem.MeshLine().refined(4), skfem.ElementLineP2()),
    "triangles": skfem.Basis(TRIANGLES, skfem.ElementTriP2()),
    "squares": skfem.Basis(skfem.MeshQuad().refined(3), skfem.ElementQuad1()),
    "tetrahedra": skfem.Basis(skfem.MeshTet().refined(2), skfem.ElementTetP1()),
}


@pytest.mark.mpi
@pytest.mark.parametrize("kind", BASES)
def test_the_mass_is_that_of_scikit_fem_on_any_ranks(kind):
    basis = BASES[kind]
    space = FiniteElements(basis, ("a", "b"))
    reference = mass.assemble(basis)
    rng = np.random.default_rng(3)
    values = rng.uniform(size=(basis.N, 2))
    product = space.state.duplicate()
    space.mass.mult(space.from_values(values), product)
    assert np.allclose(space.values(product), reference @ values, rtol=0.0, atol=1e-15)
    assert np.array_equal(space.values(space.from_values(values)), values)


@pytest.mark.mpi
def test_fixed_values_are_no_unknowns():
    basis = BASES["triangles"]
    space = FiniteElements(
        basis, ("a", "b"), dirichlet={"boundary": (None, 1.0), "left": (2.0, None)}
    )
    edge, left = basis.get_dofs().all(), basis.get_dofs("left").all()
    assert space.state.getSize() == 2 * basis.N - len(edge) - len(left)
    values = space.values(space.interpolate(lambda x: (x[0], x[1])))
    x = basis.doflocs
    expected = np.stack([x[0], x[1]], axis=1)
    expected[edge, 1] = 1.0
    expected[left, 0] = 2.0
    assert np.array_equal(values, expected)
    of_place = FiniteElements(basis, dirichlet={"left": lambda x: x[1] ** 2})
    rest = of_place.values(of_place.interpolate(lambda x: 0.0 * x[0]))[:, 0]
    assert np.array_equal(rest[left], x[1][left] ** 2)
    assert not np.delete(rest, left).any()


@pytest.mark.mpi
def test_unknowns_are_shared_out_evenly_and_once():
    basis = BASES["triangles"]
    space = FiniteElements(basis)
    sizes = space.comm.tompi4py().allgather(space.state.getLocalSize())
    assert sum(sizes) == basis.N
    assert max(sizes) < 1.5 * basis.N / space.comm.size
    numbers = np.arange(basis.N, dtype=float)
    assert np.array_equal(np.sort(gather(space.from_values(numbers))), numbers)


@pytest.mark.parametrize("parts", [2, 3, 5])
def test_bisection_makes_parts_of_the_same_size_in_boxes(parts):
    places = np.random.default_rng(1).uniform(size=(60, 2)) * (3.0, 1.0)
    owners = bisected(places, parts)
    assert set(np.bincount(owners)) == {60 // parts}
    # the first cut is across the longer side
    first = owners < parts // 2
    assert places[first, 0].max() < places[~first, 0].min()


def test_values_and_slopes_at_points_are_those_of_the_function():
    basis = BASES["triangles"]
    space = FiniteElements(basis, comm=SELF)
    points = space.inside
    u = space.interpolate(lambda x: 1.0 + 2.0 * x[0] - x[0] * x[1])
    value, along_x, along_y = np.split((points.rows @ space.coefficients(u))[:, 0], 3)
    x, y = points.x.T
    assert np.allclose(value, 1.0 + 2.0 * x - x * y)
    assert np.allclose(along_x, 2.0 - y)
    assert np.allclose(along_y, -x)
    assert np.isclose(points.weights.sum(), 1.0)


def test_normals_point_outwards():
    points = FiniteElements(BASES["triangles"], comm=SELF).boundary("left")
    assert np.array_equal(points.normal, np.tile((-1.0, 0.0), (len(points.x), 1)))
    assert np.isclose(points.weights.sum(), 1.0)
    assert not points.x[:, 0].any()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"basis": "P2"}, r"basis = 'P2'[\s\S]*skfem.Basis"),
        ({"basis": skfem.Basis(TRIANGLES, skfem.ElementTriRT1())}, "ElementTriRT1"),
        ({"basis": skfem.Basis(TRIANGLES, skfem.ElementTriMorley())}, "ElementTriMorley"),
        ({"fields": 0}, "fields = 0"),
        ({"dirichlet": {"lft": 0.0}}, r'no boundary "lft".*left'),
        ({"dirichlet": {"left": (0.0, 1.0)}}, r"dirichlet\['left'\] has 2 parts"),
        ({"dirichlet": {"left": lambda _x: np.zeros(3)}}, r"dirichlet\['left'\].*\(3,\)"),
    ],
)
def test_what_makes_no_space_is_refused(change, words):
    arguments = {"basis": BASES["triangles"], "comm": SELF} | change
    with pytest.raises(InputError, match=words):
        FiniteElements(**arguments)


def test_states_of_other_shapes_are_refused():
    space = FiniteElements(BASES["triangles"], ("a", "b"), comm=SELF)
    with pytest.raises(InputError, match="has 1 parts"):
        space.interpolate(lambda x: [x[0]])
    with pytest.raises(InputError, match="nan"):
        space.interpolate(lambda x: (x[0], np.nan * x[0]))
