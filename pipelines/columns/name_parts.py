"""Parts of canonical names, as columns: the results of ``nextgen.kernel.routing.names``.

    persistent://tenant/namespace/base-partition-3      a partition, its unit is p3
    segment://tenant/namespace/base/0000-7fff-3         a segment of topic://tenant/namespace/base

The parts of a null name are null.
"""

from __future__ import annotations

from pyspark.sql import Column
from pyspark.sql import functions as f

from nextgen.kernel.routing.names import PARTITION_SUFFIX, Domain


def path_of(topic: Column) -> Column:
    """Return the part of a topic's name behind the domain: tenant, namespace and local name."""
    return f.substring(topic, f.instr(topic, "://") + 3, f.length(topic))


def tenant_of(topic: Column) -> Column:
    """Return the tenant in the name of a topic, partition or segment."""
    return f.substring_index(path_of(topic), "/", 1)


def namespace_of(topic: Column) -> Column:
    """Return ``tenant/namespace`` in the name of a topic, partition or segment."""
    return f.substring_index(path_of(topic), "/", 2)


def tenant_of_namespace(namespace: Column) -> Column:
    """Return the tenant in the name of a namespace."""
    return f.substring_index(namespace, "/", 1)


def topic_path_of(name: Column, unit: Column) -> Column:
    """Return the path of the topic to which the assigned unit ``name`` belongs.

    ``unit`` is the stable text form: empty, ``p3`` or ``s17``.
    """
    path = path_of(name)
    partition = f.regexp_replace(path, f"{PARTITION_SUFFIX}[0-9]+$", "")
    segment = f.regexp_replace(path, "/[^/]*$", "")
    return (
        f.when(unit.startswith("p"), partition).when(unit.startswith("s"), segment).otherwise(path)
    )


def topic_of(name: Column, unit: Column) -> Column:
    """Return the name of the topic to which the assigned unit ``name`` belongs."""
    own_domain = f.substring_index(name, "://", 1)
    domain = f.when(unit.startswith("s"), f.lit(Domain.TOPIC.value)).otherwise(own_domain)
    return f.concat(domain, f.lit("://"), topic_path_of(name, unit))
