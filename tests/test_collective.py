"""What all ranks have to call together says so: the public surface is walked."""

import ast
import inspect
import textwrap

import pytest
from public_names import is_collective, says, surface, underlying

EXCHANGES = {"allgather", "allreduce", "Allgather", "Allreduce", "Barrier", "bcast", "norm", "dot"}
"""Methods of communicators and vectors in which ranks wait for each other."""


def waits_in(function):
    """Return what a function calls in which ranks wait for each other."""
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
    except OSError:  # made by a dataclass
        return set()
    names = set()
    for node in (node for node in ast.walk(tree) if isinstance(node, ast.Call)):
        call = node.func
        if isinstance(call, ast.Name):
            known = function.__globals__.get(call.id)
            own = getattr(known, "__module__", "").startswith("daeosens")
            # problems of one rank, unless they are given a communicator
            alone = call.id in ("ODE", "DAE") and "comm" not in {word.arg for word in node.keywords}
            alone |= "MPI.COMM_SELF" in [ast.unparse(argument) for argument in node.args]
            if own and inspect.isfunction(known) and is_collective(known) and not alone:
                names.add(call.id)
        elif isinstance(call, ast.Attribute) and call.attr in EXCHANGES:
            of_numpy = ast.unparse(call.value) in ("np", "np.linalg")
            names |= set() if of_numpy else {call.attr}
    return names


MEMBERS = {name: (owner, member) for name, owner, member in surface()}
WAITING = {
    name: waits for name, (_, member) in MEMBERS.items() if (waits := waits_in(underlying(member)))
}


def test_the_walk_sees_something():
    assert len(MEMBERS) > 200
    assert len(WAITING) > 40
    assert {"adjoint", "solve", "derivatives.Gradient.gather", "Reduced.value_and_gradient"} <= set(
        WAITING
    )
    own = {"Gradient.u0", "Gradient.p", "HessianProduct.p"}
    assert not {f"derivatives.{name}" for name in own} & set(WAITING)
    assert "timestepping.Trajectory.u" not in WAITING


@pytest.mark.whole
@pytest.mark.parametrize("name", WAITING)
def test_what_is_collective_says_so(name):
    owner, member = MEMBERS[name]
    text = f"{name} calls {', '.join(WAITING[name])}"
    assert says(member) or says(underlying(member)) or (owner and says(owner)), text
