"""The picture of what happened: who did what, in order, a column for each."""

from textwrap import shorten

WIDTH = 40  # of a column: two of them and the line numbers fit a page and a projector
TELLING = ("execute(", "commit()", "rollback()", "return ", "abort(", "charge(", "phase(", "effect(", "raise ")


class Timeline:
    """Who did what, in order."""

    def __init__(self) -> None:
        self.entries: list[tuple[str, int, str]] = []  # who, the line of the code or 0, what

    def clear(self) -> None:
        """Forget everything."""
        self.entries.clear()

    def note(self, who: str, what: str) -> None:
        """Note what somebody did or was told."""
        self.entries.append((who, 0, what))

    def run(self, who: str, line: int, text: str) -> None:
        """Note a line that somebody's request has executed, if it tells something."""
        if any(word in text for word in TELLING) and "sha256" not in text:
            self.entries.append((who, line, text))

    def pass_time(self, seconds: float) -> None:
        """Note that time passes."""
        hours, rest = divmod(round(seconds), 3600)
        self.entries.append(("", 0, f"{hours} hours pass" if hours else f"{rest} seconds pass"))

    def draw(self) -> str:
        """Draw a column for everybody who took part."""
        everybody = list(dict.fromkeys(who for who, _, _ in self.entries if who))
        width = WIDTH if len(everybody) > 1 else 2 * WIDTH
        drawn = [
            "   ".join(
                f"     {who:{width}}".rstrip() if who == everybody[-1] else f"     {who:{width}}" for who in everybody
            )
        ]
        for who, line, what in self.entries:
            if not who:
                drawn.append(f"     ~~~ {what} ~~~")
                continue
            cell = f"{line or '':>4} {shorten(what, width, placeholder=' …'):{width}}"
            drawn.append((" " * (width + 8) * everybody.index(who) + cell).rstrip())
        return "\n".join(drawn)
