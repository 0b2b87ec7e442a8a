"""`shards verify` and `pipeline rebuild --verify` without a target: they start a cluster, load it,
break it, and compare. They return the same reports as with a target.
nextgen.harness.commands brings both to the command line.
"""
