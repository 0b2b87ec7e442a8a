"""`audit`, `slo` and `trace`: check a running cluster's promises and show slow requests. They only
read logs, brokers and trace files. Exit code 4: a check failed. nextgen.main calls it; a benchmark
calls `trace_command`.
"""
