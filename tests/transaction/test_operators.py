"""What an operator can do about a request under the transaction guard: it has no record until it ends."""

from tests.extension.test_cli import run

ONE = ["--scope", "everyone", "--key", "order-1"]


def create_order(shop):
    shop.db.session.add(shop.db.Order(note="one"))
    shop.db.session.commit()
    return "made", 201


def test_release_says_that_a_running_request_is_an_open_transaction(shop):
    told = []

    def view():
        answer = create_order(shop)
        told.append(run(shop, "release", *ONE))
        return answer

    shop.serve(view)
    answer = shop.send()

    ((code, (sentence,)),) = told
    assert code == 1
    assert sentence.startswith(f"Error: {answer.headers['Idempotency-Reference']} runs under the transaction guard:")
    assert (answer.status_code, shop.notes) == (201, ["one"])


def test_a_request_that_is_not_known_may_be_running(shop):
    code, lines = run(shop, "release", *ONE)

    assert code == 1
    assert lines[0].endswith("or it runs under the transaction guard, where a request has no record until it ends.")


def test_what_was_forgotten_is_not_run_again(shop):
    shop.serve(lambda: create_order(shop))
    shop.send()

    forgotten = run(shop, "forget", *ONE, "--yes")
    retry = shop.send()

    assert forgotten == (0, ["The answer is erased: a retry gets 410, and never runs again."])
    assert (retry.status_code, retry.json["original_status"]) == (410, 201)
    assert shop.notes == ["one"]
