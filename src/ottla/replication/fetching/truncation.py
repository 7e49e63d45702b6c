"""Where a follower cuts its log if it and its leader disagree (KIP-101, KIP-279, KIP-595). No I/O.

The leader names the largest epoch it knows that is not above the follower's last one, and where that epoch ends. Both
logs have the same records up to the end of an epoch that both know, as far as both have it:

    the follower's log                    cut at
    knows that epoch                      the lower of both ends; done
    knows only lower epochs               the end of the largest of these; ask again
    knows no epochs up to that one        the leader's end; done
    the leader does not know (-1)         the offset given (the high watermark); done
"""

from __future__ import annotations

from typing import NamedTuple

from ottla.log.leader_epochs import UNDEFINED_EPOCH, UNDEFINED_OFFSET, LeaderEpochs


class Cut(NamedTuple):
    """An offset, and whether the logs agree up to there; otherwise the leader must be asked again."""

    offset: int
    is_final: bool


def cut_for(leader_epoch: int, leader_end: int, epochs: LeaderEpochs, log_end: int, high_watermark: int) -> Cut:
    """See the module. `epochs`, `log_end` and `high_watermark` are the follower's."""
    if leader_end == UNDEFINED_OFFSET:
        return Cut(min(high_watermark, log_end), is_final=True)
    if leader_epoch == UNDEFINED_EPOCH:  # a leader before KIP-279
        return Cut(min(leader_end, log_end), is_final=True)
    epoch, end = epochs.end_offset_for(leader_epoch, log_end)
    if epoch == UNDEFINED_EPOCH:
        return Cut(min(leader_end, log_end), is_final=True)
    if epoch != leader_epoch:
        return Cut(min(end, log_end), is_final=False)
    return Cut(min(end, leader_end, log_end), is_final=True)
