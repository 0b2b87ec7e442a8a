"""The services of a broker: its session, its topics, their producers and subscriptions.
They use ports and rules, no sockets and no files. Adapters and ``bootstrap`` call them.
"""
