"""Requests of the command line to a running cluster: to discovery nodes, to the leading cluster
manager, and to all processes for their status. Errors are those of nextgen.kernel.errors.
The commands and the harness call it.
"""
