"""How a process starts, keeps its data directory, recovers and ends with an exit code.

A process ends on a signal or with its parent; two processes never share a data directory.
Components, the client library, the command line and the pipelines call it.
"""
