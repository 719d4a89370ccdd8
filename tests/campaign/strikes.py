"""What can be struck, and which of it is: every commit and change in every way, a spread of all else."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass
from typing import Final

from tests.campaign.wire import Message

DAY: Final = 86_400.0
#: What each kind of fault is on the wire; ``pass``: it happens to the worker only, once the message is there.
ON_WIRE: Final = {
    "before": "before", "after": "after", "half": "half", "torn": "torn", "slow": "slow", "twice": "twice",
    "outage": "outage", "kill": "after", "killed-unsent": "before", "late": "hold", "freeze": "hold", "term": "pass",
    "memory": "pass", "clock-ahead": "pass", "clock-back": "pass", "kill-dbt": "after", "crash": "after",
    "crash-before": "before", "disk-full": "pass",
}  # fmt: skip
#: Kinds that end the worker.
DEADLY: Final = ("kill", "killed-unsent", "late")
#: Kinds that strike every commit of the ledger, then every changing statement on a target.
_COMMIT: Final = ("before", "after", "kill", "killed-unsent")
_CHANGE: Final = ("before", "after", "torn", "slow", "kill", "killed-unsent", "late", "freeze", "term")
#: What is spread over everything else, in turn.
_TURN: Final = (
    "after",
    "kill",
    "before",
    "half",
    "outage",
    "torn",
    "term",
    "memory",
    "slow",
    "clock-ahead",
    "clock-back",
)


@dataclass(frozen=True)
class Strike:
    """One fault at one message of one end."""

    end: str
    number: int
    label: str
    kind: str
    opening: bool = False
    """At the first connection opened from there on: a later try says more than the one that was traced."""

    def __str__(self) -> str:
        return f"{self.kind} at {self.end} message {self.number} ({self.label})"


def covering(trace: dict[str, list[Message]], changing: tuple[str, ...], struck_more: str) -> list[Strike]:
    """The covering selection: every commit and every changing statement in every way, a spread of all else in turn.

    :param changing: how the labels of statements begin that change something on the target.
    :param struck_more: the end whose changing statements are halved, sent twice and cut off for longer as well.
    """
    strikes: list[Strike] = []
    for end, messages in trace.items():
        commits = others = opened = 0
        for message in messages:
            kinds: tuple[str, ...]
            if end == "ledger" and message.label == "COMMIT":
                commits += 1
                kinds = (*_COMMIT, _TURN[commits % len(_TURN)])
                # frozen here, it keeps the ledger's lock until the server ends its session; once of each is enough
                kinds += {2: ("freeze",), 7: ("late",)}.get(commits, ())
            elif end not in ("ledger", "source") and message.label.startswith(changing):
                kinds = _CHANGE
                kinds += ("half", "outage", "memory", "clock-back") if end == struck_more else ()
                kinds += ("twice",) if end == "http" else ()
            elif end == "ledger" and message.opens:
                opened += 1
                kinds = ("freeze",) if opened % 2 else ("outage",) if opened % 8 == 2 else ()
            else:
                others += 1
                every = 24 if end == "ledger" else 2
                kinds = (_TURN[others // every % len(_TURN)],) if others % every == 0 else ()
            strikes += [Strike(end, message.number, message.label, kind) for kind in kinds]
    return strikes


def every_pair(trace: dict[str, list[Message]]) -> list[Strike]:
    """Every message with every fault.

    A request is sent again only where intermediaries do that: over HTTP. Standing still inside a ledger transaction
    keeps its lock until the server ends the session; that is struck by the covering selection.
    """
    kinds = sorted({*_CHANGE, *_TURN, "freeze"})
    return [
        Strike(end, message.number, message.label, kind)
        for end, messages in trace.items()
        for message in messages
        for kind in (*kinds, *(("twice",) if end == "http" else ()))
        if kind not in ("freeze", "late") or end != "ledger" or message.opens
    ]


def where_a_worker_may_stand_still(trace: dict[str, list[Message]]) -> list[Strike]:
    """Before every transaction of the ledger and every word to a source or target: each place a zombie can sleep at.

    Inside a ledger transaction it would hold the ledger's lock until the server ends its session; that place is one of
    the covering selection.
    """
    return [
        Strike(end, message.number, message.label, "freeze", opening=message.opens)
        for end, messages in trace.items()
        for message in messages
        if end != "ledger" or message.opens
    ]


def chosen(planned: list[Strike], count: int, share: int = 0, shares: int = 1) -> list[Strike]:
    """A share of ``count`` strikes that covers first every fault at every kind of message: half of it the rarest kinds, half at random.

    :param share: which share, of how many; shares do not overlap.
    """
    by_kind: dict[tuple[str, str, str], list[Strike]] = {}
    for strike in planned:
        by_kind.setdefault((strike.end, strike.label, strike.kind), []).append(strike)
    rounds = [list(group) for group in by_kind.values()]
    for group in rounds:
        random.Random(len(group)).shuffle(group)
    random.Random(1).shuffle(rounds)
    common = Counter((strike.end, strike.label) for strike in {(s.end, s.number): s for s in planned}.values())
    rounds.sort(key=lambda group: common[group[0].end, group[0].label])
    others = rounds[count // 2 :]
    random.Random(1).shuffle(others)
    rounds[count // 2 :] = others
    picked: list[Strike] = []
    while len(picked) < min(count, len(planned)):
        picked += [group.pop() for group in rounds if group]
    return picked[:count][share::shares]


def chains(places: list[Strike], length: int, count: int, share: int = 0, shares: int = 1) -> list[list[Strike]]:
    """Places for one worker after another to be frozen at, spread over all of them."""
    places = list(places)
    random.Random(2).shuffle(places)
    repeated = [places[n % len(places)] for n in range(length * count)]
    return [repeated[n * length : (n + 1) * length] for n in range(count)][share::shares]
