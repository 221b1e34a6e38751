"""JSON bodies of the calls of attempts' holders, who have no access token that is checked before a body is read."""

from functools import partial

from starlette.requests import Request

from service.api.http.bodies.body_reader import body_too_large, read_body
from service.api.http.bodies.json_body import JsonBody, Message
from service.api.http.headers import bearer_token, header
from service.api.http.lease_checks import look_up_holder
from service.operations.attempts.leases import no_lease_token


class LeaseBody(JsonBody[Message]):
    """Nothing is read of a call without a token, and no large body of a call whose token is not its trial's.

    A small body costs no query here: the transaction that takes the message checks the lease.
    """

    async def _read(self, request: Request) -> bytes:
        """Also raises Unauthorized and NotFound."""
        if bearer_token(header(request, b"authorization")) is None:
            raise no_lease_token()
        return await read_body(request, self._max_bytes, partial(body_too_large, self._max_bytes), look_up_holder)
