"""Load tests with Locust: who asks what (profiles), through which door, what is measured, and what is good enough.

Reading order: profiles.py, asks.py, doors/, measure.py, thresholds.py; locustfile.py ties them to Locust.
"""
