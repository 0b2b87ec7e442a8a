"""The fold of a group's log in SQLite: tables, how far they were folded, and a digest of them.

Components open it through the host; the applier writes it.
"""
