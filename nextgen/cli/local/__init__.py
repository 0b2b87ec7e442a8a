"""A cluster on this machine: the plan of its processes, their start and stop, their log files.
It knows processes and ports, and sends no request but the one for readiness.
Commands, the harness, benchmarks and tests call it.
"""
