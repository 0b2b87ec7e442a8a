"""Resources of the Admin REST about topics, and lookups over HTTP: each makes its own routes.
They carry requests to the services; ``bootstrap`` gives all routes to the frame, ``rest``.
"""
