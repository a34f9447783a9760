"""Going back to an earlier version of the policy."""

from __future__ import annotations

from collections.abc import Callable

from textual.widget import Widget

from console.asked import Ask
from console.drafting import differences
from console.formatting import clock
from console.override import sent
from console.scene import Scene
from console.screens.dialog import Dialog
from controlplane.client import ControlPlaneClient
from controlplane.etags import policy_tag
from controlplane.messages import RollbackRequest
from store.policies import PolicyConfig

LONGEST_REASON = 400
"""What the request takes; the control plane writes the version before it."""
OFFERED = 6
"""Versions to choose from, newest first."""


class RollBack(Dialog):
    """The earlier policy becomes a new version: history only grows."""

    heading = "Roll back"
    act = "Roll back"

    def __init__(
        self, client: ControlPlaneClient, present: Callable[[], Scene], author: str
    ) -> None:
        super().__init__(client, present, author)
        scene = present()
        config = scene.board.policy
        assert config is not None, "not offered before the policy is known"
        self._config = config
        known = scene.looked.policies.value or ()
        earlier = [one for one in known if one.version < config.version]
        self._earlier = {f"v{one.version}": one for one in earlier[:OFFERED]}

    def fields(self) -> list[tuple[str, Widget]]:
        """The version, and why."""
        versions = list(self._earlier)
        return [
            ("version", self.choice(versions, versions[0] if versions else "", "version")),
            ("reason", self.reason()),
        ]

    @property
    def chosen(self) -> PolicyConfig:
        """The version to go back to."""
        return self._earlier[self.value("version")]

    def request(self) -> RollbackRequest:
        """The request the fields describe."""
        return RollbackRequest(
            version=self.chosen.version,
            author=self.author,
            reason=self.value("reason").strip()[:LONGEST_REASON],
        )

    def effect(self) -> tuple[str, ...]:
        """Whose version that is, and what becomes different."""
        chosen = self.chosen
        at = clock(chosen.created_utc_ms, self.scene.zone)
        changed = differences(self._config.policy, chosen.policy, self.scene.glyphs)
        return (
            f"version {self._config.version + 1} with the policy of version {chosen.version} by "
            f"{chosen.author}, {at}; the stance stays {self._config.stance.value}",
            *(changed or ("the same policy: nothing changes",)),
        )

    def sends(self) -> str:
        """The POST as it goes out; refused if somebody made another version meanwhile."""
        tag = policy_tag(self._config)
        return sent("POST", self.engine_id, "policy/rollback", self.request(), tag)

    def asks(self) -> tuple[Ask, ...]:
        """A tick under the new version."""
        version = self._config.version + 1
        return (self.ask(f"rollback to the policy of v{self.chosen.version}", version=version),)

    async def send(self) -> None:
        """Make the version."""
        tag = policy_tag(self._config)
        await self.client.roll_back(self.engine_id, self.request(), if_match=tag)
