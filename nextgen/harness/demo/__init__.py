"""`nextgen demo`: a cluster under steady load loses its leaders and a broker; no message is lost.
It ends within two minutes, and its exit code is its verdict.
nextgen.harness.commands calls it; chaos calls `victims`.
"""
