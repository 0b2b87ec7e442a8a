"""Pulsar NextGen's libraries and its program: `main` joins the command line and the harness.
A package may call those below it, in the order that pyproject.toml states.
Components and pipelines call every package here except main, cli and harness.
"""
