"""The page "Traffic": /traffic, and how every page is made. They hold no data.

Their policy is strict, because their content is hostile: URLs, fields and bodies chosen
by clients and origins.
"""

import hashlib
import json
from base64 import b64encode
from collections.abc import Sequence
from importlib import resources

from aiohttp import web

from cutthrough.outcome import TABLE

SCRIPTS = ("session.js", "traffic_list.js", "traffic_open.js",
           "traffic_filter.js", "traffic_local.js", "traffic_detail.js",
           "traffic_colours.js",
           "traffic_bodies.js",
           "traffic_messages.js", "traffic_diff.js", "traffic_copy.js",
           "traffic_send.js", "traffic_holds.js", "traffic_keys.js",
           "traffic_empty.js", "traffic_summary.js", "traffic.js")


# Of a preview of HTML, which has no rights, and inherits the rest of the policy
FRAMES = "; frame-src blob:"


async def show_page(request: web.Request) -> web.StreamResponse:
    text, policy = make_page()
    policy += FRAMES
    return web.Response(text=text, content_type="text/html",
                        headers={"Content-Security-Policy": policy})


def make_page(page: str = "traffic.html", scripts: Sequence[str] = SCRIPTS,
              style: str = "traffic.css") -> tuple[str, str]:
    """A page and its policy: the one script and the one style sheet are allowed by
    their hashes, and no other; the script cannot make HTML of a string."""
    here = resources.files("cutthrough.admin")

    def join(names: Sequence[str]) -> str:
        return "\n".join(here.joinpath(name).read_text() for name in names)

    meanings = {row.label: row.meaning for row in TABLE if row.fault}
    of_client = [row.label for row in TABLE if row.fault == "client"]
    text = here.joinpath(page).read_text()
    for mark, content in (("styles", join(("tokens.css", style))),
                          ("meanings", json.dumps(meanings)),
                          ("of_client", json.dumps(of_client)),
                          ("scripts", join(scripts))):
        text = text.replace(f"/* {mark} */", content)
    hashes = []
    for tag in ("style", "script"):
        content = text.partition(f"<{tag}>")[2].partition(f"</{tag}>")[0]
        digest = hashlib.sha256(content.encode()).digest()
        hashes.append(f"'sha256-{b64encode(digest).decode()}'")
    return text, (
        f"default-src 'none'; style-src {hashes[0]}; script-src {hashes[1]}; "
        "connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; "
        "frame-ancestors 'none'; require-trusted-types-for 'script'; "
        "trusted-types 'none'")
