"""`up`, `down`, `status` and `nodes`: the commands that start, stop and show a local cluster. They
have options and output; nextgen.cli.local does the work. Only nextgen.main calls it.
"""
