"""DAEOs: differential equations with an embedded global optimisation."""
