"""Customers of the demo shop who buy, each with a bad habit. Customers who write reviews are in reviewing.py."""

import json
import time
from collections.abc import Mapping
from typing import ClassVar
from urllib.parse import urlencode

import gevent
from locust import task

from loadtests.clients.once import OnceUser
from loadtests.clients.wish import Request, Wish, pause_before
from loadtests.diary import new_id

ACCOUNTS = ("ada", "grace", "alan")
PRODUCTS = ("brown-betty", "blue-pot", "garden-cup", "night-cup", "assam", "sencha", "whisk", "bowl")
HOT = 3.0  # seconds that one key stays hot; by then, the diary has enough attempts with it

_tokens: dict[str, str] = {}


class Customer(OnceUser):
    """A customer who buys, signed in by a token."""

    abstract = True
    kind = "purchase"
    does = "buy"
    accounts = ACCOUNTS

    def on_start(self) -> None:
        """Sign in, however long that takes: the shop may be down."""
        for account in ACCOUNTS:
            tries = 0
            while account not in _tokens and not self.get_token(account):
                gevent.sleep(pause_before(tries, self.jitter.random()))
                tries += 1

    def get_token(self, account: str) -> bool:
        """Get a new token for an account. All later attempts for it use the token; older ones stay valid."""
        host = self.jitter.choice(self.hosts)
        asked = {"account": account}
        with self.client.post(f"{host}/api/tokens", json=asked, name="token", catch_response=True) as answer:
            if answer.status_code != 201:
                answer.success()  # this is not what is tested; try again
                return False
            _tokens[account] = json.loads(answer.content)["token"]
        return True

    def headers_of(self, account: str) -> Mapping[str, str]:
        """Send the token."""
        return {"Authorization": f"Bearer {_tokens[account]}"}

    def make_request(self, marker: str) -> Request:
        """Buy something with a card that works, as a program or as a form would."""
        return self.purchase(marker)

    def make_other(self, marker: str) -> Request:
        """Buy more of it than anybody did."""
        return self.purchase(marker, quantity=20)

    def purchase(self, marker: str, card: str = "card_ok", quantity: int | None = None) -> Request:
        """Give what is bought."""
        fields = {
            "product": self.chance.choice(PRODUCTS),
            "quantity": quantity or self.chance.randint(1, 3),
            "card": card,
            "note": marker,
        }
        if self.chance.random() < 0.2:
            return Request("/api/buy", urlencode(fields).encode(), "application/x-www-form-urlencoded")
        return Request.of_json("/api/buy", fields)

    def with_card(self, *cards: str) -> Wish:
        """Record the wish to buy with one of these cards."""
        card = self.chance.choice(cards)
        return self.wish(lambda marker: self.purchase(marker, card))


class ImpatientRetrier(Customer):
    """Hangs up and retries, again and again."""

    @task
    def hang_up_and_retry(self) -> None:
        """Perform the habit."""
        self.retry_impatiently()


class DoubleClicker(Customer):
    """Clicks twice."""

    @task
    def click_twice(self) -> None:
        """Perform the habit."""
        self.double_click()


class Burster(Customer):
    """Sends three, ten or a hundred times at once, and rests after the hundred."""

    @task
    def burst_out(self) -> None:
        """Perform the habit; a hundred only rarely, because that takes a hundred connections."""
        (times,) = self.chance.choices((3, 10, 100), (12, 6, 1))
        self.click(times)
        gevent.sleep(times / 100)


class KeyReuser(Customer):
    """Sends another body under a key in use, after the first request has finished or while it runs."""

    @task
    def reuse(self) -> None:
        """Perform the habit; but only once an answer has shown that the first body has the key."""
        wish = self.wish()
        self.burst(wish, self.chance.randint(1, 3))
        if wish.is_taken:
            self.send_other(wish)
        if self.persist(wish):
            self.send_other(wish)
            self.again(wish)


class KeyBorrower(Customer):
    """Uses a key that another account has used: keys are separate for each account, so both requests succeed."""

    @task
    def borrow(self) -> None:
        """Perform the habit."""
        mine = self.wish()
        theirs = self.wish(account=next(each for each in ACCOUNTS if each != self.account), key=mine.intent.key)
        both = [mine, theirs]
        self.chance.shuffle(both)
        for wish in both * 2:
            self.send(wish)
        for wish in both:
            self.persist(wish)


class Uploader(Customer):
    """Sends a file. The same form with another boundary is the same request; another file is not."""

    @task
    def upload(self) -> None:
        """Perform the habit."""
        fields = {"product": self.chance.choice(PRODUCTS), "quantity": "1", "card": "card_ok"}
        picture = self.chance.randbytes(self.chance.randint(100, 1000))
        wish = self.wish(lambda marker: form_with(fields | {"note": marker}, picture))
        fields["note"] = wish.intent.id
        if self.persist(wish):
            self.send(wish, request=form_with(fields, picture))
            self.send_other(wish, form_with(fields, picture[::-1] + b"!"))
            self.send(wish, request=form_with(fields, picture))


class HotKeyUser(Customer):
    """Repeats one finished key all the time, together with all others of its kind; sometimes it takes a new one."""

    hot: ClassVar[Wish | None] = None
    until: ClassVar[float] = 0.0

    def wait_time(self) -> float:
        """Wait less than the others."""
        return self.chance.uniform(0.0, 0.1)

    @task
    def hammer(self) -> None:
        """Perform the habit."""
        if time.monotonic() > HotKeyUser.until:
            HotKeyUser.until = time.monotonic() + HOT
            wish = self.wish()
            if self.persist(wish):
                HotKeyUser.hot = wish
        if HotKeyUser.hot is not None:
            self.send(HotKeyUser.hot)


class SlowPayer(Customer):
    """Pays with a slow card, and asks meanwhile."""

    @task
    def wait_for_it(self) -> None:
        """Perform the habit; rarely, because it occupies a worker for seconds."""
        wish = self.with_card("card_slow")
        self.hang_up(wish, after=self.chance.uniform(0.2, 1.0))
        self.send(wish)
        self.persist(wish)
        self.again(wish)
        gevent.sleep(self.chance.uniform(1, 4))


class Stumbler(Customer):
    """Pays with a card that makes the gateway fail first: 503, then success."""

    @task
    def stumble(self) -> None:
        """Perform the habit; rarely with the card that is charged without an answer, because a worker waits for it."""
        (card,) = self.chance.choices(("card_error", "card_reset", "card_timeout"), (10, 10, 1))
        wish = self.with_card(card)
        self.send(wish)
        self.persist(wish)
        self.again(wish)


class Declined(Customer):
    """Pays with a card that is declined. That is an answer too, and the same one every time."""

    @task
    def be_declined(self) -> None:
        """Perform the habit."""
        wish = self.with_card("card_declined", "card_insufficient")
        self.burst(wish, self.chance.randint(1, 2))
        self.persist(wish)
        self.again(wish)


class TokenRefresher(Customer):
    """Signs in again between two attempts: the key belongs to the account, not to the token."""

    @task
    def refresh(self) -> None:
        """Perform the habit."""
        wish = self.wish()
        self.hang_up(wish, after=self.chance.uniform(0.005, 0.1))
        self.get_token(self.account)
        self.persist(wish)
        self.again(wish)


class Leaver(Customer):
    """Leaves right after sending. It usually comes back later; one in five does not, and the settlement finishes it."""

    @task
    def leave(self) -> None:
        """Perform the habit."""
        if self.chance.random() < 0.2:
            self.hang_up(self.wish())
        else:
            self.leave_and_return()


def form_with(fields: Mapping[str, str], picture: bytes) -> Request:
    """Make a form with a file and a boundary of its own."""
    boundary = f"----{new_id()}"
    heads = [f'name="{name}"\r\n\r\n{value}' for name, value in fields.items()]
    heads.append('name="picture"; filename="teapot.png"\r\nContent-Type: image/png\r\n\r\n')
    body = "".join(f"\r\n--{boundary}\r\nContent-Disposition: form-data; {head}" for head in heads)[2:].encode()
    content_type = f"multipart/form-data; boundary={boundary}"
    return Request("/api/buy", body + picture + f"\r\n--{boundary}--\r\n".encode(), content_type)
