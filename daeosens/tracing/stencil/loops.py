"""C source of functions of a point: their loops over all points of a box, and what these need."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import resources
from math import prod

from daeosens.tracing.casadi import casadi
from daeosens.tracing.stencil.chain import chain_function
from daeosens.tracing.stencil.derivatives import PointFunction
from daeosens.tracing.stencil.rows import INLINE, Rows, addends, without_tiny

HEADERS = ("stencil.h", "stencil_chain.h")
"""Of ``petsc/_kernels/grids``, which the source begins with."""

LARGE = 1 << 16
"""Numbers of a state above which caches may not hold what a run keeps."""


def point_source(
    boxes: Sequence[PointFunction],
    chains: Sequence[PointFunction],
    dof: int,
    shape: tuple[int, ...],
) -> str:
    """Return C source in which functions become loops.

    Of the shape of the whole grid it depends on how many dimensions there are, and whether it is
    large.

    Parameters
    ----------
    boxes : sequence of PointFunction
        Each ``name`` becomes ``void daeosens_name(const Box *)``, see ``_kernels/grids/stencil.h``.
    chains : sequence of PointFunction
        Each becomes ``daeosens_chain_name``, see ``stencil_chain.h`` there.
    dof : int
    shape : tuple of int
    """
    functions = [*boxes, *(function for function in chains if function not in boxes)]
    # CasADi prints the scalar function, the loops around it are ours
    generator = casadi.CodeGenerator("points.c", {"with_header": False, "verbose": False})
    for function in functions:
        generator.add(function.function)
    # compilers vectorise loops only if all that they call is put in its place
    scalars = generator.dump().replace("static int casadi_f", f"{INLINE} int casadi_f")
    known = {"DOF": dof, "DIMENSIONS": len(shape), "LARGE": dof * prod(shape) > LARGE}
    lines = [
        *(f"#define {name} {value:d}" for name, value in known.items()),
        *(header(name) for name in HEADERS),
        f"#define CASADI_SYMBOL_EXPORT {INLINE}",
        "#pragma GCC visibility push(hidden)",
        scalars,
        "#pragma GCC visibility pop",
    ]
    for function in functions:
        rows = Rows(function, dof, len(shape))
        lines += rows.function()
        if function in boxes:
            lines += _box_function(rows)
        if function in chains:
            lines += chain_function(rows)
    return "\n".join(lines)


def header(name: str) -> str:
    """Return a header of ``petsc/_kernels/grids``, without what another one there holds."""
    text = resources.files("daeosens.petsc._kernels.grids").joinpath(name).read_text()
    return text.replace('#include "stencil.h"', "")


def _box_function(rows: Rows) -> list[str]:
    function = rows.point_function
    name, values, most = function.name, function.n_out, max(addends(function))
    lines = [
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
        f"APART void all_{name}(const Box *b) {{",
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
    return [*lines, "}", *without_tiny(f"void daeosens_{name}(const Box *b)", f"all_{name}(b)")]
