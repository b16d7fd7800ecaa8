"""CasADi without its types: the stubs of 3.8 leave most results unknown."""

from typing import Any

import casadi as _casadi

casadi: Any = _casadi
