"""The writer threads: they write the units' appends to files in shared rounds of fsync.
A round acknowledges only if it found no fence. ``store`` and ``disk_ledger`` call it.
"""
