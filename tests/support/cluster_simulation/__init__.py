"""The whole cluster in one thread, in virtual time, on a seed.

    run.py           run_seed(seed) -> SeedReport
    simulation.py    the cluster: processes, faults, workload, invariants, put together
    faults.py        what goes wrong, one thing at a time
    disk_faults.py   what goes wrong with disks, first starts on new ones included
    workload.py      clients that create, look up, move and retry
    administrators.py  somebody who sets policies, drains brokers, unloads topics
    residents.py     producers at the brokers, and the storage that brokers share
    contenders.py    clients that use the same topics, judged by their history at the end
    invariants.py    what may never be seen, checked as it happens
    in_touch.py      whom effective writes have to wait for
    liveness.py      a healthy majority has a leader in time
    process.py       one process: what dies with it, and what stays on its disk
    components.py    what each kind of process runs: the components' own ``serve``
    raft_environment.py  mesh, disk and views of a process with Raft groups
    outside_world.py clocks, randomness, ports and gRPC, replaced for the time of a run
    virtual_loop.py  the event loop; whoever is dead or paused runs nothing on it
    network.py       links and connections; ``tests.support.sim_grpc`` speaks over them

Every process runs the ``serve`` of its component's bootstrap. What is replaced is what lies outside
our code: sockets, gRPC's core, threads, disks, clocks, randomness.
"""
