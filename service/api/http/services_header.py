"""The header in which answers to agents and slots name all services, so that they can go to another one."""

from service.runtime.context import Context

NAME = "Paceline-Services"


def services_header(context: Context) -> dict[str, str]:
    return {NAME: " ".join(context.service_urls)} if context.service_urls else {}
