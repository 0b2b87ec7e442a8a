"""What a broker does: its session, its topics, their producers and subscriptions.
It knows ports and rules, no socket and no file. Adapters and ``bootstrap`` call it.
"""
