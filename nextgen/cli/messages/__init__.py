"""`produce`, `consume` and `read`, over the stock Pulsar client from the extra `client`. The stock
client's errors become one clear sentence. nextgen.main calls the commands; the harness calls
`stock_client` for its load.
"""
