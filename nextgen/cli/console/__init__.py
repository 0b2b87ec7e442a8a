"""The common parts of commands: options, output that is safe for any name, exit codes, and checks
that another package registers. It makes no request to a cluster.
Every command calls it, the harness's commands too.
"""
