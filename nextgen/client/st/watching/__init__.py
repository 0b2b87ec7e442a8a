"""Sessions with servers over time: layouts of topics, registrations of consumers, namespaces.

They carry out what the state machines of ``domain`` return.
"""
