"""`nextgen chaos`: load on a cluster, seeded faults, and a verdict from the recorded history.
The same seed gives the same faults; a run with too little load or faults proves nothing.
nextgen.harness.commands, verify and tests call it.
"""
