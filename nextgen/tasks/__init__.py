"""Time limits, intervals, groups, cancellation and interrupts, right on every supported Python.

Asyncio's own are wrong on some (ADR 0055): test_tidy.py checks that no other code uses them.
Every package above the kernel may import it.
"""
