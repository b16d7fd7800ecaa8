"""XDMF: a small XML file beside results.h5 from which ParaView shows fields on a uniform grid.

The arrays stay in the HDF5 file (also virtual ones, whose blocks lie in several files); the XDMF
file names them relatively, so the folder can be moved.
"""

from __future__ import annotations

import os
import xml.etree.ElementTree as ET
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from daeosens.errors import InputError, is_iterable, name_list, real_number, require
from daeosens.io.files import admit_path, replace_file
from daeosens.io.hdf5 import dataset_shape
from daeosens.io.vec_series import read_small
from daeosens.petsc.vectors import finite_array


@dataclass(frozen=True)
class Snapshot:
    """Fields at one time.

    Parameters
    ----------
    time : float
        The time that ParaView shows.
    fields : Mapping of str to str
        Name in ParaView -> dataset [ny, nx, dof] or [ny, nx] of the HDF5 file, [nz, ny, nx, dof] or
        [nz, ny, nx] in three dimensions.
    """

    time: float
    fields: Mapping[str, str]

    def __post_init__(self) -> None:
        object.__setattr__(self, "time", real_number(self.time, "the time of a snapshot"))
        require(self.fields, Mapping, "fields", '{"u": "fields/u"}')
        if not self.fields:
            raise InputError("fields is empty", expected="names and datasets")
        name_list(self.fields, "names of fields")
        name_list(self.fields.values(), "datasets of fields")


@dataclass(frozen=True)
class UniformGrid:
    """Where the points of a field are: point [j, i] lies at origin + (i, j) * spacing.

    Parameters
    ----------
    spacing : tuple of float
        (dx, dy) or (dx, dy, dz).
    origin : tuple of float, optional
        (x, y) or (x, y, z) of the first point; zeros by default.
    """

    spacing: tuple[float, ...]
    origin: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        spacing = finite_array(self.spacing, "spacing")
        if spacing.shape not in ((2,), (3,)):
            raise InputError(f"spacing = {self.spacing!r}", expected="(dx, dy) or (dx, dy, dz)")
        origin = finite_array(self.origin, "origin")
        if not origin.size:
            origin = np.zeros(spacing.size)
        origin = finite_array(origin, "origin", spacing.shape)
        object.__setattr__(self, "spacing", tuple(spacing.tolist()))
        object.__setattr__(self, "origin", tuple(origin.tolist()))


def write_xdmf(
    path: str | os.PathLike[str],
    hdf5: str | os.PathLike[str],
    grid: UniformGrid,
    snapshots: Sequence[Snapshot] | None = None,
    components: Sequence[str] = (),
) -> Path:
    """Write an XDMF file for fields of an HDF5 file.  Not collective: ``results.once(...)``.

    Of a run that ``save_run`` has written it shows all states: ``write_xdmf("run.xdmf", "run.h5",
    UniformGrid(grid.spacing, grid.origin))``.

    Parameters
    ----------
    path : path or str
        The file to write, ``*.xdmf``.
    hdf5 : path or str
        The file that holds the datasets, best in the same folder.
    grid : UniformGrid
        Where the points are.
    snapshots : sequence of Snapshot, optional
        One or, for a time series, several; by default the states of a saved run, as field "u".  Of
        two states at one time, before and after an event, it is the latter.
    components : sequence of str
        Names of the last axis, [dof] entries: field "true" becomes "true_u", "true_v".  By default
        numbers, of a saved run.

    Returns
    -------
    Path
        ``path``.

    Raises
    ------
    InputError
        A dataset is missing, or has another number of axes or components.
    """
    path, hdf5 = admit_path(path, "path"), admit_path(hdf5, "hdf5")
    require(grid, UniformGrid, "grid", "UniformGrid(spacing=(0.1, 0.1))")
    letters = list(components) if isinstance(components, str) else components
    components = name_list(letters, "components")
    if snapshots is None:
        frames, components = _states(hdf5, len(grid.spacing), components)
    else:
        if not is_iterable(snapshots):
            raise InputError(f"snapshots = {snapshots!r}", expected="a sequence of Snapshot")
        frames = list[_Frame]()
        for snapshot in list(snapshots):
            require(snapshot, Snapshot, "an entry of snapshots", 'Snapshot(0.0, {"u": "fields/u"})')
            frames.append(_Frame(snapshot.time, snapshot.fields))
    root = ET.Element("Xdmf", Version="3.0")
    domain = ET.SubElement(root, "Domain")
    series = ET.SubElement(
        domain, "Grid", Name="series", GridType="Collection", CollectionType="Temporal"
    )
    for number, frame in enumerate(frames):
        element = ET.SubElement(series, "Grid", Name=f"grid{number}", GridType="Uniform")
        ET.SubElement(element, "Time", Value=repr(float(frame.time)))
        fixed = () if frame.state is None else (frame.state,)
        shapes = {name: dataset_shape(hdf5, name) for name in frame.fields.values()}
        points = next(iter(shapes.values()))[len(fixed) :][: len(grid.spacing)]
        _add_points(element, grid, points)
        for shown, dataset in frame.fields.items():
            shape = shapes[dataset]
            _check_shape(hdf5, dataset, shape[len(fixed) :], points, components, len(grid.spacing))
            source = f"{os.path.relpath(hdf5, path.parent)}:/{dataset}"
            if shape == points:
                _add_plain(_add_attribute(element, shown), source, shape)
            else:
                for index, component in enumerate(components):
                    attribute = _add_attribute(element, f"{shown}_{component}")
                    _add_slab(attribute, source, shape, fixed, index)
    ET.indent(root)
    replace_file(path, ET.tostring(root, encoding="utf-8", xml_declaration=True))
    return path


@dataclass(frozen=True)
class _Frame:
    """Fields at one time; with ``state`` datasets have several, and it is the number of one."""

    time: float
    fields: Mapping[str, str]
    state: int | None = None


def _states(
    hdf5: Path, dimensions: int, components: Sequence[str]
) -> tuple[list[_Frame], Sequence[str]]:
    """Return the states of a saved run, and the names of the components."""
    shape = dataset_shape(hdf5, "states")
    times = read_small(hdf5, "times")
    # all states, the axes of the grid, the components
    if len(shape) != dimensions + 2 or len(times) != shape[0]:
        raise InputError(
            f'{hdf5}: dataset "states" has shape {list(shape)}',
            expected="states of a run on a grid, from timestepping.save_run, with as many axes as "
            f"spacings ({dimensions})",
        )
    # the last one of those at one time
    last = np.append(np.diff(times) > 0.0, True)
    frames = [
        _Frame(float(times[number]), {"u": "states"}, number)
        for number in np.flatnonzero(last).tolist()
    ]
    return frames, components or [str(number) for number in range(shape[-1])]


def _check_shape(
    hdf5: Path,
    dataset: str,
    shape: tuple[int, ...],
    points: tuple[int, ...],
    components: Sequence[str],
    dimensions: int,
) -> None:
    expected = [list(points), [*points, len(components)]]
    if list(shape) not in expected or len(points) != dimensions:
        raise InputError(
            f'{hdf5}: dataset "{dataset}" has shape {list(shape)}',
            expected=f"shape {expected[0]} or {expected[1]} (components: {list(components)})",
            remedy="one grid for all fields of a snapshot; one component name for each unknown",
        )


def _add_points(element: ET.Element, grid: UniformGrid, shape: tuple[int, ...]) -> None:
    """Add a grid, one point thick in the plane: every XDMF reader knows it, not the flat kind."""
    thick = [1] * (3 - len(shape))
    size = _text((*thick, *shape))
    ET.SubElement(element, "Topology", TopologyType="3DCoRectMesh", Dimensions=size)
    geometry = ET.SubElement(element, "Geometry", GeometryType="ORIGIN_DXDYDZ")
    # XDMF counts axes from the slowest: z, y, x, as the arrays [ny, nx] do.
    of_plane = [0.0] * len(thick), [1.0] * len(thick)
    for more, values in zip(of_plane, (grid.origin[::-1], grid.spacing[::-1]), strict=True):
        item = ET.SubElement(geometry, "DataItem", Format="XML", Dimensions="3")
        item.text = _text((*more, *values))


def _add_attribute(element: ET.Element, name: str) -> ET.Element:
    return ET.SubElement(element, "Attribute", Name=name, AttributeType="Scalar", Center="Node")


def _add_plain(element: ET.Element, source: str, shape: tuple[int, ...]) -> None:
    item = ET.SubElement(
        element,
        "DataItem",
        Format="HDF",
        NumberType="Float",
        Precision="8",
        Dimensions=_text(shape),
    )
    item.text = source


def _add_slab(
    element: ET.Element, source: str, shape: tuple[int, ...], first: tuple[int, ...], index: int
) -> None:
    """Add component ``index`` of the last axis, as start, stride and count of the dataset.

    ``first`` are the indices along the axes before those of the points.
    """
    points = shape[len(first) : -1]
    # VTK 9.7's reader complains when the slab's own size does not match the points
    size = _text((*[1] * (3 - len(points)), *points))
    slab = ET.SubElement(element, "DataItem", ItemType="HyperSlab", Dimensions=size)
    region = ET.SubElement(slab, "DataItem", Format="XML", Dimensions=f"3 {len(shape)}")
    # Rows: where the slab starts, its strides, how many entries it has.
    none = [0] * len(points)
    rows = ((*first, *none, index), [1] * len(shape), (*[1] * len(first), *points, 1))
    region.text = " ".join(_text(row) for row in rows)
    _add_plain(slab, source, shape)


def _text(values: Sequence[float]) -> str:
    return " ".join(repr(value) for value in values)
