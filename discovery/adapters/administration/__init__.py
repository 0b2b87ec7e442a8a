"""Resources of the Admin REST above topics: tenants, clusters, brokers, namespaces, their policies.
They carry requests to the services; ``bootstrap`` gives all routes, by ``catalogue``, to ``rest``.
"""
