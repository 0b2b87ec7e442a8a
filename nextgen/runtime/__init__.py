"""The process shell that every program runs in. It knows no rules of the cluster.

Modules are imported one by one (``from nextgen.runtime.process import run``), so that a program
pays only for those that it uses.
"""
