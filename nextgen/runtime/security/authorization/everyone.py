"""One decision for every entry point: whether a principal may do an action to a resource.

REST, gRPC and the Pulsar ports of discovery and brokers all call ``authorize``, at the connection
or before the first effect of a request. Call it as an attribute of this module, so that there is
one function to replace:

    everyone.authorize(principal, Action.PRODUCE, Resource.topic(name.text))

Cached lookups are the exception: a connection that may connect may look up what the cache knows. A
call for each would cost them more than their answer.
"""

from __future__ import annotations

from nextgen.kernel.governance.access import Action, Principal, Resource


def authorize(principal: Principal, action: Action, resource: Resource) -> None:
    """Return if ``principal`` may do ``action`` to ``resource``. Everybody may do everything.

    Raises:
        Forbidden: It may not. Nothing raises it yet; every caller answers it in its protocol.
    """
