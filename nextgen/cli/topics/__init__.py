"""`tenants`, `namespaces`, `topics`, `policies`, `lookup` and `move`, and how they ask discovery.
A command tells done, refused and still going on apart.
nextgen.main calls it; no other room imports its modules.
"""
