"""`nextgen chaos`: load on a cluster, faults by a schedule from a seed, and a verdict by history.
The same seed gives the same faults; a run with too little load or faults proves nothing.
nextgen.harness.commands, verify and tests call it.
"""
