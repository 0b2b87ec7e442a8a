"""`audit`, `slo` and `trace`: whether a running cluster keeps its promises, and what took long.
They only read, from logs, brokers and trace files. An exit code of 4 says that a check failed.
nextgen.main calls it; a benchmark calls `trace_command`.
"""
