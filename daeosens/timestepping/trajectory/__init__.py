"""What a run remembers: states, steps, events; and how to take its steps once more.

In comes the log of a run; ``trajectory`` is what users and sweeps see of it.  States are known by
their number: ``states`` has all of them, ``store`` some, and the others are taken again by the
checkpoints of ``schedule``, in memory or in a file (``scratch``); ``stay`` says while a run goes
on which states are needed for that.

Read first: ``trajectory``, ``states``; then ``schedule`` and ``store``.
"""
