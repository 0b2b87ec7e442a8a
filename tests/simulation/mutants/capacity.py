"""The guards of capacity leases: the ledger, the allocator that decides on it, a shard's table."""

from __future__ import annotations

from cluster_manager.domain import capacity_ledger as ledger
from cluster_manager.service import lease_allocator
from shards.assignment.lease_keeper import LeaseKeeper
from shards.assignment.lease_table import LeaseTable, _Need
from tests.simulation.mutants.mutant import Edit, Mutant

_LEDGER = ("tests/unit/cluster_manager/domain/test_capacity_ledger.py",)
_ALLOCATOR = (
    "tests/unit/cluster_manager/test_lease_allocator.py",
    "tests/unit/cluster_manager/test_lease_returns.py",
)
_TABLE = (
    "tests/unit/shards/assignment/test_lease_table.py",
    "tests/unit/cluster_manager/test_lease_returns.py",
)
_KEEPER = ("tests/unit/shards/assignment/test_lease_keeper.py",)

_LEDGER_MUTANTS = (
    Mutant(
        "ledger-grants-beyond-the-capacity",
        "A7, CA1",
        "no grant exceeds the capacity of its broker",
        (
            Edit(
                ledger,
                "_decide_record_grant",
                "command.units > account.capacity_units",
                "False",
            ),
        ),
        _LEDGER,
    ),
    Mutant(
        "ledger-shrinks-a-grant",
        "CA1",
        "a smaller grant is an answer that was overtaken",
        (
            Edit(
                ledger,
                "_decide_record_grant",
                "command.units <= account",
                "command.units == account",
            ),
        ),
        _LEDGER,
    ),
    Mutant(
        "ledger-serves-ended-sessions",
        "A7",
        "a session that ended is neither granted nor leased",
        (Edit(ledger.Ledger, "live_account", "not account.is_live or", ""),),
        _LEDGER,
    ),
    Mutant(
        "ledger-serves-other-sessions",
        "A7",
        "reports about any session but the live one change nothing",
        (Edit(ledger.Ledger, "live_account", " or account.session_id != session_id", ""),),
        _LEDGER,
    ),
    Mutant(
        "ledger-leases-beyond-the-grant",
        "A7, CA1",
        "the leases of a session fit its grant",
        (Edit(ledger, "_decide_lease_capacity", "units - held.units > free_units", "False"),),
        _LEDGER,
        (("cluster", 6),),
    ),
    Mutant(
        "ledger-leases-beyond-the-quota",
        "SP4",
        "no lease grows beyond the quota of its broker",
        (
            Edit(
                ledger.Ledger,
                "free_units",
                "min(account.granted_units, self.quotas.get(broker_id, account.granted_units))",
                "account.granted_units",
            ),
        ),
        (*_LEDGER, "tests/unit/cluster_manager/test_quotas.py"),
    ),
    Mutant(
        "ledger-refuses-renewals-beyond-a-quota",
        "SP4",
        "what was leased before the quota stays",
        (
            Edit(
                ledger.Ledger,
                "free_units",
                "max(0, bound - account.leased_units)",
                "bound - account.leased_units",
            ),
        ),
        (*_LEDGER, "tests/unit/cluster_manager/test_quotas.py"),
    ),
    Mutant(
        "ledger-leases-to-deposed-leaders",
        "CA1",
        "a leader of an earlier term than was answered last is not answered",
        (Edit(ledger, "_decide_lease_capacity", "command.term < held.term", "False"),),
        _LEDGER,
    ),
    Mutant(
        "ledger-takes-returns-of-deposed-leaders",
        "CA1, CA2",
        "what a deposed leader returns, its successor may have used",
        (Edit(ledger, "_decide_return", "command.term < held.term", "False"),),
        _LEDGER,
    ),
    Mutant(
        "ledger-shrinks-a-lease-that-asks-for-less",
        "CA1",
        "a lease does not shrink because less is asked for",
        (
            Edit(
                ledger, "_decide_lease_capacity", "max(held.units, command.units)", "command.units"
            ),
        ),
        _LEDGER,
    ),
    Mutant(
        "ledger-leases-nothing",
        "CA1",
        "a lease of no unit is none",
        (Edit(ledger, "_decide_lease_capacity", "units <= 0", "units < 0"),),
        _LEDGER,
    ),
    Mutant(
        "ledger-ends-a-lease-earlier",
        "CA1",
        "a lease never ends before the time that was answered",
        (
            Edit(
                ledger,
                "_decide_lease_capacity",
                "max(held.expires_at_ms, command.expires_at_ms)",
                "command.expires_at_ms",
            ),
        ),
        _LEDGER,
    ),
    Mutant(
        "ledger-grows-a-lease-in-its-version",
        "CA2",
        "a lease that grows has a version of its own",
        (
            Edit(
                ledger,
                "_decide_lease_capacity",
                "held.version + 1 if units > held.units else held.version",
                "held.version",
            ),
        ),
        _LEDGER,
    ),
    Mutant(
        "ledger-shrinks-a-lease-in-its-version",
        "CA2",
        "a lease that shrank has a version of its own",
        (Edit(ledger, "_shrunk", "version=lease.version + 1, ", ""),),
        _LEDGER,
    ),
    Mutant(
        "ledger-believes-more-use-than-leased",
        "CA1",
        "no more than the lease counts as used",
        (
            Edit(
                ledger,
                "_decide_lease_capacity",
                "min(units, command.units_used)",
                "command.units_used",
            ),
        ),
        _LEDGER,
    ),
    Mutant(
        "ledger-takes-a-return-twice",
        "CA2",
        "a return is of the version that it names",
        (Edit(ledger, "_decide_return", "command.version != held.version", "False"),),
        _LEDGER,
    ),
    Mutant(
        "ledger-takes-a-return-that-grows",
        "CA2",
        "a return leaves less than there was and not less than none",
        (Edit(ledger, "_decide_return", "not 0 <= command.units < held.units", "False"),),
        _LEDGER,
    ),
    Mutant(
        "ledger-expires-recorded-use",
        "CA4",
        "units that the ledger knows to be used do not expire",
        (
            Edit(
                ledger,
                "_decide_expire",
                "max(held.units_used, command.units_used)",
                "command.units_used",
            ),
        ),
        _LEDGER,
    ),
    Mutant(
        "ledger-expires-reported-use",
        "CA4",
        "units that the shard reported last do not expire",
        (
            Edit(
                ledger,
                "_decide_expire",
                "max(held.units_used, command.units_used)",
                "held.units_used",
            ),
        ),
        _LEDGER,
    ),
    Mutant(
        "ledger-grows-a-lease-that-expires",
        "CA4",
        "a lease that is all used is not changed when it expires",
        (Edit(ledger, "_decide_expire", "units >= held.units", "False"),),
        _LEDGER,
    ),
    Mutant(
        "ledger-releases-the-next-session",
        "CA1",
        "the end of a session frees no lease of the next one",
        (
            Edit(
                ledger,
                "_decide_release_leases",
                " or account.session_id != command.session_id",
                "",
            ),
        ),
        _LEDGER,
    ),
    Mutant(
        "ledger-folds-events-of-earlier-sessions",
        "CA1",
        "an event of an earlier session does not change the account of the present one",
        (Edit(ledger, "evolve", " or account.session_id != event.session_id", ""),),
        _LEDGER,
    ),
    Mutant(
        "ledger-keeps-the-account-of-an-earlier-session",
        "CA1",
        "a session begins with an account of its own",
        (
            Edit(
                ledger,
                "_evolve_broker_recorded",
                " and known.session_id == broker.session_id",
                "",
            ),
        ),
        _LEDGER,
    ),
    Mutant(
        "ledger-shrinks-the-grant-below-the-leases",
        "CA1",
        "capacity that shrinks within a session leaves what is leased granted",
        (
            Edit(
                ledger,
                "_within_capacity",
                "max(account.capacity_units, account.leased_units)",
                "account.capacity_units",
            ),
        ),
        _LEDGER,
    ),
    Mutant(
        "ledger-keeps-the-grant-of-a-larger-capacity",
        "CA12",
        "the grant follows a capacity that shrinks",
        (Edit(ledger, "_within_capacity", "account.granted_units <= most", "True"),),
        _LEDGER,
    ),
    Mutant(
        "table-assigns-above-the-units-to-keep",
        "CA12",
        "a shard assigns nothing above what fits the broker's capacity",
        (Edit(LeaseTable, "_limited", "min(units, lease.units_to_keep)", "units"),),
        _TABLE,
    ),
    Mutant(
        "table-returns-units-that-have-still-to-leave",
        "CA12",
        "units in use above the capacity are returned when they have left",
        (
            Edit(
                LeaseTable,
                "begin_excess_returns",
                "max(lease.units_to_keep, need.used)",
                "lease.units_to_keep",
            ),
        ),
        _TABLE,
    ),
)

_ALLOCATOR_MUTANTS = (
    Mutant(
        "allocator-counts-silence-from-before-its-term",
        "CA4",
        "a new leader counts every shard as heard from at its takeover",
        (
            Edit(
                lease_allocator.LeaseAllocator,
                "_silence",
                "self._heard_ms.get(shard_id, self._began_ms)",
                "self._heard_ms.get(shard_id, -SILENCE_MS)",
            ),
        ),
        _ALLOCATOR,
    ),
    Mutant(
        "allocator-frees-units-too-early",
        "CA4",
        "units are freed when no leader of the shard can believe in them any more",
        (Edit(lease_allocator.LeaseAllocator, "_silence", ">= SILENCE_MS", ">= SILENCE_MS // 2"),),
        _ALLOCATOR,
    ),
    Mutant(
        "allocator-answers-deposed-leaders",
        "CA1",
        "a shard's leader of an earlier term than is known is refused",
        (
            Edit(
                lease_allocator.LeaseAllocator,
                "_check",
                "endpoint is not None and request.term < endpoint.term",
                "False",
            ),
        ),
        _ALLOCATOR,
    ),
    Mutant(
        "allocator-answers-after-a-later-leader",
        "CA1",
        "the leader that was answered last is the last that is answered",
        (Edit(lease_allocator.LeaseAllocator, "_check", "request.term < answered_term", "False"),),
        _ALLOCATOR,
    ),
    Mutant(
        "allocator-looks-once-for-later-leaders",
        "CA1",
        "a leader that was deposed while a grant was asked for is refused",
        (
            Edit(
                lease_allocator.LeaseAllocator,
                "lease",
                "the await.\n    self._check(request)\n",
                "the await.\n",
            ),
        ),
        _ALLOCATOR,
    ),
    Mutant(
        "allocator-answers-what-is-not-committed",
        "CA1",
        "an answer without an event waits for what it rests on to be committed",
        (
            Edit(
                lease_allocator.LeaseAllocator, "lease", "await self._leader_term.confirm()", "pass"
            ),
        ),
        _ALLOCATOR,
    ),
    Mutant(
        "allocator-answers-leases-that-ended",
        "CA1",
        "a lease that ended is in no answer",
        (Edit(lease_allocator, "leases_of", " or lease.expires_at_ms <= now_ms", ""),),
        _ALLOCATOR,
    ),
    Mutant(
        "allocator-answers-leases-for-longer-than-it-waits",
        "CA4",
        "no lease is answered with more time than silence is counted for",
        (
            Edit(
                lease_allocator,
                "leases_of",
                "min(CAPACITY_LEASE_TTL_MS, lease.expires_at_ms - now_ms)",
                "lease.expires_at_ms - now_ms",
            ),
        ),
        _ALLOCATOR,
    ),
    Mutant(
        "allocator-counts-use-of-ended-sessions",
        "CA1",
        "reports about an ended session do not count",
        (
            Edit(
                lease_allocator,
                "_units_used",
                " and live[use.broker_id].session_id == use.session_id",
                "",
            ),
        ),
        _ALLOCATOR,
    ),
    Mutant(
        "allocator-leases-brokers-that-are-given-nothing",
        "CA6",
        "a broker that is drained or in quarantine is leased no more",
        (Edit(lease_allocator, "_is_closed", "broker.draining or", "False and"),),
        _ALLOCATOR,
    ),
    Mutant(
        "allocator-renews-by-the-time-alone",
        "CA1",
        "a new leader of the shard is recorded at once",
        (
            Edit(
                lease_allocator,
                "_offer",
                "(lease.units, lease.term) == (units, request.term)",
                "lease.units == units",
            ),
        ),
        _ALLOCATOR,
    ),
)

_SHARD_MUTANTS = (
    Mutant(
        "leases-are-used-after-their-end",
        "CA1",
        "a lease is used until its time is over",
        (Edit(LeaseTable, "lease", " and now < lease.expires_at", ""),),
        _TABLE,
    ),
    Mutant(
        "leases-last-from-their-answer",
        "CA1, CA9",
        "the time of a lease counts from when the request left",
        (
            Edit(
                LeaseKeeper,
                "_ask",
                "self._table.replace(response.leases, asked_at)",
                "self._table.replace(response.leases, self._clock.monotonic())",
            ),
        ),
        _KEEPER,
    ),
    Mutant(
        "returns-what-was-not-watched-for-long",
        "CA3",
        "nothing is returned before it was unused for long",
        (
            Edit(
                _Need,
                "units",
                "None if self._before is None else max(self._before, self._peak)",
                "max(self._before or 0, self._peak)",
            ),
        ),
        _TABLE,
    ),
    Mutant(
        "returns-what-was-needed-lately",
        "CA3",
        "a peak is remembered for as long as unused units are kept",
        (Edit(_Need, "units", "max(self._before, self._peak)", "self._peak"),),
        _TABLE,
    ),
    Mutant(
        "returns-to-a-manager-without-versions",
        "CA2",
        "a cluster manager that tells no versions is returned nothing",
        (Edit(LeaseTable, "begin_returns", "not lease.version or ", ""),),
        _TABLE,
    ),
    Mutant(
        "returns-anew-what-is-being-returned",
        "CA3",
        "a return that is under way is repeated as it was",
        (Edit(LeaseTable, "begin_returns", " or session_id in self._returning", ""),),
        _TABLE,
    ),
    Mutant(
        "returns-its-first-block",
        "CA3",
        "a session whose first block is not known returns nothing",
        (Edit(LeaseTable, "begin_returns", "first_blocks.get(session_id, lease.units)", "1"),),
        _TABLE,
    ),
    Mutant(
        "uses-what-it-returns",
        "CA3",
        "units are not used from before their return is announced",
        (
            Edit(
                LeaseTable,
                "begin_returns",
                "self._leases[session_id] = self._limited(session_id, lease)",
                "pass",
            ),
        ),
        _TABLE,
    ),
    Mutant(
        "settles-a-return-by-an-answer-of-its-version",
        "CA3",
        "a return is settled by a later version only",
        (
            Edit(
                LeaseTable,
                "replace",
                "lease.version > returning.version",
                "lease.version >= returning.version",
            ),
        ),
        _TABLE,
    ),
    Mutant(
        "uses-what-it-returned-when-answered-again",
        "CA3",
        "an answer does not give back what is being returned",
        (Edit(LeaseTable, "replace", "self._limited(lease.session_id, lease)", "lease"),),
        _TABLE,
    ),
    Mutant(
        "returns-for-sessions-that-ended",
        "CA3",
        "what is about sessions that ended is forgotten",
        (
            Edit(
                LeaseKeeper,
                "_request",
                "self._table.forget_sessions({broker.session_id for broker in live})",
                "pass",
            ),
        ),
        _KEEPER,
    ),
    Mutant(
        "renews-at-the-end-of-a-lease",
        "EN6",
        "leases are renewed at a third of their time",
        (Edit(LeaseTable, "renew_at", " / 3", ""),),
        _TABLE,
    ),
    Mutant(
        "keeper-asks-all-the-time",
        "CA9",
        "between two requests for more there is a pause",
        (
            Edit(
                LeaseKeeper,
                "_grow",
                "max(self._clock.monotonic(), self._grown_at + interval_s)",
                "self._clock.monotonic()",
            ),
        ),
        _KEEPER,
    ),
    Mutant(
        "keeper-asks-in-vain-without-end",
        "CA9",
        "a lease that cannot grow is asked for less and less often",
        (
            Edit(
                LeaseKeeper,
                "_ask_for_growth",
                "min(2 * self._growth_seconds, _RETRY_SECONDS_MAX)",
                "self._growth_seconds",
            ),
        ),
        _KEEPER,
    ),
    Mutant(
        "keeper-stays-slow-after-it-grew",
        "CA9",
        "a lease that has grown may grow again soon",
        (Edit(LeaseKeeper, "_ask", "self._table.units_leased > units_before", "False"),),
        _KEEPER,
    ),
    Mutant(
        "keeper-postpones-waiting-lookups",
        "CA9",
        "a request that is planned is not put off by one that may be later",
        (Edit(LeaseKeeper, "_grow", "self._growth_at <= at", "False"),),
        _KEEPER,
    ),
    Mutant(
        "keeper-forgets-a-wish-that-failed",
        "CA9",
        "what lookups wait for is asked for again if the request fails",
        (
            Edit(
                LeaseKeeper,
                "_ask",
                "self._units_wanted = max(self._units_wanted, wanted)",
                "pass",
            ),
        ),
        _KEEPER,
    ),
    Mutant(
        "keeper-asks-for-the-last-wish-only",
        "CA9",
        "of several wishes the largest is asked for",
        (Edit(LeaseKeeper, "want", "max(self._units_wanted, units)", "units"),),
        _KEEPER,
    ),
    Mutant(
        "keeper-returns-what-lookups-wait-for",
        "CA3",
        "nothing is returned while lookups wait for more",
        (Edit(LeaseKeeper, "_request", "if not units_wanted:", "if True:"),),
        _KEEPER,
    ),
    Mutant(
        "keeper-sleeps-though-a-broker-has-no-lease",
        "CA9",
        "a live broker without a lease is asked for again soon",
        (
            Edit(
                LeaseKeeper,
                "_ask",
                "len(self._table.session_ids()) < len(self._directory.live())",
                "False",
            ),
        ),
        _KEEPER,
    ),
    Mutant(
        "keeper-retries-at-one-pace",
        "CA9",
        "requests that fail slow down",
        (
            Edit(
                LeaseKeeper,
                "_retry_delay",
                "min(self._retry_seconds * 2, _RETRY_SECONDS_MAX)",
                "self._retry_seconds",
            ),
        ),
        _KEEPER,
    ),
    Mutant(
        "keeper-stays-slow-after-it-was-answered",
        "CA9",
        "the next failure is retried as soon as the first",
        (Edit(LeaseKeeper, "_ask", "self._retry_seconds = _RETRY_SECONDS_MIN", "pass"),),
        _KEEPER,
    ),
    Mutant(
        "keeper-promises-what-others-hold",
        "PL1",
        "what other shards have or hold first is not in reach",
        (Edit(LeaseKeeper, "units_in_reach", "others * first_block(leasable, others + 1)", "0"),),
        _KEEPER,
    ),
    Mutant(
        "keeper-ignores-quotas",
        "SP4",
        "no more of a broker is in reach than its quota",
        (
            Edit(
                LeaseKeeper,
                "_leasable",
                "min(quota, broker.capacity_units)",
                "broker.capacity_units",
            ),
        ),
        _KEEPER,
    ),
    Mutant(
        "keeper-asks-without-brokers",
        "CA9",
        "no capacity is requested while no broker lives",
        (Edit(LeaseKeeper, "_run", "if self._directory.live() else None", ""),),
        _KEEPER,
    ),
    Mutant(
        "keeper-turns-in-circles",
        "CA9",
        "renewals are never closer than a fifth of a second",
        (
            Edit(
                LeaseKeeper,
                "_ask",
                "max(0.2, renew_at - self._clock.monotonic())",
                "max(0.0, renew_at - self._clock.monotonic())",
            ),
        ),
        _KEEPER,
    ),
    Mutant(
        "keeper-breaks-by-a-waiter-that-left",
        "CA9",
        "a lookup that gave up does not break the keeper",
        (Edit(LeaseKeeper, "_wake_waiters", "if not future.done():", "if True:"),),
        _KEEPER,
    ),
)

MUTANTS = (*_LEDGER_MUTANTS, *_ALLOCATOR_MUTANTS, *_SHARD_MUTANTS)
