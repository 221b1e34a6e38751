"""The loop that ends silent attempts and frees the names of silent agents."""

from service.background.attempt_loop_base import AttemptLoopBase
from service.operations.attempts.lease_expiry import expire_agent_names, expire_leases


class LeaseExpiry(AttemptLoopBase):
    name = "lease expiry"

    def run_once(self) -> int:
        return self._do(expire_leases, expire_agent_names)
