"""The commands with which an operator runs and inspects a cluster, a package for each subject. No
command imports the harness: nextgen.main registers both.
nextgen.main and the harness call it; servers never do.
"""
