"""The writer threads: what units append goes to files in shared rounds of fsync.
A round acknowledges only when it found no fence. ``store`` and ``disk_ledger`` call it.
"""
