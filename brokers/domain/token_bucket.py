"""A token bucket that may owe: what has passed is charged, also beyond what there was.

Tokens come at a rate, up to those of one period. Whoever charges more than there are leaves a debt,
and nothing should pass until it is paid. So a burst delays what follows it, and over any time no
more passes than the rate allows, one period's tokens, and the largest single charge.
"""

from __future__ import annotations


class TokenBucket:
    """``amount`` tokens in each ``period_s``. Full at first. Times never go backwards."""

    __slots__ = ("_at_s", "_capacity", "_per_s", "_period_s", "tokens")

    def __init__(self, amount: int, period_s: float, now_s: float) -> None:
        self._period_s = period_s
        self._per_s = amount / period_s
        self._capacity = float(amount)
        self._at_s = now_s
        self.tokens = float(amount)
        """As of the last ``fill``; negative: a debt."""

    def __repr__(self) -> str:
        return f"<TokenBucket {self.tokens:.1f} of {self._capacity:.0f}>"

    def change(self, amount: int, period_s: float, now_s: float) -> None:
        """Continue at another rate. Debts stay; no more is left than the new rate has."""
        self.fill(now_s)
        self._period_s = period_s
        self._per_s = amount / period_s
        self._capacity = float(amount)
        self.tokens = min(self.tokens, self._capacity)

    def fill(self, now_s: float, extra_per_s: float = 0.0) -> float:
        """Add what has come since the last call, and return all tokens. ``extra_per_s`` is added
        to the rate for this time."""
        passed_s = now_s - self._at_s
        if passed_s > 0:
            self._at_s = now_s
            come = self.tokens + passed_s * (self._per_s + extra_per_s)
            self.tokens = min(self._capacity + extra_per_s * self._period_s, come)
        return self.tokens

    def spend(self, amount: int, now_s: float) -> bool:
        """Fill, and charge ``amount``; return whether tokens are left."""
        passed_s = now_s - self._at_s
        tokens = self.tokens
        if passed_s > 0:
            self._at_s = now_s
            tokens += passed_s * self._per_s
            if tokens > self._capacity:
                tokens = self._capacity
        self.tokens = tokens = tokens - amount
        return tokens > 0

    def wait_s(self, slice_s: float, extra_per_s: float = 0.0) -> float:
        """Return the time until there are tokens for ``slice_s``, and for one at least.

        As of the last ``fill``.
        """
        per_s = self._per_s + extra_per_s
        wanted = min(max(1.0, per_s * slice_s), self._capacity)
        return max(0.0, (wanted - self.tokens) / per_s)
