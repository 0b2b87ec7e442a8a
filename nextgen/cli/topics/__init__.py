"""`tenants`, `namespaces`, `topics`, `policies`, `lookup` and `move`, and their calls to discovery.
A command distinguishes done, refused and still running.
nextgen.main calls it; no other room imports its modules.
"""
