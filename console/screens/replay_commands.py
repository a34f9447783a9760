"""What the palette offers on the replay screen: what its keys do."""

from __future__ import annotations

from functools import partial

from textual.command import DiscoveryHit, Hit, Hits, Provider
from textual.screen import Screen


class ReplayCommands(Provider):
    """Every action that is possible now, in words."""

    def _offers(self) -> list[tuple[str, str]]:
        """(words, action) of each."""
        found: dict[str, str] = {}
        for active in self.screen.active_bindings.values():
            binding = active.binding
            if active.enabled and active.node is self.screen and binding.description:
                found.setdefault(binding.action, binding.tooltip or binding.description)
        return [(words, action) for action, words in found.items()]

    async def discover(self) -> Hits:
        """All of them, before anything is typed."""
        for words, action in self._offers():
            yield DiscoveryHit(words, partial(_run, self.screen, action))

    async def search(self, query: str) -> Hits:
        """Those that fit what was typed."""
        matcher = self.matcher(query)
        for words, action in self._offers():
            if (score := matcher.match(words)) > 0:
                yield Hit(score, matcher.highlight(words), partial(_run, self.screen, action))


async def _run(screen: Screen[object], action: str) -> None:
    await screen.run_action(action)
