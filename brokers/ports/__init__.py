"""What the broker needs from outside, one module per subject: ledgers, clients, cluster.
The service calls the ports; adapters fulfil them.
"""
