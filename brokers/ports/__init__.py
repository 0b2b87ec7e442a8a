"""The ports of the broker, one module per subject: ledgers, clients, cluster.
The service calls the ports; adapters implement them.
"""
