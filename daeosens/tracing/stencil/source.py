"""C source of functions of a grid's points: loops over a rank's box, for compilers to vectorise."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import resources
from math import prod

from daeosens.tracing.casadi import casadi
from daeosens.tracing.stencil.chain import chain_function, chained
from daeosens.tracing.stencil.derivatives import PointFunction
from daeosens.tracing.stencil.rows import INLINE, Rows, addends

HEADERS = ("stencil.h", "stencil_chain.h", "bicgstab.h")
"""Of ``petsc/_kernels/grids``, which the source begins with."""

LARGE = 1 << 16
"""Numbers of a state above which caches may not hold what a run keeps."""


def stencil_source(functions: Sequence[PointFunction], dof: int, shape: tuple[int, ...]) -> str:
    """Return the C source: each function ``name`` becomes ``void daeosens_name(const Box *)``.

    The type Box is that of ``_kernels/grids/stencil.h``.  What can be the stages of a step
    becomes ``daeosens_chain_name`` too, see ``stencil_chain.h`` there; beside them are the loops
    of ``bicgstab.h``.

    Of the shape of the whole grid it depends on how many dimensions there are, and
    whether it is large.
    """
    dimensions = len(shape)
    folder = resources.files("daeosens.petsc._kernels.grids")
    headers = [folder.joinpath(name).read_text() for name in HEADERS]
    headers = [header.replace('#include "stencil.h"', "") for header in headers]
    # CasADi prints the scalar function, the loops around it are ours
    generator = casadi.CodeGenerator("points.c", {"with_header": False, "verbose": False})
    for function in functions:
        generator.add(function.function)
    # compilers vectorise loops only if all that they call is put in its place
    scalars = generator.dump().replace("static int casadi_f", f"{INLINE} int casadi_f")
    hidden = [
        f"#define CASADI_SYMBOL_EXPORT {INLINE}",
        "#pragma GCC visibility push(hidden)",
        scalars,
        "#pragma GCC visibility pop",
    ]
    known = {"DOF": dof, "DIMENSIONS": dimensions, "LARGE": dof * prod(shape) > LARGE}
    sizes = [f"#define {name} {value:d}" for name, value in known.items()]
    loops = [_loops(Rows(function, dof, dimensions)) for function in functions]
    return "\n".join([*sizes, *headers, *hidden, *loops])


def work_size(functions: Sequence[PointFunction], dof: int, points: tuple[int, ...]) -> int:
    """Return how many numbers a function needs as work space for a box of points.

    It is to begin on a cache line, and ends on one.
    """
    rows = [Rows(function, dof, len(points)) for function in functions]
    return max(row.size(row.kept, points) for row in rows)


def _loops(rows: Rows) -> str:
    function = rows.point_function
    name, values, most = function.name, function.n_out, max(addends(function))
    lines = [
        *rows.function(),
        f"{INLINE} void box_{name}(const Box *b, const int addends) {{",
        "  const long n = b->n[0], middles = MIDDLES(b), slows = b->n[2];",
        "  double *work = b->work;",
        *rows.declarations(rows.kept),
        "  for (long i = b->from; i < b->to; i++) {",
        "    const long s = around(b->begin + i, slows);",
        *rows.reading(rows.kept),
        "    for (long m = 0; m < middles; m++) {",
        "      const long at = (s * middles + m) * n;",
        f"      const double *add[{most + 1}];",
        f"      for (int k = 0; k < addends; k++) add[k] = b->add[k] + {values} * at;",
        *rows.call(f"add, {values}, 1", f"b->out + {values} * at, {values}, 1"),
        "    }",
        "  }",
        "}",
        f"void daeosens_{name}(const Box *b) {{",
        f"  if (b->addends == 0) box_{name}(b, 0);",
    ]
    if function.added:
        # numbers of addends that occur are compiled in, so that inner loops have no branch
        lines += [
            f"  if (b->addends == 1) box_{name}(b, 1);",
            "  if (b->addends > 1) {",
            "    const Box all = with_all_addends(b);",
            f"    box_{name}(&all, ADDENDS);",
            "  }",
        ]
    lines += ["}"]
    return "\n".join([*lines, *(chain_function(rows) if chained(function) is not None else ())])
