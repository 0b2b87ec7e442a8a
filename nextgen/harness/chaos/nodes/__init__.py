"""A local cluster whose nodes can be broken: own networks, own disks, control files, a launcher.
It removes everything that it sets up on the machine. Linux only; some of it needs root.
nextgen.harness.chaos and its faults call it.
"""
