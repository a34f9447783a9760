"""Gives running requests their tokens: one each, or what a tier's drafts had accepted."""

from __future__ import annotations

import random

from engine_patch.chooser import Chooser
from engine_patch.embedded.acceptance import Sampler, sampler
from engine_patch.embedded.config import EngineConfig
from engine_patch.embedded.gauges import Books
from engine_patch.embedded.passes import Pass
from engine_patch.embedded.requests import Request
from engine_patch.tier import OFF, TierName, TierShape


class Emission:
    """The tokens of one replica.  Deterministic by ``seed`` and the order of calls.

    Args:
        chooser: hears what was accepted.
        books: count it.

    Attributes:
        progressed: streaming requests that got tokens; the caller empties it.
    """

    def __init__(self, config: EngineConfig, chooser: Chooser, books: Books, seed: int) -> None:
        self.progressed: list[Request] = []
        self._config = config
        self._chooser = chooser
        self._books = books
        self._rng = random.Random(seed)
        self._samplers: dict[TierName, Sampler] = {}
        self.set_accept_length(config.accept_length)

    def set_accept_length(self, accept_length: float) -> None:
        """Change the mean accept length of the chain of three from the next step on."""
        mode = self._config.accept_mode
        self._samplers = {
            tier: sampler(accept_length, TierShape.parse(tier), mode, self._rng)
            for tier in self._config.tiers
            if tier != OFF
        }

    def one(self, request: Request) -> None:
        """Give a request one token."""
        request.emitted += 1
        self._list(request)

    def decode(self, done: Pass) -> int:
        """Give the requests of a decode step theirs; returns tokens of all."""
        if done.tier != OFF:
            return self._drafts(done)
        for request in done.requests:
            self.one(request)
        return len(done.requests)

    def _list(self, request: Request) -> None:
        if request.part and (request.emitted - request.told >= request.part or not request.told):
            request.told = request.emitted
            self.progressed.append(request)

    def _drafts(self, done: Pass) -> int:
        accepted = self._samplers[done.tier].draw(len(done.requests))
        self._chooser.verified(done.tier, accepted)
        width = TierShape.parse(done.tier).num_draft_tokens - 1
        emitted = 0
        for request, drafts in zip(done.requests, accepted, strict=True):
            left = request.output - request.emitted
            tokens = drafts + 1 if drafts < left else left
            request.emitted += tokens
            request.verifies += 1
            request.accepted += drafts
            request.proposed += width
            emitted += tokens
            self._list(request)
        self._books.verified(len(done.requests), sum(accepted), width)
        return emitted
