"""``make pictures``: take the pictures of the README and the demo page from the running shop.

The shop and its gateway run on free ports with databases of their own, and end with the script.
"""

from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from tests.fixtures.browser import CHROMIUM, FLAGS, PACKAGE, OpenShop, Visitor

if TYPE_CHECKING:
    from playwright.sync_api import Browser

FOLDER = Path(__file__).parent / "_static"
SCREEN = {"width": 1360, "height": 900}  # wide enough for the whole ledger, with its newest orders
LARGEST = 200_000  # bytes: the README is read on slow lines too
TROUBLE = [
    ("ada", "brown-betty", []),
    ("grace", "garden-cup", ["Double click"]),
    ("alan", "assam", ["Lose the answer"]),
    ("ada", "whisk", ["Kill the worker"]),
]


def main() -> None:
    """Take every picture. Raises if one is too large."""
    if CHROMIUM is None:
        raise SystemExit(f"No Chromium was found: install Debian's {PACKAGE}, or set CHROMIUM_PATH.")
    from playwright.sync_api import sync_playwright

    with (
        TemporaryDirectory() as folder,
        sync_playwright() as playwright,
        closing(playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)) as browser,
        OpenShop(Path(folder)).open() as shop,
    ):
        for handle, product, switches in TROUBLE:
            buy(browser, shop, handle, product, switches)
        take("lab.png", browser, shop, orders=4)
        buy(browser, shop, "grace", "night-cup", ["Protection", "Double click"])
        take("lab-unprotected.png", browser, shop, orders=6)


@contextmanager
def visit(browser: "Browser", shop: OpenShop, handle: str) -> Iterator[Visitor]:
    """Let somebody come in with a browser of their own, and sign in."""
    with closing(browser.new_context(viewport=SCREEN)) as context:
        visitor = Visitor(context, shop)
        visitor.sign_in(handle)
        yield visitor


def buy(browser: "Browser", shop: OpenShop, handle: str, product: str, switches: list[str]) -> None:
    """Buy one product while the lab makes trouble."""
    shop.tidy()
    with visit(browser, shop, handle) as visitor:
        visitor.fill_cart(product)
        for switch in switches:
            visitor.turn(switch)
        visitor.go_to_checkout()
        visitor.pay()
        visitor.thanks()


def take(name: str, browser: "Browser", shop: OpenShop, *, orders: int) -> None:
    """Take a picture of the lab once its ledger shows so many orders."""
    with visit(browser, shop, "ada") as visitor:
        visitor.see("/lab")
        visitor.see_in(visitor.page.locator('[data-count="orders"]'), str(orders))
        visitor.page.locator(".is-new").wait_for(state="detached")
        visitor.picture(FOLDER / name, whole=False)
    size = (FOLDER / name).stat().st_size
    if size > LARGEST:
        raise SystemExit(f"{name} has {size} bytes, and may have {LARGEST}.")


if __name__ == "__main__":
    main()
