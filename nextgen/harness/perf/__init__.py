"""`nextgen perf`: measures a cluster from outside, and fails if an answer was wrong.
`bench` gives a measurement its cluster, its namespace, its counters and its progress bar.
nextgen.harness.commands, verify and benchmarks call it.
"""
