"""`nextgen perf` for Pulsar clients: lookups, produce and consume, a moved topic, a dead broker.
Clients are the stock client, or a generator that speaks its protocol.
nextgen.harness.perf.commands and benchmarks call it.
"""
