"""Jobs over gRPC: create, move, watch and look up topics at discovery nodes.
A module bears the name of its job's kind, and checks the answers that it counts.
nextgen.harness.load.job_kinds, perf and benchmarks call it.
"""
