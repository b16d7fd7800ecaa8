"""Every public call, made by one rank of two alone: collective ones are named, and nobody waits."""

import inspect
import re
from pathlib import Path

import pytest
from public_names import public_names, says, underlying

PROGRAM = Path(__file__).parents[1] / "support" / "alone.py"
FOUND = re.compile(r"found: .*rank 0 has waited 0\.02 s for other ranks of 2, which do not make")

SHARED = re.compile(
    r"\b(Problem|Model|Trajectory|Functional|Has\w+|Reduced|Joint|Tangent|Gradient|HessianProduct|"
    r"GaussianPrior|Posterior|Grid|Vec|Mat|DM|Comm|Intracomm|Results)\b"
)
"""Types of what may live on several ranks: a function of them may communicate."""

SERIAL = {
    "ConstrainedResult": "numbers, and a vector",
    "DDE": "NumPy style only: each rank has the whole problem",
    "EventTime": "names an event",
    "feature_library": "of arrays",
    "Native": "an address",
    "Products": "two functions",
}
"""What takes callbacks of vectors, or nothing that is shared, and why it is not tried."""


@pytest.fixture(scope="module")
def outcomes(run_mpi):
    """What came of each call, by its name, and what the program says of itself."""
    job = run_mpi(2, [PROGRAM])
    lines = dict(line.split(" -> ", 1) for line in job.stdout.splitlines() if " -> " in line)
    kinds = dict(line.split(": ", 1) for line in job.stdout.splitlines()[:3])
    about = {kind: [name for name in text.split(" | ") if name] for kind, text in kinds.items()}
    return lines, about, job.stderr[-2000:]


def untold(lines, names, *fine):
    """Return what came of those calls that neither ended as is fine nor were told of."""
    came = {name: lines.get(name, "waits for ever") for name in names}
    return {name: told for name, told in came.items() if told not in fine and not FOUND.match(told)}


@pytest.mark.slow
def test_a_rank_that_is_alone_is_told_which_call_it_is_alone_with(outcomes):
    lines, about, stderr = outcomes
    assert len(about["collective"]) > 80
    assert not untold(lines, about["collective"]), stderr


def test_other_calls_return_or_are_told_as_well(outcomes):
    lines, about, stderr = outcomes
    assert len(about["local"]) > 100
    assert not untold(lines, about["local"], "ended"), stderr
    assert not about["untried"], "say in alone.py with which arguments these are called"


def test_what_one_rank_cannot_call_alone_says_that_it_is_collective(outcomes):
    lines, *_ = outcomes
    public = {name.rpartition(".")[2]: value for name, value in public_names().items()}
    silent = []
    for name in (name for name, told in lines.items() if FOUND.match(told)):
        owner, _, key = name.partition(".")
        known = public.get(owner)  # "run(t)", "scipy_functions: value" are not names
        if known is not None and not says(known):
            member = inspect.getattr_static(known, key) if key else None
            if member is None or not says(underlying(member)):
                silent.append(name)
    assert not silent


def test_every_public_call_that_could_communicate_is_tried(outcomes):
    """Enter what is new in alone.py: among the collective calls, or among the local ones."""
    lines, *_ = outcomes
    missing = []
    for name, value in public_names().items():
        short = name.rpartition(".")[2]
        if short in SERIAL or short.endswith(("Error", "Warning")):
            continue
        if inspect.isclass(value):
            made = any(line.startswith(f"{short}.") for line in lines)
            told = [str(kind) for kind in getattr(value, "__annotations__", {}).values()]
        elif inspect.isfunction(value):
            made = short in lines
            told = [str(kind) for kind in value.__annotations__.values()]
        else:
            continue
        if not made and any(SHARED.search(text) for text in told):
            missing.append(name)
    assert not missing
