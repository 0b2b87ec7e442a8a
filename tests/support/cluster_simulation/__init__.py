"""The whole cluster in one thread, in virtual time, on a seed.

    run.py           run_seed(seed) -> SeedReport
    simulation.py    the cluster: processes, faults, workload, invariants, put together
    faults.py        what goes wrong, one thing at a time
    disk_faults.py   what goes wrong with disks, first starts on new ones included
    ledger_faults.py  what goes wrong with the disk that brokers share
    workload.py      clients that create, look up, move and retry
    administrators.py  somebody who sets policies, drains brokers, unloads topics
    residents.py     clients of the brokers: producers, which also read what was acknowledged
    ledgers.py       the disk that brokers share, and what of it has to be there in the end
    contenders.py    clients that use the same topics, judged by their history at the end
    invariants.py    what may never be seen, checked as it happens
    in_touch.py      whom effective writes have to wait for
    settled.py       replicas at rest, and whether their views agree
    liveness.py      a healthy majority has a leader in time
    process.py       one process: what dies with it, and what stays on its disk
    components.py    what each kind of process runs: the components' own ``serve``
    raft_environment.py  mesh, disk and views of a process with Raft groups
    outside_world.py clocks, randomness, ports and gRPC, replaced for the time of a run
    virtual_loop.py  the event loop; whoever is dead or paused runs nothing on it
    network.py       links and connections; ``tests.support.sim_grpc`` speaks over them

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
