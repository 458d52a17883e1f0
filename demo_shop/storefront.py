"""Idea: safe methods are not affected. Browsing needs no key, and the extension does nothing here."""

from flask import Blueprint, abort, render_template
from sqlalchemy import select

from demo_shop.models import Letter, Product, db
from demo_shop.pages import find_product
from demo_shop.reviews import newest_reviews

blueprint = Blueprint("storefront", __name__)


@blueprint.get("/")
def catalogue() -> str:
    """Show the products."""
    products = db.session.scalars(select(Product).order_by(Product.id)).all()
    return render_template("catalogue.html", page="catalogue", products=products)


@blueprint.get("/products/<slug>")
def product(slug: str) -> str:
    """Show one product."""
    found = find_product(slug) or abort(404)
    return render_template("product.html", page="catalogue", product=found, reviews=newest_reviews(found))


@blueprint.get("/how")
def how() -> str:
    """Show what happens behind the button."""
    return render_template("how.html", page="how")


@blueprint.get("/mailbox")
def mailbox() -> str:
    """Show the letters: nothing leaves this machine."""
    letters = db.session.scalars(select(Letter).order_by(Letter.id.desc()).limit(50)).all()
    return render_template("mailbox.html", page="mailbox", letters=letters)


@blueprint.get("/health")
def health() -> dict[str, str]:
    """Report that the shop and its database are available."""
    db.session.execute(select(1))
    return {"status": "ok"}
