"""Where events are located: to the rounding of the event function, whatever leads there."""

from event_support import Cell, control_of, cost_of, hybrid_of, stepping_of

from daeosens import Reduced


def test_newton_from_one_side_goes_on_to_rounding():
    """Its bracket keeps its width, and the middle of that lies far from the event."""
    cell = Cell("rk2a", "rhs", "terminal", "AtEvent after", "u0(p)", "adaptive")
    problem, system = hybrid_of(cell)
    control, x, _ = control_of(cell)
    run = Reduced(problem, cost_of(cell)[0], stepping_of(cell), control).trajectory(x)
    assert [crossing.name for crossing in run.crossings] == ["first", "event"]
    for crossing in run.crossings:
        before = run.times[crossing.step], run.u[crossing.step]
        parameters = [1.1, 4.0, 0.9, 1.3]
        value = system.events[crossing.name].value(*before, parameters)
        assert abs(value) <= 4e-16
