"""Soak and chaos: mixed traffic while parts of the server are killed, stopped, starved and reloaded; then a verdict.

    chaos ──> quiet ──> steady ──> quiet ──> end
              │         │          │         └ nothing is left behind
              │         └ memory is watched  └ the pool is empty, the engine counted what the clients did
              └ the idle server's files and memory, for the end to be held against

Reading order: settings.py, run.py (the phases), plan.py and disturbances.py (what is done to the server), traffic.py
and ledger.py (the clients), subject.py and samples.py (the server), leaks.py, checks.py, report.py (what came of it).
"""
