"""A browser that has the page "Traffic" of a proxy open."""


import pytest

from cutthrough.storage.stores import open_store
from tests.support.admin import TOKEN, administered
from tests.support.wait import wait_until

POLICY = """
default = "deny"
[[rules]]
name = "seen"
action = "allow"
addresses = ["127.0.0.0/8"]
capture = "full"
breakpoint = "both"
"""
WIDE, PHONE = (1280, 900), (390, 844)
ENTER, ESCAPE, DOWN = ("Enter", 13, "\r"), ("Escape", 27), ("ArrowDown", 40)
HOSTILE = "<img src=x onerror=\"pwned=1\"><script>pwned=1</script>"


class Page:
    """A browser with the page of a proxy; `fill` adds flows to its database."""

    def __init__(self, proxy, operator, browser, database):
        self.proxy, self.operator = proxy, operator
        self.browser, self.database = browser, database

    def fill(self, *rows, index=True):
        store = open_store(str(self.database), 0, 0, 0.0)
        store.write(rows)
        while index and store.index(1000):
            pass
        store.close()

    def enter(self):
        self.browser.type("#token", TOKEN)
        self.browser.key(*ENTER)
        wait_until(lambda: self.text("#state") == "live", lambda: self.text("body"))

    def text(self, selector):
        return self.browser.text(selector)

    def rows(self):
        """Cells of the rows in view, from the top."""
        return self.browser.run(
            "[...document.querySelectorAll('#space .row:not([hidden])')]"
            ".sort((a, b) => a.at - b.at)"
            ".map(r => [...r.children].map(c => c.textContent))")

    def urls(self):
        return [cells[3] for cells in self.rows()]

    def wait_rows(self, n):
        wait_until(lambda: len(self.rows()) == n, lambda: str(self.rows()))

    def apply(self, filter_="", search=""):
        self.browser.type("#filter", filter_)
        self.browser.type("#search", search)
        self.browser.run("document.activeElement.blur()")
        self.browser.click("#apply")

    def open(self, i=0):
        """Opens the row at this place in the list."""
        number = self.browser.run(f"flowOf(seqAt({i})).id")
        self.browser.click(f"#flow-{number}")
        wait_until(lambda: self.text("#detail-url").startswith(f"#{number} "),
                   "the flow")
        return number

    def tab(self, name):
        self.browser.click(f"#tab-{name}")
        return self.text("#panel")

    def view(self, side, name):
        """The text of a view of a body."""
        place = f"#{side}-body"
        wait_until(lambda: self.browser.run(
            f"document.querySelectorAll('{place} button').length"), "views")
        self.browser.run(
            f"[...document.querySelectorAll('{place} .bar button')]"
            f".find(one => one.textContent === '{name}').click()")
        wait_until(lambda: not self.browser.run(
            f"document.querySelector('{place} .shown').ariaBusy"), "the view")
        return self.text(f"{place} .shown")

    def wait_note(self, selector, text):
        wait_until(lambda: text in self.text(selector), lambda: self.text(selector))


def open_page(directory, opened, browse, loop_name, folder):
    """A proxy that captures everything, and its page. No bound deletes flows."""
    (folder / "policy.toml").write_text(POLICY)
    database = folder / "flows.db"
    proxy, operator = administered(
        opened, directory("proxy"), loop_name,
        f'capture_file = "{database}"\npolicy = "{folder}/policy.toml"\n'
        'capture_age = "0"\ncapture_count = 0\ncapture_bytes = 0\n')
    wait_until(database.exists, "the writer's file")
    browser = browse()
    browser.look(*WIDE, "light")
    browser.open(f"http://127.0.0.1:{operator.where}/traffic")
    return Page(proxy, operator, browser, database)


@pytest.fixture
def page(directory, opened, browse, loop_name, tmp_path):
    if loop_name != "uvloop":            # once is enough, in a browser it takes seconds
        pytest.skip("the page knows no event loop")
    return open_page(directory, opened, browse, loop_name, tmp_path)


def messages(page):
    """The cells of the tab's table."""
    page.tab("messages")
    cells = ("[...document.querySelectorAll('#messages tbody tr')].map(r => "
             "[...r.children].map(c => c.textContent))")
    return wait_until(lambda: page.browser.run(cells), "messages")


def faults(page):
    scan = page.browser.run(
        "axe.run().then(found => ({passes: found.passes.length, faults:"
        " found.violations.map(one => [one.id, one.nodes.map(node =>"
        " node.html.slice(0, 200))])}))")
    assert scan["passes"] > 15
    return scan["faults"]
