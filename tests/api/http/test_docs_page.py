"""`/docs` shows the calls in a browser, and needs no other host."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.conftest import Api

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)


@pytest.mark.slow
def test_the_page_names_no_other_host(service: Api) -> None:
    page = service.http.get("/docs")
    assert "text/html" in page.headers["content-type"]
    assert "default-src 'none'" in page.headers["content-security-policy"]
    links = re.findall(r'(?:src|href)="([^"]*)"', page.text)
    assert len(links) == 4
    for link in links:
        assert link.startswith(("docs/", "data:"))
        if link.startswith("docs/"):
            assert service.http.get(f"/{link}").status_code == 200
    assert service.http.get("/docs/README.md").status_code == 422
    assert service.http.get("/redoc").status_code == 404
    assert service.get("/openapi.json")["openapi"].startswith("3.")


@pytest.mark.slow
@pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium")
def test_a_browser_that_finds_no_other_host_shows_the_calls(service: Api, tmp_path: Path) -> None:
    command = [str(CHROMIUM), "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path}"]
    command += ["--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1", "--virtual-time-budget=15000", "--dump-dom"]
    command += [f"{str(service.http.base_url).rstrip('/')}/docs"]
    shown = subprocess.run(command, capture_output=True, text=True, timeout=500, check=False).stdout
    assert "/v1/experiments/{experiment}/trials" in re.sub(r"<[^>]*>|\u200b", "", shown)
