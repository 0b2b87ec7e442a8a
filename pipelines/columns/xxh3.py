"""XXH3 in 64 bits, seed 0, as columns: the same as ``kernel.routing.hashing.hash64`` of a text.

Spark's own ``xxhash64`` is another function (XXH64, seed 42). The algorithm differs by the length
of the key in bytes:

    0, 1-3, 4-8, 9-16, 17-128   a few 64-bit words from both ends   columns of longs
    129-240, 241 and more       all of it, 16 or 64 bytes at a time  folds over arrays

Spark compiles the columns for keys up to 128 bytes, which nearly all keys are. It interprets folds,
so a longer key costs about a hundred times as much.

Sums and products must wrap around at 64 bits. Spark does so when ANSI mode is off, and an
expression keeps the mode in which it was analysed: it is off while these are.
Words are read from the reversed bytes: Spark reads numbers with the first byte as the highest,
XXH3 with the first as the lowest.

Source: the specification of XXH3 (Yann Collet); constants are its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

_SECRET = bytes.fromhex(
    "b8fe6c3923a44bbe7c01812cf721ad1cded46de9839097db7240a4a4b7b3671f"
    "cb79e64eccc0e578825ad07dccff7221b8084674f743248ee03590e6813a264c"
    "3c2852bb91c300cb88d0658b1b532ea371644897a20df94e3819ef46a9deacd8"
    "a8fa763fe39c343ff9dcbbc7c70b4f1d8a51e04bcdb45931c89f7ec9d9787364"
    "eac5ac8334d3ebc3c581a0fffa1363eb170ddd51b7f0da49d316552629d4689e"
    "2b16be587d47a1fc8ff8b8d17ad031ce45cb3a8f95160428afd7fbcabb4b407e"
)
"""The default secret, which keys are mixed with if there is no seed."""

_PRIME32 = (0x9E3779B1, 0x85EBCA77, 0xC2B2AE3D)
_PRIME64 = (
    0x9E3779B185EBCA87,
    0xC2B2AE3D27D4EB4F,
    0x165667B19E3779F9,
    0x85EBCA77C2B2AE63,
    0x27D4EB2F165667C5,
)
_MIX_1 = 0x165667919E3779F9
_MIX_2 = 0x9FB21C651E98DF25

_BARRIER = "shiftright(spark_partition_id(), 31)"
"""Always 0, but not deterministic to Spark, which therefore keeps filters on the hash above the
projections. A filter pushed below them would repeat the whole expression of the hash."""

_LOW_HALF = f"{0xFFFFFFFF}L"

_WORD_BYTES = 8
_PAIR_BYTES = 16
_STRIPE_BYTES = 64
_STRIPES_PER_BLOCK = (len(_SECRET) - _STRIPE_BYTES) // _WORD_BYTES
_COLUMNS_BYTES_MAX = 128
_PAIRS_BYTES_MAX = 240

_ANSI = "spark.sql.ansi.enabled"
_BYTES, _LENGTH, _SHORT, _SUM = "_xxh3_bytes", "_xxh3_length", "_xxh3_short", "_xxh3_sum"
_FRONT_SWAPPED = "_xxh3_front_swapped"


def with_hash64(frame: DataFrame, key: str, hash_column: str) -> DataFrame:
    """Return ``frame`` with the hash of the text column ``key``: 64 bits as a signed long.

    The hash of a null key is null. The other columns stay.
    """
    key_bytes = f"ifnull(encode({_quoted(key)}, 'UTF-8'), X'')"
    stages: list[dict[str, str]] = [
        {_BYTES: f"encode(reverse(decode({key_bytes}, 'ISO-8859-1')), 'ISO-8859-1')"},
        {_LENGTH: f"ifnull(octet_length({_BYTES}), 0)"},
        _words() | {_SHORT: _short_word(), _FRONT_SWAPPED: _front_swapped(key_bytes)},
        _mixes() | {_SHORT: _short_first()},
        {_SUM: _sum_of(tuple(_mixes())), _SHORT: _short_second()},
        {_SUM: f"({_SUM} ^ {_shifted(_SUM, 37)}) * {_long(_MIX_1)}"},
        {hash_column: f"if({_quoted(key)} is null, null, {_finished()}) | {_BARRIER}"},
    ]
    staged = frame
    with _wrapping_arithmetic(frame.sparkSession):
        # Each stage is a projection of its own: Spark computes an expression that occurs twice in
        # one projection twice. Columns that are never null make the compiled code three times
        # shorter.
        for stage in stages:
            staged = staged.withColumns({name: f.expr(text) for name, text in stage.items()})
    return staged.drop(*(name for stage in stages[:-1] for name in stage))


@contextmanager
def _wrapping_arithmetic(spark: SparkSession) -> Iterator[None]:
    before = spark.conf.get(_ANSI)
    spark.conf.set(_ANSI, "false")
    try:
        yield
    finally:
        spark.conf.set(_ANSI, before)


# Words --------------------------------------------------------------------------------------------


def _words() -> dict[str, str]:
    """Return the words of keys up to 128 bytes: from the front and, at 16 k + 8 or 16, the end.

    A word that a key of this length does not need is 0: it may reach beyond the key.
    """
    words = {}
    for index in range(8):
        needed = max(8 if index == 0 else 16, 32 * (index // 2))
        within = f"{_LENGTH} > {needed} and {_LENGTH} <= {_COLUMNS_BYTES_MAX}"
        words[_front(index)] = f"if({within}, {_word(str(_WORD_BYTES * index))}, 0L)"
        back = f"{_LENGTH} - {_WORD_BYTES * (index + 1)}"
        words[_back(index)] = f"if({within}, {_word(back)}, 0L)"
    return words


def _front_swapped(key_bytes: str) -> str:
    """Return the first word with its bytes in the other order, for 9 to 16 bytes."""
    word = f"cast(conv(hex(substring({key_bytes}, 1, 8)), 16, -10) as bigint)"
    return f"if({_LENGTH} > 8 and {_LENGTH} <= 16, ifnull({word}, 0L), 0L)"


def _front(index: int) -> str:
    return f"_xxh3_front_{index}"


def _back(index: int) -> str:
    """Name the word that begins 8 * (index + 1) bytes before the end."""
    return f"_xxh3_back_{index}"


def _word(offset: str, size_bytes: int = _WORD_BYTES) -> str:
    """Return the unsigned little-endian number at a byte offset; of 8 bytes the bits as a long."""
    part = f"substring({_BYTES}, {_LENGTH} - {size_bytes - 1} - ({offset}), {size_bytes})"
    return f"ifnull(cast(conv(hex({part}), 16, -10) as bigint), 0L)"


# Short and middling keys --------------------------------------------------------------------------


def _mixes() -> dict[str, str]:
    """Return the mixes of each 16 bytes from the front and the end, for 17 to 128 bytes."""
    mixes = {}
    for pair in range(4):
        low, high = _front(2 * pair), _front(2 * pair + 1)
        mixes[f"_xxh3_mix_{2 * pair}"] = _mix_pair(low, high, 32 * pair)
        low, high = _back(2 * pair + 1), _back(2 * pair)
        mixes[f"_xxh3_mix_{2 * pair + 1}"] = _mix_pair(low, high, 32 * pair + 16)
    return mixes


def _mix_pair(low: str, high: str, offset: int) -> str:
    folded = _folded(f"({low} ^ {_secret(offset)})", f"({high} ^ {_secret(offset + 8)})")
    needed = max(_PAIR_BYTES, offset // 32 * 32)
    return f"if({_LENGTH} > {needed} and {_LENGTH} <= {_COLUMNS_BYTES_MAX}, {folded}, 0L)"


def _sum_of(mixes: Sequence[str]) -> str:
    """Return the sum before the final avalanche, for keys of more than 8 bytes."""
    total = " + ".join([f"{_LENGTH} * {_long(_PRIME64[0])}", *mixes])
    return (
        f"case when {_LENGTH} <= 8 then 0L when {_LENGTH} <= 16 then {_nine_to_sixteen()} "
        f"when {_LENGTH} <= {_COLUMNS_BYTES_MAX} then {total} "
        f"when {_LENGTH} <= {_PAIRS_BYTES_MAX} then ifnull({_by_pairs()}, 0L) "
        f"else ifnull({_by_stripes()}, 0L) end"
    )


def _finished() -> str:
    last = f"{_SHORT} ^ if({_LENGTH} <= 3, {_shifted(_SHORT, 32)}, {_shifted(_SHORT, 28)})"
    return f"if({_LENGTH} <= 8, {last}, {_SUM} ^ {_shifted(_SUM, 32)})"


def _short_word() -> str:
    """Return a key of up to 8 bytes and its length in one word, mixed with the secret."""
    first, middle, last = (_word(at, 1) for at in ("0", f"{_LENGTH} div 2", f"{_LENGTH} - 1"))
    three = f"(shiftleft({first}, 16) | shiftleft({middle}, 24) | {last} | ({_LENGTH} * 256L))"
    eight = f"({_word(f'{_LENGTH} - 4', 4)} + shiftleft({_word('0', 4)}, 32))"
    return (
        f"case when {_LENGTH} = 0 then {_long(_secret_int(56) ^ _secret_int(64))} "
        f"when {_LENGTH} <= 3 then {three} ^ {_long(_secret_int(0, 4) ^ _secret_int(4, 4))} "
        f"when {_LENGTH} <= 8 then {eight} ^ {_long(_secret_int(8) ^ _secret_int(16))} else 0L end"
    )


def _short_first() -> str:
    rotated = f"({_SHORT} ^ {_rotated(_SHORT, 49)} ^ {_rotated(_SHORT, 24)})"
    three = f"({_SHORT} ^ {_shifted(_SHORT, 33)}) * {_long(_PRIME64[1])}"
    return f"if({_LENGTH} <= 3, {three}, {rotated} * {_long(_MIX_2)})"


def _short_second() -> str:
    three = f"({_SHORT} ^ {_shifted(_SHORT, 29)}) * {_long(_PRIME64[2])}"
    eight = f"({_SHORT} ^ ({_shifted(_SHORT, 35)} + {_LENGTH})) * {_long(_MIX_2)}"
    return f"if({_LENGTH} <= 3, {three}, {eight})"


def _nine_to_sixteen() -> str:
    keys = (_secret_int(24) ^ _secret_int(32), _secret_int(40) ^ _secret_int(48))
    low, high = f"({_front(0)} ^ {_long(keys[0])})", f"({_back(0)} ^ {_long(keys[1])})"
    swapped_key = int.from_bytes(keys[0].to_bytes(_WORD_BYTES, "little"), "big")
    swapped = f"({_FRONT_SWAPPED} ^ {_long(swapped_key)})"
    return f"({_LENGTH} + {swapped} + {high} + {_folded(low, high)})"


# Long keys ----------------------------------------------------------------------------------------


def _by_pairs() -> str:
    """Return the sum for 129 to 240 bytes: eight pairs, avalanched, and the pairs behind them."""
    rounds = f"({_LENGTH} div {_PAIR_BYTES})"
    first = _pairs("sequence(0, 7)", [_secret_int(16 * i) for i in range(8)], 0, 8)
    more = _pairs(
        f"if({rounds} > 8, sequence(8, {rounds} - 1), array())",
        [_secret_int(16 * i + 3) for i in range(8)],
        8,
        11,
    )
    end = (
        f"array(named_struct('a', {_word(f'{_LENGTH} - 16')} ^ {_secret(119)}, "
        f"'b', {_word(f'{_LENGTH} - 8')} ^ {_secret(127)}))"
    )
    add = f"(total, pair) -> total + {_folded('pair.a', 'pair.b')}"
    begun = (
        f"aggregate({first}, {_LENGTH} * {_long(_PRIME64[0])}, {add}, "
        f"total -> {_avalanche('total')})"
    )
    return f"aggregate(concat({more}, {end}), {begun}, {add})"


def _pairs(indexes: str, low_secrets: Sequence[int], first: int, high_offset: int) -> str:
    high = [_secret_int(16 * index + high_offset) for index in range(8)]
    keyed = (
        f"named_struct('a', {_word('16 * pair')} ^ {_array(low_secrets)}[pair - {first}], "
        f"'b', {_word('16 * pair + 8')} ^ {_array(high)}[pair - {first}])"
    )
    return f"transform({indexes}, pair -> {keyed})"


def _by_stripes() -> str:
    """Return the sum for more than 240 bytes: eight lanes, over stripes of 64 bytes."""
    secrets = _array([_secret_int(8 * index) for index in range(len(_SECRET) // _WORD_BYTES)])
    last_secrets = _array([_secret_int(121 + 8 * lane) for lane in range(8)])
    lanes = f"transform(sequence(0, 7), lane -> {_word(f'{_STRIPE_BYTES} * stripe + 8 * lane')})"
    place = f"stripe % {_STRIPES_PER_BLOCK}"
    stripes = (
        f"transform(sequence(0, ({_LENGTH} - 1) div {_STRIPE_BYTES} - 1), stripe -> named_struct("
        f"'data', {lanes}, 'secrets', slice({secrets}, {place} + 1, 8), "
        f"'ends_block', {place} = {_STRIPES_PER_BLOCK - 1}))"
    )
    last_lanes = f"transform(sequence(0, 7), lane -> {_word(f'{_LENGTH} - 64 + 8 * lane')})"
    last = (
        f"array(named_struct('data', {last_lanes}, 'secrets', {last_secrets}, 'ends_block', false))"
    )
    keyed = "(stripe.data[lane] ^ stripe.secrets[lane])"
    taken = (
        "transform(sums, (value, lane) -> value + stripe.data[lane ^ 1] + "
        f"({keyed} & {_LOW_HALF}) * {_shifted(keyed, 32)})"
    )
    block_secrets = _array([_secret_int(128 + 8 * lane) for lane in range(8)])
    scrambled = (
        f"transform({taken}, (value, lane) -> "
        f"(value ^ {_shifted('value', 47)} ^ {block_secrets}[lane]) * {_PRIME32[0]}L)"
    )
    folded = " + ".join(
        _folded(
            f"(sums[{2 * i}] ^ {_secret(11 + 16 * i)})",
            f"(sums[{2 * i + 1}] ^ {_secret(19 + 16 * i)})",
        )
        for i in range(4)
    )
    begin = _array([_PRIME32[2], *_PRIME64[:4], _PRIME32[1], _PRIME64[4], _PRIME32[0]])
    return (
        f"aggregate(concat({stripes}, {last}), {begin}, "
        f"(sums, stripe) -> if(stripe.ends_block, {scrambled}, {taken}), "
        f"sums -> {_LENGTH} * {_long(_PRIME64[0])} + {folded})"
    )


# Arithmetic ---------------------------------------------------------------------------------------


def _folded(left: str, right: str) -> str:
    """Return the low half of a 128-bit product, its high half folded into it."""
    left_low, left_high = f"({left} & {_LOW_HALF})", _shifted(left, 32)
    right_low, right_high = f"({right} & {_LOW_HALF})", _shifted(right, 32)
    upper = f"({left_high} * {right_low})"
    lower = _shifted(f"{left_low} * {right_low}", 32)
    cross = f"({lower} + ({upper} & {_LOW_HALF}) + {left_low} * {right_high})"
    high = f"({left_high} * {right_high} + {_shifted(upper, 32)} + {_shifted(cross, 32)})"
    return f"(({left} * {right}) ^ {high})"


def _avalanche(value: str) -> str:
    product = f"(({value} ^ {_shifted(value, 37)}) * {_long(_MIX_1)})"
    return f"({product} ^ {_shifted(product, 32)})"


def _rotated(value: str, bits: int) -> str:
    return f"(shiftleft({value}, {bits}) | {_shifted(value, 64 - bits)})"


def _shifted(value: str, bits: int) -> str:
    return f"shiftrightunsigned({value}, {bits})"


def _secret_int(offset: int, size_bytes: int = _WORD_BYTES) -> int:
    return int.from_bytes(_SECRET[offset : offset + size_bytes], "little")


def _secret(offset: int) -> str:
    return _long(_secret_int(offset))


def _array(values: Sequence[int]) -> str:
    return f"array({', '.join(map(_long, values))})"


def _long(value: int) -> str:
    """Return 64 unsigned bits as the literal of a signed long."""
    return f"({value - (1 << 64) if value >> 63 else value}L)"


def _quoted(name: str) -> str:
    return f"`{name.replace('`', '``')}`"
