"""The core model of E. coli that cobra ships, and the uptake of xylose, which it has not."""

from __future__ import annotations

import gzip
import importlib.util
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree as ET

import numpy as np

SBML = "{http://www.sbml.org/sbml/level3/version1/core}"
FBC = "{http://www.sbml.org/sbml/level3/version1/fbc/version2}"

XYLOSE = {
    "EX_xyl__D_e": ({"xyl__D_e": -1}, 0.0, 1000.0),
    "XYLt2": ({"xyl__D_e": -1, "h_e": -1, "xyl__D_c": 1, "h_c": 1}, 0.0, 1000.0),
    "XYLI1": ({"xyl__D_c": -1, "xylu__D_c": 1}, -1000.0, 1000.0),
    "XYLK": (
        {"xylu__D_c": -1, "atp_c": -1, "xu5p__D_c": 1, "adp_c": 1, "h_c": 1},
        0.0,
        1000.0,
    ),
}
"""Exchange, symport with a proton, isomerase and kinase."""


@dataclass(frozen=True)
class Network:
    """Stoichiometric matrix [m, n] with the names of its columns, and their bounds."""

    matrix: np.ndarray
    flows: list[str]
    lower: np.ndarray
    upper: np.ndarray


def e_coli_core(*, xylose: bool = True) -> Network:
    """Read the file from where cobra is installed (pip install --no-deps cobra is enough)."""
    spec = importlib.util.find_spec("cobra")
    if spec is None or not spec.submodule_search_locations:
        raise ModuleNotFoundError("the core model of E. coli comes with cobra")
    path = Path(spec.submodule_search_locations[0]) / "data" / "textbook.xml.gz"
    model = ET.fromstring(gzip.decompress(path.read_bytes())).find(f"{SBML}model")
    values = {item.get("id"): float(item.get("value")) for item in model.iter(f"{SBML}parameter")}
    reactions = {}
    for item in model.iter(f"{SBML}reaction"):
        entries = {}
        for sign, side in ((-1.0, "listOfReactants"), (1.0, "listOfProducts")):
            listed = item.find(f"{SBML}{side}")
            for species in () if listed is None else listed:
                name = species.get("species").removeprefix("M_")
                entries[name] = entries.get(name, 0.0) + sign * float(species.get("stoichiometry"))
        bounds = [values[item.get(f"{FBC}{side}FluxBound")] for side in ("lower", "upper")]
        reactions[item.get("id").removeprefix("R_")] = (entries, *bounds)
    if xylose:
        reactions |= XYLOSE
    metabolites = sorted({name for entries, _, _ in reactions.values() for name in entries})
    rows = {name: k for k, name in enumerate(metabolites)}
    matrix = np.zeros((len(rows), len(reactions)))
    for column, (entries, _, _) in enumerate(reactions.values()):
        for name, count in entries.items():
            matrix[rows[name], column] = count
    lower, upper = (np.array([reaction[k] for reaction in reactions.values()]) for k in (1, 2))
    return Network(matrix, list(reactions), lower, upper)
