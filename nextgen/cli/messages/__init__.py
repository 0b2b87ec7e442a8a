"""`produce`, `consume` and `read`, over the stock Pulsar client from the extra `client`.
It says in one sentence what the stock client's errors mean.
nextgen.main calls the commands; the harness calls `stock_client` for its load.
"""
