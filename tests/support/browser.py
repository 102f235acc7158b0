"""Pages of a folder in headless Chromium: which are wider than their window, and what the console says."""

from __future__ import annotations

import json
import re
import subprocess
import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

HARNESS = """<body><script>
const pages = PAGES, widths = WIDTHS, wide = [];
async function look() {
  for (let page; (page = pages.pop()); ) {
    const frame = document.createElement('iframe');
    frame.src = page;
    frame.width = widths[0];
    await new Promise(loaded => { frame.onload = loaded; document.body.append(frame); });
    for (const width of widths) {
      frame.width = width;
      const needed = () => frame.contentDocument.documentElement.scrollWidth;
      for (let turn = 0; turn < 40 && (turn < 1 || needed() > width); turn++)
        await new Promise(done => setTimeout(done, 25));  // sidebars move for a while after a change
      if (needed() > width) wide.push([page, width, needed()]);
    }
    frame.remove();
  }
}
Promise.all([look(), look(), look(), look()]).then(() => document.body.textContent = JSON.stringify(wide));
</script>"""


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        """Say nothing."""


def browse(site: Path, pages: list[str], widths: list[int]) -> tuple[list[tuple[str, int, int]], list[str]]:
    """Open all pages; return (page, width of the window, width of the page) of wide ones, and errors."""
    text = HARNESS.replace("PAGES", json.dumps(pages)).replace("WIDTHS", json.dumps(widths))
    (site / "browse.htm").write_text(text)
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(_Quiet, directory=str(site)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    words = ["chromium", "--headless=new", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr"]
    words += [
        "--virtual-time-budget=900000",
        "--dump-dom",
        f"http://127.0.0.1:{server.server_port}/browse.htm",
    ]
    try:
        done = subprocess.run(words, capture_output=True, text=True, check=True, timeout=300)
    finally:
        server.shutdown()
        server.server_close()
        (site / "browse.htm").unlink()
    shown = re.search(r"<body>(\[.*\])</body>", done.stdout)
    assert shown is not None, done.stdout[-500:] + done.stderr[-500:]
    errors = [line for line in done.stderr.splitlines() if ":CONSOLE" in line]
    return [tuple(each) for each in json.loads(shown[1])], errors
