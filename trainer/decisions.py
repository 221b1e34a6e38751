"""What the service decides about an attempt: the words of all processes, of which only some have pydantic."""

CONTINUE = "continue"
STOP = "stop"
"""leave at the next report, after saving"""
KILL = "kill"
"""end the workers immediately"""
