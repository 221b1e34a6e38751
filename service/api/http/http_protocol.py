"""HTTP/1.1 as uvicorn speaks it, with the host of an absolute request target."""

import httptools
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol


class HttpProtocol(HttpToolsProtocol):
    """Replaces the Host header by the host of `GET http://host/path` (RFC 9112, section 3.2.2), which uvicorn drops."""

    def on_headers_complete(self) -> None:
        if not self.url.startswith(b"/"):
            self._use_host_of_target()
        super().on_headers_complete()

    def _use_host_of_target(self) -> None:
        target = httptools.parse_url(self.url)
        places = [index for index, (name, _) in enumerate(self.headers) if name == b"host"]
        if target.host and len(places) == 1:  # the number of Host headers is checked later
            host = b"[%b]" % target.host if b":" in target.host else target.host
            self.headers[places[0]] = (b"host", host if target.port is None else b"%b:%d" % (host, target.port))
