"""Where branches of equations and costs change sides along a run.

In come a trajectory and what it evaluates; out come steps, places in them and times.  Nothing is
judged here: ``step_placement`` ends steps there, ``looks`` warns of what derivatives lose.

Read first: ``branch_changes`` (inside of steps); ``switch_times`` (by the time alone).
"""
