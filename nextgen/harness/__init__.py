"""Code that tests a cluster: load, measurements, faults, the demo, and histories with checks.
It drives ports and processes as a user does; no server and no operator's command imports it.
nextgen.main calls `commands.register`; benchmarks and tests call the rest.
"""
