"""Scalable topics over HTTP: /admin/v2/scalable. Called by ``administration``, which puts all
routes of a node together."""
