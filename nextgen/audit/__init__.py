"""Findings and verdicts of checks, and the check that two brokers never acknowledge messages of one
unit at once. Pure: it imports only the kernel. nextgen.client, `nextgen audit` and the harness call
it.
"""
