"""What a unit's files are called and made of, how they are scanned, and how far they are valid.
Formats are kept for ever. The rest of the ledger may call it.
"""
