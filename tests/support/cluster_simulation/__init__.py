"""The whole cluster in one thread, in virtual time, on a seed.

    run.py           run_seed(seed) -> SeedReport
    simulation.py    the cluster: processes, faults, clients and judges, put together
    process.py       one process: what dies with it, and what stays on its disk
    components.py    what each kind of process runs: the components' own ``serve``
    cluster_secret.py  which runs have a cluster secret
    raft_environment.py  mesh, disk and views of a process with Raft groups
    outside_world.py clocks, randomness, ports and gRPC, replaced for the time of a run
    virtual_loop.py  the event loop; a process that is dead or paused runs nothing on it
    network.py       links and connections; ``tests.support.simulated.grpc`` uses them

    faults/          injection.py: one at a time. disks.py: disks, and first starts on new ones
                     ledgers.py: the disk that brokers share
    clients/         workload.py: create, look up, move, retry. administrators.py: policies, drains,
                     unloads. residents.py: producers that read what was acknowledged
                     contenders.py: clients of the same topics, judged by their history at the end
    judges/          invariants.py: what must never be observed. in_touch.py: subscribers for which
                     effective writes have to wait. freshness.py: age of answers. ledgers.py: what
                     the brokers' disk must hold at the end. settled.py: equal views at rest
                     liveness.py: a healthy majority has a leader in time

Every process runs the ``serve`` of its component's bootstrap. What is replaced is what lies outside
our code: sockets, gRPC's core, threads, disks, clocks, randomness.

What outlives a process is behind the storage port, on a ``SimDisk`` of the machine: journals,
snapshots and membership of shard nodes and cluster managers, and the ledgers of all brokers.
Discovery nodes keep nothing. What is kept otherwise, and why:

    views            SQLite does its I/O by itself. ``Machine`` keeps what was durable of its files
                     and puts it back behind a loss of power
    data directory   ``identity.json`` and the lock: written before anything else, by system calls
                     that no callback interrupts. A lost disk takes them along
    cluster secret   a file that an operator makes; no process writes it
    clock offsets    of a machine, not of a process: no disk has them
    caches of the    of pure functions, so that all processes of a run share them without a trace;
    Python process   ``ClusterRun`` empties ``nextgen.tasks``' count of failures before a run, and
                     ``bury`` the channels that brokers are closing

Brokers have a ledger directory and no data directory.
"""
