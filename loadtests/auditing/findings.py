"""What the auditor reports: promises, findings, a verdict."""

from dataclasses import dataclass

from loadtests.auditing.figures import Figures

PROMISES = {
    "K1": "a purchase is charged once if its client was told yes, and never if told no",
    "K2": "a purchase has one payment if its client was told yes, and none if told no",
    "K3": "what was wanted once happened once",
    "K4": "all definitive answers to an intent are equal",
    "K5": "a request sent after an answer was received gets that answer, or is told to retry later",
    "K6": "only one definitive answer is not marked as a replay",
    "K7": "another body under the same key is refused",
    "K8": "no charge without payment and order, no payment without charge, no paid order without payment",
    "K9": "nothing is unresolved, and no failure is kept",
    "K10": "charges, payments and paid orders have the same sum",
    "K11": "each quarantined record has a reason, and is shown",
    "K12": "what the shop has noted agrees with what clients heard",
}


@dataclass(frozen=True, slots=True)
class Finding:
    """A broken promise."""

    rule: str
    intent: str  # empty: it belongs to no single one
    says: str
    evidence: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class NotJudged:
    """A rule, or a part of one, that could not be judged."""

    rule: str
    why: str


@dataclass(frozen=True, slots=True)
class Quarantine:
    """A record that waits for manual review. It breaks no promise, but must be reported."""

    reference: str
    reason: str
    intent: str  # empty: no client of this run knows it


@dataclass(frozen=True, slots=True)
class Verdict:
    """The auditor's verdict."""

    figures: Figures
    findings: tuple[Finding, ...] = ()
    not_judged: tuple[NotJudged, ...] = ()
    quarantines: tuple[Quarantine, ...] = ()

    @property
    def is_guilty(self) -> bool:
        """Whether a promise was broken."""
        return bool(self.findings)
