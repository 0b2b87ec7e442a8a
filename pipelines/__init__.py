"""PySpark jobs over the exported event log: each job a folder with ``command``; rooms they share.
``python -m pipelines JOB`` runs one. No other component imports it.
"""
