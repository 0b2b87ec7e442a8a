"""Topic controllers: a unit's first lookup plans, places and assigns it within leased capacity.

Lookups enter by the topic controller; moves use the placer and the broker sync.
"""
