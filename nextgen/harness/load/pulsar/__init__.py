"""Jobs over the Pulsar protocol: stock producers and consumers, and a generator of lookups.
They account for every message: sent, acknowledged, arrived once, arrived again.
nextgen.harness.load, demo, perf and benchmarks call it.
"""
