"""Tenants, namespaces and single policies as Pulsar's tools see them, over ``admin``.
The routes of ``adapters/administration`` call it.
"""
