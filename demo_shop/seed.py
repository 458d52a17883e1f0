"""What the shop starts with: three customers, and things to buy."""

import click
from flask import Blueprint, current_app
from sqlalchemy import inspect, select

from demo_shop.models import Account, Product, db
from flask_idempotency.stores import open_store

blueprint = Blueprint("seed", __name__, cli_group=None)

ACCOUNTS = [
    ("ada", "Ada Lovelace", "ada@example.org"),
    ("grace", "Grace Hopper", "grace@example.org"),
    ("alan", "Alan Turing", "alan@example.org"),
]
PRODUCTS = [
    (
        "brown-betty",
        "Brown Betty",
        "The round pot that keeps tea hot through a long meeting.",
        3400,
        "teapot",
        "#8a4b2a",
        "#e9c9a4",
    ),
    (
        "blue-pot",
        "Harbour Teapot",
        "Glazed in the blue of the sea on a clear morning.",
        4200,
        "teapot",
        "#2c5f7c",
        "#cfe3ec",
    ),
    ("garden-cup", "Garden Cup", "A wide cup that holds exactly one pause.", 1450, "cup", "#3f7d58", "#f3e9d2"),
    (
        "night-cup",
        "Night Cup",
        "For the tea that is not supposed to keep you awake.",
        1450,
        "cup",
        "#3b3a63",
        "#e7d9f0",
    ),
    ("assam", "Assam, 250 g", "Strong, malty, and forgiving of milk.", 1290, "tin", "#b5483a", "#f6e3c5"),
    (
        "sencha",
        "Sencha, 100 g",
        "Green as a spring meadow; does not like boiling water.",
        1590,
        "tin",
        "#6c8f3d",
        "#f1f2d8",
    ),
    (
        "whisk",
        "Bamboo Whisk",
        "A hundred and twenty tines, carved from one piece.",
        1990,
        "whisk",
        "#c99a4b",
        "#f5ead2",
    ),
    ("bowl", "Matcha Bowl", "No two are alike. This one is yours.", 2750, "bowl", "#4f5d5a", "#d9c8ae"),
    (
        "kettle",
        "Slow Kettle",
        "A long neck for a steady hand. Only one was ever made: buy it twice, and you get it once.",
        6900,
        "kettle",
        "#2f2f33",
        "#c8b18b",
    ),
]
STOCK, LAST_ONE = 500_000, "kettle"


@blueprint.cli.command("seed")
def seed() -> None:
    """Create the tables and fill them, unless they exist."""
    db.create_all()
    _check_version()
    store = open_store(current_app.config["SQLALCHEMY_DATABASE_URI"])
    store.create()
    store.close()
    if db.session.scalar(select(Account.id)) is None:
        db.session.add_all(Account(handle=handle, name=name, email=email) for handle, name, email in ACCOUNTS)
        for slug, name, description, price, shape, colour, accent in PRODUCTS:
            stock = 1 if slug == LAST_ONE else STOCK
            db.session.add(
                Product(
                    slug=slug,
                    name=name,
                    description=description,
                    price_cents=price,
                    stock=stock,
                    shape=shape,
                    colour=colour,
                    accent=accent,
                )
            )
        db.session.commit()
    click.echo("The shop is ready.")


def _check_version() -> None:
    """Refuse tables made by an earlier version: the shop never changes a table."""
    found = inspect(db.engine)
    for table in db.metadata.sorted_tables:
        if {column.name for column in table.columns} - {column["name"] for column in found.get_columns(table.name)}:
            raise click.ClickException(
                f"The table {table.name} is from an earlier version of this shop; start with an empty database,"
                f" or without the file {db.engine.url.database}."
            )
