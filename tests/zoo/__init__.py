"""Ordinary problems that other tools use as tests and examples, as their users write them."""

import json
from pathlib import Path

from zoo import (
    biology,
    chemistry,
    detest,
    electrical,
    engineering,
    hybrid,
    mechanics,
    pde,
    sciences,
)
from zoo.case import Case
from zoo.fits import FITS

TRUTH = json.loads(Path(__file__).with_name("truth.json").read_text())
EVERYTHING = {
    "chemistry": chemistry.CASES,
    "mechanics": mechanics.CASES,
    "electrical": electrical.CASES,
    "engineering": engineering.CASES,
    "biology": biology.CASES,
    "earth, devices, money": sciences.CASES,
    "PDEs": pde.CASES,
    "hybrid systems": hybrid.CASES,
    "DETEST": detest.CASES,
}
FIELDS = {
    field: [case for case in cases if case.name in TRUTH] for field, cases in EVERYTHING.items()
}
"""Cases by field, as far as their truth has been computed."""
WAITING = [case for cases in EVERYTHING.values() for case in cases if case.name not in TRUTH]
CASES: list[Case] = [case for cases in FIELDS.values() for case in cases]

__all__ = ["CASES", "EVERYTHING", "FIELDS", "FITS", "TRUTH", "WAITING"]
