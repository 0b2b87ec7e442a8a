"""A unit's files: their names and formats, and scans that find their valid length.
Formats are kept for ever. The rest of the ledger may call it.
"""
