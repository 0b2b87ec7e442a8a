"""Makes load files of a range of a scale run's topics and loads them: the generator, a process.

    python -m benchmarks.support.scale.load make --target T --folder F --first 0 --count 1000000
    python -m benchmarks.support.scale.load load --target T --folder F --cluster DIR

``make`` needs the shard map only, so the next chunk is made while one is loaded. ``load`` is the
public bulk path and prints one JSON line. Both may be killed and repeated: an unfinished folder has
no manifest, and topics that exist are counted as existing.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import json
import shutil
from collections.abc import Sequence
from pathlib import Path

import pyarrow
import pyarrow.parquet

from benchmarks.support.scale.names import name_of, namespaces
from nextgen.bulk.cluster_source import AskedCluster
from nextgen.bulk.loader import load_folder
from nextgen.bulk.manifest import LOAD_MANIFEST, LoadFile, LoadManifest
from nextgen.cli.local.plan import load_plan
from nextgen.cli.local.security import use_security
from nextgen.kernel.routing.hashing import slot_of
from nextgen.kernel.routing.slots import SlotTable

_DOMAIN = len("persistent://")


async def slot_table(target: str) -> SlotTable:
    source = AskedCluster([target])
    try:
        await source.ask()
        assert source.view.slot_table is not None, "the request raises if there is no map"
        return source.view.slot_table
    finally:
        await source.close()


def make(folder: Path, table: SlotTable, first: int, count: int) -> None:
    """Write the load files; the manifest is last, so a folder that has one is whole."""
    if (folder / LOAD_MANIFEST).exists():
        return
    shutil.rmtree(folder, ignore_errors=True)
    by_shard: dict[int, list[str]] = {shard_id: [] for shard_id in table.shard_ids}
    for number in range(first, first + count):
        name = name_of(number)
        # The routing key of a topic without partition is its name without the domain.
        by_shard[table.owners[slot_of(name[_DOMAIN:])]].append(name)
    shards = {
        shard_id: (_write(folder, f"shard={shard_id:05d}/part-00000.parquet", "name", names),)
        for shard_id, names in by_shard.items()
        if names
    }
    parents = namespaces()
    manifest = LoadManifest(
        table=table,
        shards=shards,
        namespaces=(_write(folder, "namespaces/part-00000.parquet", "namespace", parents),),
        namespace_count=len(parents),
        rows_read=count,
        duplicates=0,
        rejects=0,
    )
    draft = folder / f"{LOAD_MANIFEST}.draft"
    draft.write_text(manifest.to_json(), encoding="utf-8")
    draft.rename(folder / LOAD_MANIFEST)


def _write(folder: Path, path: str, column: str, values: list[str]) -> LoadFile:
    values.sort()
    target = folder / path
    target.parent.mkdir(parents=True, exist_ok=True)
    pyarrow.parquet.write_table(pyarrow.table({column: values}), target)
    data = target.read_bytes()
    digest = hashlib.sha256(data).hexdigest()
    return LoadFile(path, len(values), len(data), digest, values[0], values[-1])


async def load(folder: Path, target: str, parents: bool) -> dict[str, float | int]:
    loaded = await load_folder(folder, [target], parents=parents, resume=True)
    assert loaded.is_whole, "a row was not answered for"
    return {
        "created": loaded.total("created"),
        "existing": loaded.total("existing") + loaded.total("skipped"),
        "refused": loaded.total("refused"),
        "load_s": round(loaded.elapsed_s, 3),
    }


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=("make", "load"))
    parser.add_argument("--target", required=True)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--count", type=int, default=1)
    parser.add_argument("--parents", action="store_true")
    parser.add_argument("--cluster", type=Path, help="its data directory, for its secret")
    given = parser.parse_args(arguments)
    if given.what == "make":
        make(given.folder, asyncio.run(slot_table(given.target)), given.first, given.count)
    else:
        plan = load_plan(given.cluster)
        assert plan is not None, "the cluster was started from a stored plan"
        use_security(plan, given.cluster)
        print(json.dumps(asyncio.run(load(given.folder, given.target, given.parents))))


if __name__ == "__main__":
    main()
