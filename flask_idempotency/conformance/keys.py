"""The keys of a run: new ones every time, so that runs do not meet; and malformed ones."""

import uuid
from dataclasses import dataclass

MAX_LENGTH = 255  # the widest limit that payment APIs publish


@dataclass(frozen=True, slots=True)
class Keys:
    """Makes keys from names. One run has one seed, and a name gives the same key within it."""

    seed: uuid.UUID
    is_quoted: bool = False

    def text(self, name: str) -> str:
        """Give a key without quotes: in the form of a UUID, which every server takes that takes keys at all."""
        return str(uuid.uuid5(self.seed, name))

    def __call__(self, name: str) -> bytes:
        """Give a key as it stands in the header."""
        return self.quoted(name) if self.is_quoted else self.text(name).encode()

    def quoted(self, name: str) -> bytes:
        """Give a key in double quotes, as the draft writes it."""
        return f'"{self.text(name)}"'.encode()

    def malformed(self, fault: str) -> tuple[bytes, ...]:
        """Give the header lines of a malformed key, one for each line."""
        text = self.text(f"malformed/{fault}")
        match fault:
            case "empty":
                return (b"",)
            case "control":
                return (f"{text}\x07".encode(),)
            case "non-ascii":
                return (f"{text}-clé".encode(),)
            case "too-long":
                return ((text.replace("-", "") * 8).encode(),)  # 256 characters
            case "comma":
                return (f"{text},{text[:8]}".encode(),)
            case "twice":
                return text.encode(), f"{text[:-4]}beef".encode()
            case "unbalanced":
                return (f'"{text}'.encode(),)
        raise KeyError(fault)
