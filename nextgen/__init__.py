"""Pulsar NextGen's libraries and its program: ``main`` joins the command line and the harness.

Packages are layers in the order that pyproject.toml states; no component is imported here.
"""
