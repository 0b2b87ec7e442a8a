"""A topic of one segment that was split and merged ten times, and the drawing of its layout."""

from __future__ import annotations

from shards.domain.scalable.vocabulary import ChangeKind

SPLIT, MERGE = ChangeKind.SPLIT, ChangeKind.MERGE

TEN_CHANGES = (
    (SPLIT, 0),
    (SPLIT, 2),
    (SPLIT, 1),
    (MERGE, 6, 3),
    (SPLIT, 7),
    (SPLIT, 4),
    (MERGE, 9, 10),
    (SPLIT, 12),
    (MERGE, 5, 8),
    (MERGE, 13, 14),
)

DRAWN = """\
epoch  0000    4000    8000    b000    c000    e000
0      ┣━━━━━━━━━━━━━━━━━━━━━━ 0 ━━━━━━━━━━━━━━━━━━━━━━┫
1      ┣━━━━━━ 1 ━━━━━━┣━━━━━━━━━━━━━━ 2 ━━━━━━━━━━━━━━┫  split 0 → 1, 2
2      ├────── 1 ──────┣━━━━━━ 3 ━━━━━━┣━━━━━━ 4 ━━━━━━┫  split 2 → 3, 4
3      ┣━━ 5 ━━┣━━ 6 ━━├────── 3 ──────├────── 4 ──────┤  split 1 → 5, 6
4      ├── 5 ──┣━━━━━━━━━━ 7 ━━━━━━━━━━├────── 4 ──────┤  merge 6, 3 → 7
5      ├── 5 ──┣━━ 8 ━━┣━━━━━━ 9 ━━━━━━├────── 4 ──────┤  split 7 → 8, 9
6      ├── 5 ──├── 8 ──├────── 9 ──────┣━━ 10 ━┣━━ 11 ━┫  split 4 → 10, 11
7      ├── 5 ──├── 8 ──┣━━━━━━━━━━ 12 ━━━━━━━━━├── 11 ─┤  merge 9, 10 → 12
8      ├── 5 ──├── 8 ──┣━━ 13 ━┣━━━━━━ 14 ━━━━━├── 11 ─┤  split 12 → 13, 14
9      ┣━━━━━━ 15 ━━━━━├── 13 ─├────── 14 ─────├── 11 ─┤  merge 5, 8 → 15
10     ├────── 15 ─────┣━━━━━━━━━━ 16 ━━━━━━━━━├── 11 ─┤  merge 13, 14 → 16"""
