"""A local cluster whose nodes can be broken: own networks, own disks, control files, a launcher.
Whatever it sets up on the machine it takes away again. Linux; some of it needs root.
nextgen.harness.chaos and its faults call it.
"""
