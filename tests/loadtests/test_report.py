"""The report: one file that needs nothing else, says what the auditor says, and can be read by everybody."""

import re
from contextlib import closing
from dataclasses import replace
from html.parser import HTMLParser
from xml.etree import ElementTree

import pytest

from loadtests.auditing.audit import PROMISES, audit
from loadtests.auditing.books import Effects, Record
from loadtests.diary import Fault, Heard, History, Intent, Sent, collect
from loadtests.reporting import report
from loadtests.reporting.drawing import clock, count_into, duration, lasting, number, steps, tag
from loadtests.reporting.histograms import heaps
from tests.fixtures.browser import SCREENS, WHAT_IS_TOO_WIDE
from tests.loadtests.ledgers import Paper

FACTS = {"command": "python -m loadtests chaos --seed 7", "seed": "7", "machine": "2 cores"}
NASTY = "<script>alert(1)</script>&\"'--><img src=x onerror=alert(2)>{{ 7 * 7 }}"
TEXTLESS = {"meta", "link", "img", "br", "hr", "input"}


class Page(HTMLParser):
    """A report, taken apart: its elements, its text, and the cells of its tables."""

    def __init__(self, text):
        super().__init__()
        self.source, self.elements, self.words, self.rows, self._open = text, [], [], [], []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        if tag not in TEXTLESS:
            self._open.append(tag)
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th"):
            self.rows[-1].append("")

    def handle_endtag(self, tag):
        assert self._open.pop() == tag, f"</{tag}> ends something else"

    def handle_data(self, data):
        if "style" not in self._open:
            self.words.append(data)
            if {"td", "th"} & set(self._open):
                self.rows[-1][-1] += data

    @property
    def text(self):
        return " ".join(" ".join(self.words).split())

    def row(self, name):
        """The cells of the only row that begins with a name."""
        (row,) = [row for row in self.rows if row and row[0].strip() == name]
        return [" ".join(cell.split()) for cell in row[1:]]

    def tile(self, name):
        """The value of a tile."""
        pattern = rf'<dt>{re.escape(name)}</dt><dd class="value">([^<]*)</dd>'
        (value,) = re.findall(pattern, self.source)
        return value


@pytest.fixture
def paper():
    """An innocent run of four intents, one of them with another body under its key, and two faults."""
    paper = Paper()
    paper.sell()
    paper.decline()
    paper.review()
    intent = paper.want(user="key reuser")
    paper.ask(intent, 409, "conflict")
    paper.ask(intent, 0, "transient", problem="timed out")
    paper.sell(intent)
    paper.ask(intent, 422, "reused", asks="other body")
    paper.break_something()
    paper.break_something()
    return paper


@pytest.fixture
def see(tmp_path):
    """`see(paper)`: write the report of a run and take it apart."""

    def write_and_read(paper, facts=FACTS, **judged):
        path = tmp_path / "out" / "report.html"
        report.write(path, paper.history(), paper.judge(**judged), paper.books(), facts)
        return Page(path.read_text(encoding="utf-8"))

    return write_and_read


# -- one file


def test_it_fetches_nothing_and_runs_nothing(paper, see):
    page = see(paper)

    assert "script" not in {name for name, _ in page.elements}
    assert not {"link", "img", "iframe", "object", "base"} & {name for name, _ in page.elements}
    assert not [attributes for _, attributes in page.elements if {"src", "srcset", "style"} & attributes.keys()]
    assert not [name for _, attributes in page.elements for name in attributes if name.startswith("on")]
    assert {attributes["href"][0] for name, attributes in page.elements if "href" in attributes} == {"#"}
    assert "url(" not in page.source
    assert "@import" not in page.source
    assert "://" not in page.source


def test_every_link_leads_to_a_place_and_every_name_is_given_once(paper, see):
    paper.charge(paper.orders[0])

    page = see(paper)

    ids = [attributes["id"] for _, attributes in page.elements if "id" in attributes]
    links = [attributes["href"][1:] for _, attributes in page.elements if "href" in attributes]
    named = [
        name for _, attributes in page.elements for name in (attributes.get("aria-labelledby") or "").split() if name
    ]
    assert len(ids) == len(set(ids))
    assert set(links) | set(named) <= set(ids)


def test_every_drawing_is_sound_xml_with_a_title_and_a_description(paper, see):
    drawings = re.findall(r"<svg .*?</svg>", see(paper).source, re.DOTALL)

    assert len(drawings) == 6
    for drawing in drawings:
        root = ElementTree.fromstring(drawing)
        assert root.get("role") == "img"
        assert [child.tag for child in root][:2] == ["title", "desc"]
        assert all(child.text for child in root[:2])
        assert "nan" not in drawing.lower()


# -- what it says


def test_innocent_is_said_on_top_with_the_number_and_the_bound(paper, see):
    page = see(paper)

    assert re.search(r"<h1>.*INNOCENT</h1>", page.source)
    assert "GUILTY" not in page.text
    assert "4 intents, sent 11 times through 2 faults" in page.text
    assert "n = 4 intents" in page.text
    assert "below 750,000 per million" in page.text


def test_the_tiles_say_what_the_verdict_says(paper):
    shown = ["intents", "attempts", "charges", "effects", "lost", "phantom", "differing", "unresolved", "quarantined"]
    shown += ["takeovers", "replays", "conflicts", "faults"]
    told = {name: 1_000 + n for n, name in enumerate(shown)}
    rates = {"duplicates_per_million": 0.0, "upper_bound_per_million": 30.25, "attempts_per_intent": 2.754}
    verdict = paper.judge()

    page = Page(
        report.render(
            paper.history(),
            replace(verdict, figures=replace(verdict.figures, **told, **rates)),
            paper.books(),
            FACTS,
        )
    )

    assert {name: page.tile(name) for name in shown} == {name: number(told[name]) for name in shown}
    assert page.tile("duplicates per million") == "0"
    assert "none found; true rate below 30.2 at 95 %" in page.text
    assert page.tile("attempts per intent") == "2.75"


def test_guilty_shows_the_rule_the_intent_and_the_evidence(paper, see):
    charge = paper.charge(paper.orders[0])

    page = see(paper)

    assert re.search(r"<h1>.*GUILTY</h1>", page.source)
    assert "INNOCENT" not in page.text
    assert "2 broken promises (K1, K10)" in page.text
    assert "1 of them took effect more than once." in page.text
    assert page.tile("duplicates per million") == "250,000"
    assert page.row("K1")[1] == "✗ broken 1 ×"
    assert page.row("K4")[1] == "✓ kept"
    evidence = page.source.split('id="broken-K1"')[1].split("</section>")[0]
    assert "charged 2 times" in evidence
    assert paper.orders[0].note in evidence
    assert charge.id in evidence


def test_every_rule_is_listed_with_its_promise(paper, see):
    page = see(paper)

    for code, promise in PROMISES.items():
        told, result = page.row(code)
        assert told.lower().startswith(promise.lower())
        assert result == "✓ kept"


def test_what_was_not_judged_is_not_called_kept(paper):
    verdict = audit(paper.history(), None, crashes=False)

    page = Page(report.render(paper.history(), verdict, None, FACTS))

    for rule in ("K1", "K2", "K3", "K8", "K10", "K11", "K12"):
        assert page.row(rule)[1] == "– not judged"
    assert page.row("K4")[1] == "✓ kept"
    assert page.tile("charges") == page.tile("duplicates per million") == page.tile("lost") == "–"
    assert "Effects were not counted" in page.text
    assert "INNOCENT 4 intents, sent 11 times through 2 faults: no two answers differed." in page.text


def test_a_rule_of_which_a_part_was_not_judged_says_so(paper, see):
    page = see(paper, crashes=True)

    promise, result = page.row("K12")
    assert result == "✓ kept"
    assert "Not judged: whether each replay was noted" in promise


def test_another_body_that_nobody_sent_is_not_judged(see):
    paper = Paper()
    paper.sell()

    page = see(paper)

    assert page.row("K7")[1] == "– not judged"


def test_effects_of_somebody_elses_endpoint_are_counted_without_books(paper):
    counted = Effects({order.note: int(order.is_paid) for order in paper.orders} | {paper.reviews[0].text: 1})

    page = Page(report.render(paper.history(), audit(paper.history(), counted, crashes=False), counted, FACTS))

    assert page.tile("effects") == "3"
    assert page.row("K3")[1] == "✓ kept"
    assert page.row("K1")[1] == "– not judged"


def test_many_findings_are_counted_all_and_shown_in_part(see):
    paper = Paper()
    for _ in range(25):
        paper.sell()
        paper.charge(paper.orders[-1])

    page = see(paper)

    assert page.row("K1")[1] == "✗ broken 25 ×"
    assert page.source.split('id="broken-K1"')[1].split("</section>")[0].count("<details") == report.SHOWN
    assert "and 15 more of this rule" in page.text


def test_quarantined_records_are_shown_with_their_reason(paper, see):
    paper.records.append(Record("7D3F-92AB-1C4E", "quarantined", "the gateway never answered"))

    page = see(paper)

    assert page.row("7D3F-92AB-1C4E")[0] == "the gateway never answered"
    assert "1 wait for manual review" in page.text


def test_clients_are_counted_by_their_sort(paper, see):
    page = see(paper)

    intents, attempts, first, replays, conflicts, reused, passing, silent, left = page.row("key reuser")
    assert (intents, attempts, first, replays, conflicts, reused) == ("1", "5", "1", "1", "1", "1")
    assert (passing, silent, left) == ("0", "1", "0")
    assert page.row("all")[:2] == ["4", "11"]


def test_an_attempt_that_was_never_heard_of_again_has_no_answer(see):
    paper = Paper()
    paper.send(paper.want(user="gone"))

    page = see(paper)

    assert page.row("gone") == ["1", "1", "0", "0", "0", "0", "0", "1", "1"]


def test_faults_are_in_the_table_and_on_the_time_line(paper, see):
    first = min(each.at for each in paper.entries if isinstance(each, Sent))
    pauses = (
        Fault(first + 2, first + 4.5, "pause_worker", "shop a"),
        Fault(first + 5, first + 5, "pause_worker", "shop b"),
    )
    paper.entries += pauses

    page = see(paper)

    count, seconds, *when, targets = page.row("pause worker")
    assert (count, seconds, when) == ("2", "2.5 s", ["2 s", "5 s"])
    assert targets == "shop a × 1, shop b × 1"
    wide = re.search(r'<div class="wide">(<svg.*?</svg>)', page.source, re.DOTALL).group(1)
    assert "pause worker × 2" in wide
    assert "kill × 2" in wide
    assert wide.count('class="heat ') == 2


def test_the_facts_are_there(paper, see):
    page = see(paper)

    for fact in FACTS.values():
        assert fact in page.text


def test_what_diaries_say_is_text_and_never_markup():
    intent = Intent(NASTY, "purchase", NASTY, NASTY, NASTY, "/", "application/json", NASTY, 1.0)
    told = [Heard(NASTY, f"{NASTY}{n}", 2.0 + n, "definitive", 201, False, str(n), NASTY, NASTY) for n in range(2)]
    sent = [Sent(NASTY, each.attempt, 1.5) for each in told]
    history = collect([intent, *sent, *told, Fault(1.0, 2.0, NASTY, NASTY)])
    paper = Paper()
    paper.records.append(Record(NASTY, "quarantined", NASTY))

    page = Page(
        report.render(history, audit(history, paper.books(), crashes=True), paper.books(), {NASTY: f"{NASTY}!"})
    )

    assert not {"script", "img"} & {name for name, _ in page.elements}
    assert NASTY in page.text
    assert f"{NASTY}!" in page.text
    assert len(re.findall(r"&lt;script&gt;alert\(1\)&lt;/script&gt;", page.source)) >= 6
    for drawing in re.findall(r"<svg .*?</svg>", page.source, re.DOTALL):
        ElementTree.fromstring(drawing)


# -- small, large and nothing


def test_a_run_without_anything_is_told_too(tmp_path):
    path = tmp_path / "report.html"

    report.write(path, History(), audit(History(), None, crashes=False), None, {})

    page = Page(path.read_text(encoding="utf-8"))
    assert "GUILTY" in page.text
    assert "the diary is empty" in page.text
    assert page.row("K4")[1] == "– not judged"
    assert "no faults" in page.text


def test_a_large_run_makes_no_large_report():
    entries = []
    for n in range(20_000):
        entries.append(Intent(f"i{n}", "review", f"user {n % 14}", "ada", "", "/", "", "", n * 0.06))
        for m in range(5):
            at = n * 0.06 + m
            entries.append(Sent(f"i{n}", f"i{n}-{m}", at))
            entries.append(
                Heard(f"i{n}", f"i{n}-{m}", at + 0.001 * (n % 997 + 1), "definitive", 201, m > 0, str(n % 3))
            )
    entries += [Fault(n * 0.6, n * 0.6 + n % 9, f"kind {n % 30}", f"target {n}") for n in range(2_000)]
    history = collect(entries)

    written = report.render(history, audit(history, None, crashes=True), None, FACTS)

    assert len(written.encode()) < 300_000
    assert "100,000" in written


def test_an_effect_whose_clock_is_wrong_is_drawn_where_its_client_heard_of_it(paper, see):
    paper.orders[0] = replace(paper.orders[0], at=paper.orders[0].at + 3600)

    page = see(paper)

    assert "1 of them have the time of a wrong clock" in page.text
    assert page.tile("effects") == "4"


# -- figures for people, and scales


def test_figures_are_written_for_people():
    assert [number(each) for each in (0, 12345, 2.75, 0.0314159, 1234.5)] == ["0", "12,345", "2.75", "0.0314", "1,234"]
    assert [duration(each) for each in (0.00012, 0.0456, 0.25, 1.5, 240)] == [
        "0.12 ms",
        "45.6 ms",
        "250 ms",
        "1.5 s",
        "240 s",
    ]
    assert [clock(each) for each in (0, 5, 59.6, 75, 3725)] == ["0 s", "5 s", "1:00", "1:15", "1:02:05"]
    assert [lasting(each) for each in (45, 60, 90, 7500)] == ["45 s", "1 min", "1 min 30 s", "2 h 5 min"]


@pytest.mark.parametrize("most", [0.003, 1, 7, 99, 100, 101, 123_456])
def test_an_axis_has_round_marks_and_reaches_above_all(most):
    marks = steps(most, 4)

    assert marks[0] == 0
    assert marks[-1] >= most
    assert 2 <= len(marks) <= 7


def test_bins_lose_nothing():
    counts = count_into([-5.0, 0.0, 0.1, 4.9, 5.0, 99.0], 0.0, 5.0, 5)

    assert counts == [3, 0, 0, 0, 3]


def test_every_intent_is_in_one_heap():
    counted = heaps([1, 1, 2, 4, 5, 9, 10, 99, 100, 5000])

    assert counted == [("1", 2), ("2", 1), ("3", 0), ("4", 1), ("5–9", 2), ("10–29", 1), ("30–99", 1), ("100+", 2)]


def test_what_is_put_into_an_element_is_escaped():
    assert tag("text", "<b>", x=1.26, class_='"') == '<text x="1.3" class="&#34;">&lt;b&gt;</text>'


# -- in a browser


@pytest.fixture(params=["innocent", "guilty", "empty"])
def written(request, paper, tmp_path):
    """A report of each kind, as a file."""
    path = tmp_path / f"report-{request.param}.html"
    if request.param == "empty":
        report.write(path, History(), audit(History(), None, crashes=False), None, {})
        return path
    if request.param == "guilty":
        paper.charge(paper.orders[0])
        paper.ask(paper.history().intents[paper.orders[0].note], 201, answer="another")
    paper.records.append(Record("7D3F-92AB-1C4E", "quarantined", "the gateway never answered"))
    report.write(path, paper.history(), paper.judge(), paper.books(), FACTS)
    return path


@pytest.mark.parametrize(("screen", "scheme"), [("desktop", "light"), ("phone", "dark")])
def test_everybody_can_read_it(browser, written, screen, scheme, screenshots):
    from axe_playwright_python.sync_playwright import Axe

    with closing(browser.new_context(viewport=SCREENS[screen], color_scheme=scheme)) as context:
        asked, complaints, page = [], [], context.new_page()
        page.on("request", lambda request: asked.append(request.url))
        page.on("console", lambda message: complaints.append(message.text))

        page.goto(written.as_uri())

        (screenshots / f"{written.stem}-{screen}-{scheme}.png").write_bytes(page.screenshot(full_page=True))
        found = Axe().run(page, options={"resultTypes": ["violations"]}).response["violations"]
        assert [each["id"] for each in found if each["impact"] in ("serious", "critical")] == []
        assert page.evaluate(WHAT_IS_TOO_WIDE) == []
        assert asked == [written.as_uri()]
        assert complaints == []
