"""The connection to the tracking server, made at the first write."""

from typing import TYPE_CHECKING

from service.mirror.tracking_server.requested_pause import RequestedPause
from service.runtime import garbage_collection

if TYPE_CHECKING:
    from service.mirror.tracking_server.tracking_client import TrackingClient


class TrackingConnection:
    """Creates the client lazily, because importing MLflow takes seconds."""

    def __init__(self, uri: str, pause: RequestedPause) -> None:
        self._uri = uri
        self.pause = pause
        self._client: TrackingClient | None = None

    @property
    def client(self) -> "TrackingClient":
        if self._client is None:
            with garbage_collection.frozen_afterwards():
                from service.mirror.tracking_server.tracking_client import TrackingClient  # noqa: PLC0415

            self._client = TrackingClient(self._uri, self.pause)
        return self._client
