"""What is measured on a run: terminal, running and observation costs, data of events, priors.

In come a user's functions or data, out come scalars with first and second derivatives that sweeps
seed; steps add up running costs, so costs are below methods.  Read first: ``objective`` (what users
write), ``cost`` (what sweeps see), ``least_squares``.
"""

from daeosens.costs.event_data import EventData
from daeosens.costs.objective import AtEvent, EventTime

__all__ = ["AtEvent", "EventData", "EventTime"]
