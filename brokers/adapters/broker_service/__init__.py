"""``BrokerService`` over gRPC: open topics, acknowledgements, what the broker holds and does.
Tools and auditors call it over the wire. ``bootstrap`` alone imports it.
"""
