"""Standard errors and intervals of drivers/lynx_hare.py that docs/uncertainty.md shows; no times.

python scripts/bench/lynx_intervals.py [--output results.json]
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "drivers"))

import lynx_hare as study

import daeosens as ds
from daeosens.io import read_config

CONFIG = Path(__file__).resolve().parents[2] / "configs" / "lynx_hare.toml"


def main() -> None:
    """Fit and print."""
    parser = argparse.ArgumentParser(description="How well the rates of lynx and hare are known.")
    parser.add_argument("--output", type=Path, help="JSON file")
    parser.add_argument("--repeat", type=int, default=1, help="of no effect: nothing is timed")
    arguments = parser.parse_args()
    config = read_config(CONFIG, study.Config)
    fitted = ds.fit(
        *study.model(config),
        noise=study.NOISE,
        priors=study.PRIORS,
        gradient_tolerance=1e-6,
    )
    names = study.NAMES[:4]
    profiles = fitted.profile(names, points=config.profiles, tolerance=1e-2)
    intervals = fitted.intervals()
    rows: list[dict[str, Any]] = []
    for name, (_, published) in zip(names, study.BAYESIAN, strict=True):
        lower, upper = intervals[name]
        lowest, highest = profiles[name].interval
        rows.append(
            {
                "parameter": name,
                "estimate": fitted.estimate[name],
                "standard_error": fitted.covariance.error(name),
                "published_deviation": published,
                "lower": lower,
                "upper": upper,
                "profile_lower": lowest,
                "profile_upper": highest,
                "symmetric_misses": profiles[name].symmetric_mismatch,
            }
        )
        print(*rows[-1].values(), sep="  ", flush=True)
    if arguments.output is not None:
        arguments.output.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
