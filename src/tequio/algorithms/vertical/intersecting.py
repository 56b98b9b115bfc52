"""The coordinator's side of a set intersection: it carries what the parties sign, and of three or more parties compares
the lists that all have masked."""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from tequio.algorithms.vertical.intersection import (
    IntersectSettings,
    MaskSettings,
    agree,
    commit,
    harden,
    mask,
    offer,
    settle,
    show,
)
from tequio.errors import DataError
from tequio.privacy.psi.curve import require_points, rows_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from tequio.algorithms.vertical.conversation import Conversation
    from tequio.algorithms.vertical.intersection import Step
    from tequio.federation.payload import Payload
    from tequio.privacy.psi.curve import Points
    from tequio.privacy.psi.ids import Comparison


@dataclass(frozen=True)
class Found:
    """What the coordinator learns: how long the list of each party is, how many ids all have in common, and where it
    compared the lists, the places of common ids in each."""

    lengths: dict[int, int]
    common: int
    places: dict[int, NDArray[np.int64]]


def intersect(talk: Conversation, compare: Sequence[Comparison], *, linked: bool = False) -> Found:
    """Let each party keep which of its rows are common to all, unless rows are to be `linked`."""
    members = talk.roles.holders
    settings = IntersectSettings(attempt=secrets.token_hex(16), members=members, compare=tuple(compare), linked=linked)
    offers = talk.ask(members, offer, settings=settings).payloads
    lengths = [each["length"] for each in offers]
    sealed_secrets: dict[int, Payload] = {member: {} for member in members}
    if not offers[0]["brings_secret"]:
        made = talk.ask_one(members[0], harden, {"offers": offers}, settings=settings)
        for member, box, signed in zip(members[1:], made["boxes"], made["signatures"], strict=True):
            sealed_secrets[member] = {"box": box, "signature": signed}
    commitments = talk.ask(members, commit, {"offers": offers}, each=sealed_secrets, settings=settings).payloads
    agreements = talk.ask(members, agree, {"commitments": commitments}, settings=settings).payloads
    shown = talk.ask(members, show, {"signatures": [each["signature"] for each in agreements]}, settings=settings)
    lists, steps = _sent_round(talk, settings, [dict(each) for each in shown.payloads])
    places: dict[int, NDArray[np.int64]] = {}
    if linked or len(members) > 2:
        places = dict(zip(members, in_all([each["points"] for each in lists], lengths), strict=True))
    told: dict[int, Payload] = {
        member: {} if linked else {"places": places[member]} if places else {"box": each["box"]}
        for member, each in zip(members, lists, strict=True)}
    settled = talk.ask(members, settle, {"steps": steps}, each=told, settings=settings).payloads
    common = len(places[members[0]]) if places else settled[0]["common"]
    if not linked and any(each["common"] != common for each in settled):
        raise DataError("the parties do not find the same number of common ids", remedy="stop working with those who "
                        "do not follow the protocol")
    if not common:
        raise DataError("the parties have no ids in common",
                        remedy="check that their ids mean the same and are written alike: algorithm.compare")
    return Found(dict(zip(members, lengths, strict=True)), common, places)


def _sent_round(talk: Conversation, settings: IntersectSettings,
                lists: list[Payload]) -> tuple[list[Payload], list[list[Step]]]:
    """Every list after all other parties masked it, and how that went."""
    members = settings.members
    steps: list[list[Step]] = [[] for _ in members]
    for hop in range(1, len(members)):
        owners = [(place - hop) % len(members) for place in range(len(members))]
        given = {member: lists[owner] for member, owner in zip(members, owners, strict=True)}
        replies = talk.ask(members, mask, each=given, settings=MaskSettings(**vars(settings), hop=hop))
        for owner, reply in zip(owners, replies.payloads, strict=True):
            lists[owner] = dict(reply)
            steps[owner].append(reply["step"])
    return lists, steps


def in_all(lists: Sequence[Points], lengths: Sequence[int]) -> list[NDArray[np.int64]]:
    """Of lists that every party has masked: the places, in each, of what all of them have, in one common order."""
    for points, length in zip(lists, lengths, strict=True):
        require_points(points, length, "a party")
    places = [{row: index for index, row in enumerate(rows_of(points))} for points in lists]
    common = [value for value in places[0] if all(value in other for other in places[1:])]
    return [np.array([mine[value] for value in common], dtype=np.int64) for mine in places]
