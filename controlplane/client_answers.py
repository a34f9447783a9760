"""What ``ControlPlaneClient`` makes of an answer, and of none: models, or errors in words."""

from __future__ import annotations

import ssl

import httpx
from pydantic import TypeAdapter, ValidationError

from controlplane.client_calls import (
    Calls,
    Item,
    Model,
    RefusedError,
    UnauthorisedError,
    UnreachableError,
)
from controlplane.messages import Problem


class Answers(Calls):
    """Reads the answers of the control plane at ``url``."""

    url: str

    def _unreachable(self, error: httpx.HTTPError) -> UnreachableError:
        if isinstance(error, httpx.TimeoutException):
            return UnreachableError(
                f"the control plane at {self.url} does not answer in time; is the machine busy?"
            )
        cause: BaseException | None = error
        while cause is not None:
            if isinstance(cause, ssl.SSLError):
                return UnreachableError(f"no TLS connection to {self.url}: {cause.reason}")
            cause = cause.__cause__ or cause.__context__
        if isinstance(error, httpx.ConnectError):
            return UnreachableError(
                f"no control plane answers at {self.url}: start one with 'specdeck serve', or "
                "give its address with --url"
            )
        return UnreachableError(f"the connection to {self.url} broke: {type(error).__name__}")

    def _raise_for(self, response: httpx.Response) -> None:
        try:
            problem = Problem.model_validate_json(response.content)
        except ValidationError:
            raise RefusedError(
                f"{self.url} answered {response.status_code} and is no specdeck control plane, or "
                "something stands between"
            ) from None
        if response.status_code in (401, 403):
            raise UnauthorisedError(problem.detail, problem)
        if response.status_code in (502, 503, 504) and problem.code == "stopping":
            raise UnreachableError(problem.detail, problem)
        raise RefusedError(problem.detail, problem)

    def _read(self, model: type[Model], content: bytes | str) -> Model:
        try:
            return model.model_validate_json(content, extra="ignore")
        except ValidationError as error:
            raise self._strange(error) from error

    def _read_list(self, item: type[Item], content: bytes) -> list[Item]:
        try:
            return TypeAdapter(list[item]).validate_json(  # type: ignore[valid-type]
                content, extra="ignore"
            )
        except ValidationError as error:
            raise self._strange(error) from error

    def _strange(self, error: ValidationError) -> RefusedError:
        first = error.errors(include_input=False)[0]
        place = ".".join(str(part) for part in first["loc"])
        return RefusedError(
            f"{self.url} answers what this version does not understand ({place}: {first['msg']}): "
            "is it a specdeck control plane, and is this client as new as it?"
        )
