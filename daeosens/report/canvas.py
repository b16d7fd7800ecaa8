"""What all figures share: colours, letter sizes, writing a file.

Nothing here touches pyplot or any other global state of matplotlib.
"""

from __future__ import annotations

import io
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import matplotlib as mpl
from matplotlib.figure import Figure

from daeosens.errors import DaeosensError
from daeosens.io.files import replace_file

COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
"""Okabe and Ito's colours, which readers of all kinds of sight can tell apart."""
MARKERS = "os^Dv<>"
STYLE: Any = {
    "font.family": "DejaVu Sans",
    "font.size": 9.0,
    "axes.titlesize": 9.0,
    "axes.labelsize": 9.0,
    "axes.linewidth": 0.6,
    "axes.axisbelow": True,
    "grid.color": "0.9",
    "grid.linewidth": 0.6,
    "legend.frameon": False,
    "legend.fontsize": 8.5,
    "lines.linewidth": 1.4,
    "lines.markersize": 4.5,
    "xtick.major.width": 0.6,
    "ytick.major.width": 0.6,
    "savefig.dpi": 200,
}


@contextmanager
def canvas(
    path: Path,
    size: tuple[float, float],
    *,
    boxed: bool = False,
    layout: Literal["constrained", "compressed"] = "constrained",
) -> Generator[Figure, None, None]:
    """Give an empty figure to draw on, and write it at the end of the block.

    Parameters
    ----------
    path : Path
        The file; its suffix says the format (png, pdf, svg).
    size : (float, float)
        Width and height [inch], without the margins that are cut off.
    boxed : bool
        Draw all four sides of the axes.
    layout : str
        "compressed" for several axes of fixed aspect.

    Raises
    ------
    DaeosensError
        The file cannot be written.
    """
    with mpl.rc_context({**STYLE, "axes.spines.top": boxed, "axes.spines.right": boxed}):
        figure = Figure(figsize=size, layout=layout)
        yield figure
        image = io.BytesIO()
        try:
            kind = path.suffix.removeprefix(".") or None
            figure.savefig(image, format=kind, bbox_inches="tight", pad_inches=0.05)
        except ValueError as error:
            raise DaeosensError(
                f"{path}: the figure cannot be written ({error})",
                expected="a writable folder, and a suffix such as .png, .pdf, .svg",
                remedy=f"{path.with_suffix('.png').name} in a results folder",
            ) from error
        replace_file(path, image.getbuffer())
