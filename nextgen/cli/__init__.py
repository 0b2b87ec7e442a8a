"""The commands with which an operator runs and inspects a cluster, a package for each subject.

nextgen.main registers them and the harness's; servers never call them.
"""
