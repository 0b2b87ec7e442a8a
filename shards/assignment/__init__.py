"""Topic controllers: a unit's first lookup plans, places and assigns it within leased capacity.

Lookups enter by the topic controller. Moves share ``ShardUnits``, the placer and the broker sync.
"""
