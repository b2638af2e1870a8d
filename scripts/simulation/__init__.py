"""The real scheduler under a discrete-event clock; no model runs.

Reading order: hardware (what a step costs), workload (who asks for what, when), policies (which rules), simulator (the
clock), measurements and fairness (what is watched), cell (one run), grid (all runs), table and figure (what is shown).
scheduler_cost is apart: it times the scheduler itself on this machine.
"""
