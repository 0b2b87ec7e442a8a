"""Compares an export with its manifest and a live cluster, and reports its progress.

A check changes nothing and does not disturb a running exporter.
The command line calls it.
"""
