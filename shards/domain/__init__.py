"""Rules of tenants, namespaces, topics, assignments and broker sessions as pure functions.

Every room may call it; it calls nothing but the kernel.
"""
