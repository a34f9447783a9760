"""Lists in pages: the parameters that every list takes, and the link to the rows that follow."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Protocol, TypeVar

from fastapi import Depends, Query, Request, Response

ROW_ID_MAX = 2**63 - 1
MOST_ROWS = 10_000

Limit = Annotated[int, Query(ge=1, le=MOST_ROWS, description="Most rows to answer.")]
RowId = Annotated[int | None, Query(ge=0, le=ROW_ID_MAX)]
BeforeId = Annotated[
    int | None, Query(ge=0, le=ROW_ID_MAX, description="Only rows with a smaller id, to page.")
]


class _HasId(Protocol):
    @property
    def id(self) -> int: ...


Row = TypeVar("Row", bound=_HasId)


class Pages:
    """Puts a ``Link`` with ``rel="next"`` beside a page that may not be the last."""

    def __init__(self, request: Request, response: Response) -> None:
        self._request = request
        self._response = response

    def link(self, page: Sequence[object], limit: int, **following: int) -> None:
        """Link to the rows that follow a full page.

        Args:
            following: the query parameter that leads to them, with its value.
        """
        if len(page) >= limit:
            url = self._request.url.include_query_params(**following)
            # Without host and scheme: a proxy may have others.
            self._response.headers["Link"] = f'<{url.path}?{url.query}>; rel="next"'

    def by_id(self, page: list[Row], limit: int) -> list[Row]:
        """The page itself; a full one links to the rows with smaller ids."""
        if page:
            self.link(page, limit, before_id=min(one.id for one in page))
        return page


ThePages = Annotated[Pages, Depends(Pages)]
