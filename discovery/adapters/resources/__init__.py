"""The resources of the Admin REST and of lookups over HTTP: each makes the routes of one resource.
They carry requests to the services; ``bootstrap`` gives their routes to the frame, ``rest``.
"""
