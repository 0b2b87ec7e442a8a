"""Time limits, groups and cancellation of asyncio tasks, right on every supported Python.

The standard library's own are wrong on some of them (ADR 0055), so nothing else in this project
may use those: ``tests/unit/test_tidy.py`` checks it.
"""
