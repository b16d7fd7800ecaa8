"""C source of the stages of a step at once: ``_kernels/grids/stencil_chain.h`` for one function."""

from __future__ import annotations

from daeosens.tracing.stencil.derivatives import PointFunction
from daeosens.tracing.stencil.rows import INLINE, Rows, line_numbers, without_tiny

MOST_STAGES = 4
"""Of methods whose stages each read the rate of the one before only."""

MOST_NUMBERS = 1 << 20
"""In all rings: what does not fit into a cache is quicker stage by stage."""


def chained(function: PointFunction) -> int | None:
    """Return which vector each stage fills for the next one; None: it reads no neighbours."""
    vector = {"rhs": 0, "pull": 1, "pull_all": 1}.get(function.name)
    return vector if vector is not None and any(function.widths(vector)) else None


def chain_size(function: PointFunction, dof: int, points: tuple[int, ...]) -> int:
    """Return how many numbers the stages need as work space for a box; 0: they are not for it."""
    vector, rows = chained(function), Rows(function, dof, len(points))
    if vector is None:
        return 0
    reach = rows.kept[vector][2]
    slab = rows.size([vector], points) // (2 * reach + 1)
    # a stage lags behind the one before it by the stencil's reach: a ring of that many rows, a
    # power of two so that its index is a mask, holds what is still read
    depth = 1 << (MOST_STAGES * reach).bit_length()
    rings = MOST_STAGES * (depth + (MOST_STAGES - 1) * reach) * slab
    # fewer rows than the last stage lags behind the first, or rings that no cache holds
    if points[-1] < MOST_STAGES * reach or rings > MOST_NUMBERS:
        return 0
    others = [k for k in rows.kept if k != vector]
    return 2 * slab + rings + MOST_STAGES * line_numbers(rows.size(others, points))


def chain_function(rows: Rows) -> list[str]:
    """Return the source of ``void daeosens_chain_NAME(const Box *calls, int count)``."""
    name, dof, vector = rows.point_function.name, rows.dof, chained(rows.point_function)
    assert vector is not None
    others = [k for k in rows.kept if k != vector]
    twice = "!LARGE" if name == "rhs" else "0"  # only stages of a run are kept
    place = (
        "const Box *b, const Chain *chain, double *work, long i, long s,\n"
        "  const double *const *near, const double *const *add, double *to, double *values"
    )
    lines = [
        f"{INLINE} void slab_{name}({place}, const int apart, const int addends) {{",
        "  const long n = b->n[0], middles = MIDDLES(b), slows = b->n[2];",
        *rows.declarations(others),
        *rows.reading(others),
        "  for (long m = 0; m < middles; m++) {",
        "      const long at = (s * middles + m) * n, row = m * chain->length;",
        "      const double *add_row[ADDENDS];",
        "      for (int k = 0; k < addends; k++) add_row[k] = add[k] + row;",
        f"      double *out = apart ? to + row : b->out + {dof} * at;",
        *rows.call(
            "add_row, 1, chain->skip",
            f"out, apart ? 1 : {dof}, apart ? chain->skip : 1",
            vector,
            f"values + (b->out ? {dof} * m * n : 0)",
            f"apart && {twice}",
        ),
        "  }",
        "}",
    ]
    for kind, apart, addends in (("inner", 1, "1"), ("last", 0, "ADDENDS")):
        lines += [
            f"static void {kind}_{name}({place}) {{",
            f"  slab_{name}(b, chain, work, i, s, near, add, to, values, {apart}, {addends});",
            "}",
        ]
    widths = ", ".join(map(str, (vector, *rows.kept[vector])))
    own = "".join(
        f" + {(2 * s + 1) * dof} * (middles + {2 * m}) * LENGTH(n, {w})"
        for w, m, s in (rows.kept[k] for k in others)
    )
    return [
        *lines,
        f"APART void chain_{name}(const Box *calls, int count) {{",
        "  const long n = calls->n[0], middles = MIDDLES(calls);",
        f"  const long own = MARGIN({rows.point_function.n_sums} * n{own});",
        f"  const SlabFunction inner = inner_{name}, last = last_{name};",
        *(  # what compilers know is not computed for each row
            f"  if (count == {count}) call_chain(calls, {count}, {widths}, own, inner, last);"
            for count in (2, 4)
        ),
        "}",
        *without_tiny(
            f"void daeosens_chain_{name}(const Box *calls, int count)",
            f"chain_{name}(calls, count)",
        ),
    ]
