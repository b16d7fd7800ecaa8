"""What drivers/tissue.py finds on grids of two and three dimensions, on one rank and on two.

python scripts/bench/tissue.py [--output results.json] [--folder FOLDER]
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from daeosens.io import read_array

ROOT = Path(__file__).resolve().parents[2]
RUNS = (("tissue", 1), ("tissue", 2), ("tissue_3d", 1))


def main() -> None:
    """Run the driver and print."""
    parser = argparse.ArgumentParser(description="The diffusivity of a tissue, and two rates.")
    parser.add_argument("--output", type=Path, help="JSON file")
    parser.add_argument("--repeat", type=int, default=1, help="of no effect: one run of each")
    parser.add_argument("--folder", type=Path, help="of the results; a temporary one by default")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder: Path = arguments.folder or Path(temporary)
        rows: list[dict[str, Any]] = []
        for config, ranks in RUNS:
            seconds = run(config, ranks, folder / f"{config}-{ranks}")
            rows.append(row(folder / f"{config}-{ranks}", seconds, folder / f"{config}-1"))
            print(*rows[-1].values(), sep="  ", flush=True)
    if arguments.output is not None:
        arguments.output.write_text(json.dumps(rows, indent=1) + "\n")


def run(config: str, ranks: int, folder: Path) -> float:
    """Run the driver; return seconds of processor time of all ranks."""
    driver, toml = ROOT / "drivers" / "tissue.py", ROOT / "configs" / f"{config}.toml"
    many = ["mpiexec", "-n", str(ranks)] if ranks > 1 else []
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    command = [*many, sys.executable, str(driver), str(toml), "--output", str(folder)]
    # this process is an MPI program of one rank itself, and os.environ is what was before it was
    subprocess.run(command, check=True, env=os.environ)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime - before.ru_utime


def row(folder: Path, processor_seconds: float, reference: Path) -> dict[str, Any]:
    """Return what a run found, and how far it is from that on one rank in standard deviations."""
    summary = json.loads((folder / "summary.json").read_text())
    facts = summary["facts"]["tissue"]
    field, deviation, other = (
        read_array(place / "results.h5", name)
        for place, name in ((folder, "log_k"), (folder, "sd"), (reference, "log_k"))
    )
    other_deviation = read_array(reference / "results.h5", "sd")
    return {
        "points": "x".join(str(n) for n in reversed(field.shape[:-1])),
        "ranks": summary["ranks"],
        "processor seconds": processor_seconds,
        "Gauss-Newton steps": facts["iterations"],
        "products with the Hessian": facts["counts"]["tangents"],
        "error beside prior": facts["error_beside_prior"],
        "within one deviation": facts["within_1"],
        "within two": facts["within_2"],
        "mean square": facts["mean_square"],
        **{
            name: facts[rate][part]
            for rate in ("eps", "b")
            for name, part in ((rate, "estimate"), (f"deviation of log {rate}", "sd_of_log"))
        },
        "field from one rank": float(np.abs((field - other) / deviation).max()),
        "deviation from one rank": float(np.abs(deviation / other_deviation - 1.0).max()),
    }


if __name__ == "__main__":
    main()
