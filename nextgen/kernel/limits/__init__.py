"""Every limit, one module per subject: each constant states its unit and its reason.

``docs/limits.md`` lists them all with the code that enforces them and the tests at the limit.
Every package may import it; of the project it imports only ``nextgen.kernel.events``.
"""
