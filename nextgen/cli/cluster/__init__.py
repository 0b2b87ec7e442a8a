"""`up`, `down`, `status` and `nodes`: the commands that start, stop and show a local cluster.
They hold words and tables; nextgen.cli.local does the work.
Only nextgen.main calls it.
"""
