"""Load from processes of its own, so that a generator never slows the process that measures it.
`process` starts `worker`, which does one of `job_kinds` and reports JSON lines.
perf, chaos, demo, verify and benchmarks call it.
"""
