"""Certificates and tokens: made for people who have no authority and no issuer of their own.

Commands of operators; nothing of a running cluster calls it.
"""
