"""The cluster manager: who is in the cluster, which shard has which slot, who leads, who may
assign how much. See docs/flows/membership.md and docs/flows/lookup.md."""
