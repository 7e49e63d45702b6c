"""Parses RE2's syntax, as far as it matters for names, into the states of an automaton.

Names use few characters (the alphabet), so a character class is a subset of these, and a literal that no name contains
is the empty class. Names are one line, so the flags `m` and `s` have no effect; neither has greediness, because the
whole name has to match.
"""

from __future__ import annotations

import re
import string
import unicodedata
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

TOPIC_ALPHABET: Final = frozenset(string.ascii_letters + string.digits + "._-")
WORD: Final = frozenset(string.ascii_letters + string.digits + "_")
_SPACES: Final = frozenset("\t\n\f\r ")
_PRINTED: Final = frozenset(map(chr, range(0x21, 0x7F)))
_CLASSES: Final[dict[str, frozenset[str]]] = {"d": frozenset(string.digits), "w": WORD, "s": _SPACES}
"""The capital letter of each is its complement."""
_POSIX: Final[dict[str, frozenset[str]]] = {
    "alnum": frozenset(string.ascii_letters + string.digits),
    "alpha": frozenset(string.ascii_letters),
    "ascii": frozenset(map(chr, range(0x80))),
    "blank": frozenset("\t "),
    "cntrl": frozenset([*map(chr, range(0x20)), "\x7f"]),
    "digit": frozenset(string.digits),
    "graph": _PRINTED,
    "lower": frozenset(string.ascii_lowercase),
    "print": _PRINTED | {" "},
    "punct": frozenset(string.punctuation),
    "space": _SPACES | {"\v"},
    "upper": frozenset(string.ascii_uppercase),
    "word": WORD,
    "xdigit": frozenset(string.hexdigits),
}
_CONTROLS: Final = {"a": "\a", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}
_REPEAT: Final = re.compile(r"\{(\d+)(?:(,)(\d*))?\}")
_GROUP_NAME: Final = re.compile(r"P?<([A-Za-z0-9_]+)>")
_FLAGS: Final = re.compile(r"([imsU]*)(?:-([imsU]+))?([:)])")
_CATEGORY: Final = re.compile(r"\{(\^?)([A-Za-z_]+)\}|([A-Z])")

_REPEAT_MAX: Final = 1_000
_DEPTH_MAX: Final = 100
_STATES_MAX: Final = 2_000


class PatternError(ValueError):
    """Not a valid regular expression, or too large."""


class PatternCheck(Enum):
    """A condition between two characters."""

    START = "start"
    END = "end"
    BOUNDARY = "boundary"
    NO_BOUNDARY = "no boundary"


@dataclass(slots=True)
class PatternState:
    """Consumes a character of `takes` and continues with `then`; or consumes none, and continues if `check` holds."""

    takes: frozenset[str] | None = None
    check: PatternCheck | None = None
    then: list[int] = field(default_factory=list)


Piece = tuple[int, int]
"""The first state of a part of the pattern, and its last, which consumes nothing."""


class PatternReader:
    """Parses a pattern into states, for names of these characters."""

    def __init__(self, text: str, alphabet: frozenset[str]) -> None:
        self.states: list[PatternState] = []
        self._alphabet = alphabet
        self._taken: dict[frozenset[str], frozenset[str]] = {}
        """Character classes, each only once: a repetition repeats them."""
        self._text = text
        self._at = 0
        self._depth = 0
        self._ignore_case = False
        self._group_names: set[str] = set()

    def read(self) -> Piece:
        piece = self._alternatives()
        if self._at < len(self._text):
            raise PatternError("unexpected )")
        return piece

    # --- states ---

    def _state(
        self, takes: frozenset[str] | None = None, check: PatternCheck | None = None, then: int | None = None
    ) -> int:
        if len(self.states) >= _STATES_MAX:
            raise PatternError("it is too large after its repetitions are expanded")
        self.states.append(PatternState(takes, check, [] if then is None else [then]))
        return len(self.states) - 1

    def _take(self, characters: frozenset[str]) -> Piece:
        end = self._state()
        return self._state(self._taken.setdefault(characters, characters), then=end), end

    def _literal(self, character: str) -> frozenset[str]:
        if self._ignore_case:
            return frozenset((character.lower(), character.upper())) & self._alphabet
        return frozenset(character) & self._alphabet

    def _check(self, check: PatternCheck) -> Piece:
        end = self._state()
        return self._state(check=check, then=end), end

    def _nothing(self) -> Piece:
        at = self._state()
        return at, at

    def _optional(self, piece: Piece, *, again: bool) -> Piece:
        start, end = piece
        whole_end = self._state()
        whole_start = self._state(then=start)
        self.states[whole_start].then.append(whole_end)
        self.states[end].then.append(start if again else whole_end)
        if again:
            self.states[end].then.append(whole_end)
        return whole_start, whole_end

    # --- syntax ---

    def _peek(self) -> str:
        return self._text[self._at : self._at + 1]

    def _alternatives(self) -> Piece:
        self._depth += 1
        if self._depth > _DEPTH_MAX:
            raise PatternError(f"groups are nested deeper than {_DEPTH_MAX}")
        ignore_case = self._ignore_case
        branches = [self._sequence()]
        while self._peek() == "|":
            self._at += 1
            branches.append(self._sequence())
        self._ignore_case = ignore_case
        self._depth -= 1
        if len(branches) == 1:
            return branches[0]
        end = self._state()
        for _, branch_end in branches:
            self.states[branch_end].then.append(end)
        start = self._state()
        self.states[start].then.extend(branch_start for branch_start, _ in branches)
        return start, end

    def _sequence(self) -> Piece:
        start, end = self._nothing()
        while self._peek() not in ("", "|", ")"):
            piece = self._quoted() if self._text.startswith("\\Q", self._at) else self._repeated()
            self.states[end].then.append(piece[0])
            end = piece[1]
        return start, end

    def _quoted(self) -> Piece:
        stop = self._text.find("\\E", self._at)
        quoted = self._text[self._at + 2 : stop if stop >= 0 else None]
        self._at = stop + 2 if stop >= 0 else len(self._text)
        start, end = self._nothing()
        for character in quoted:
            piece = self._take(self._literal(character))
            self.states[end].then.append(piece[0])
            end = piece[1]
        return start, end

    def _repeated(self) -> Piece:
        atom_at = self._at
        piece = self._atom()
        sign_at = self._at
        sign = self._peek()
        if sign and sign in "*+?":
            self._at += 1
            if sign == "+":
                self.states[piece[1]].then.append(piece[0])
                end = self._state()
                self.states[piece[1]].then.append(end)
                piece = piece[0], end
            else:
                piece = self._optional(piece, again=sign == "*")
        elif counts := _REPEAT.match(self._text, self._at):
            piece = self._counted(piece, atom_at, counts)
        else:
            return piece
        if self._peek() == "?":  # lazy: the same, because the whole name must match
            self._at += 1
        following = self._peek()
        if (following and following in "*+?") or _REPEAT.match(self._text, self._at):
            raise PatternError(f"invalid nested repetition operator: `{self._text[sign_at : self._at + 1]}`")
        return piece

    def _counted(self, first: Piece, atom_at: int, counts: re.Match[str]) -> Piece:
        least = int(counts[1])
        most = None if counts[2] and not counts[3] else int(counts[3] or least)
        if max(least, most or 0) > _REPEAT_MAX or (most is not None and most < least):
            raise PatternError(f"invalid repeat count: `{counts[0]}`")
        end_at = counts.end()
        names = set(self._group_names)
        unused = [first]

        def copy() -> Piece:
            if unused:
                return unused.pop()
            # Parsing the same text again makes the same states again; its groups keep their names.
            self._at, self._group_names = atom_at, set()
            return self._atom()

        start, end = self._nothing()
        for number in range(max(least, most or 0) if most is not None else least + 1):
            piece = copy()
            if number >= least:
                piece = self._optional(piece, again=most is None)
            self.states[end].then.append(piece[0])
            end = piece[1]
        self._at, self._group_names = end_at, names
        return start, end

    def _atom(self) -> Piece:
        character = self._peek()
        if character == "(":
            return self._group()
        if character == "[":
            return self._take(self._bracketed())
        if character == "\\":
            return self._escaped()
        if character in "*+?" or _REPEAT.match(self._text, self._at):
            raise PatternError(f"missing argument to repetition operator: `{character}`")
        self._at += 1
        if character == ".":
            return self._take(self._alphabet)
        if character == "^":
            return self._check(PatternCheck.START)
        if character == "$":
            return self._check(PatternCheck.END)
        return self._take(self._literal(character))

    def _group(self) -> Piece:
        self._at += 1
        ignore_case = self._ignore_case
        if self._peek() == "?":
            self._at += 1
            if name := _GROUP_NAME.match(self._text, self._at):
                if name[1] in self._group_names:
                    raise PatternError(f"duplicate capture group name: `{name[1]}`")
                self._group_names.add(name[1])
                self._at = name.end()
            elif flags := _FLAGS.match(self._text, self._at):
                self._at = flags.end()
                self._ignore_case = "i" not in (flags[2] or "") and ("i" in flags[1] or self._ignore_case)
                if flags[3] == ")":  # applies to the end of the enclosing group
                    return self._nothing()
            else:
                raise PatternError(f"invalid or unsupported group: `(?{self._text[self._at : self._at + 2]}`")
        piece = self._alternatives()
        if self._peek() != ")":
            raise PatternError("missing closing )")
        self._at += 1
        self._ignore_case = ignore_case
        return piece

    def _escaped(self) -> Piece:
        character = self._text[self._at + 1 : self._at + 2]
        checks = {
            "A": PatternCheck.START,
            "z": PatternCheck.END,
            "b": PatternCheck.BOUNDARY,
            "B": PatternCheck.NO_BOUNDARY,
        }
        if character and character in checks:
            self._at += 2
            return self._check(checks[character])
        return self._take(self._escape())

    def _escape(self) -> frozenset[str]:
        """The characters that an escape stands for, inside or outside of brackets."""
        character = self._text[self._at + 1 : self._at + 2]
        rest = self._at + 2
        if not character:
            raise PatternError("trailing backslash at end of expression")
        if character == "C":
            self._at = rest
            return self._alphabet
        if character.lower() in _CLASSES:
            self._at = rest
            found = _CLASSES[character.lower()]
            return self._alphabet & found if character.islower() else self._alphabet - found
        if character in "pP" and (category := _CATEGORY.match(self._text, rest)):
            self._at = category.end()
            negated = (category[1] == "^") != (character == "P")
            found = self._category(category[2] or category[3])
            return self._alphabet - found if negated else found
        return self._literal(self._escaped_character())

    def _escaped_character(self) -> str:
        character = self._text[self._at + 1 : self._at + 2]
        rest = self._at + 2
        if number := re.compile(r"x([0-9A-Fa-f]{2})|x\{([0-9A-Fa-f]{1,6})\}").match(self._text, self._at + 1):
            self._at = number.end()
            code = int(number[1] or number[2], 16)
            return chr(code) if code <= 0x10FFFF else ""
        if number := re.compile(r"0[0-7]{0,2}|[1-7][0-7]{1,2}").match(self._text, self._at + 1):
            self._at = number.end()
            return chr(int(number[0], 8))
        if character in _CONTROLS:
            self._at = rest
            return _CONTROLS[character]
        if character and not character.isalnum():
            self._at = rest
            return character
        raise PatternError(f"invalid escape sequence: `\\{character}`")

    def _bracketed(self) -> frozenset[str]:
        opened_at = self._at
        self._at += 1
        negated = self._peek() == "^"
        self._at += negated
        found: set[str] = set()
        first = True
        while self._peek() != "]" or first:
            if not self._peek():
                raise PatternError(f"missing closing ]: `{self._text[opened_at:]}`")
            first = False
            found |= self._bracket_item()
        self._at += 1
        return self._alphabet - found if negated else frozenset(found)

    def _bracket_item(self) -> frozenset[str]:
        if posix := re.compile(r"\[:(\^?)(\w+):\]").match(self._text, self._at):
            self._at = posix.end()
            if posix[2] not in _POSIX:
                raise PatternError(f"invalid character class range: `{posix[0]}`")
            named = _POSIX[posix[2]]
            return self._alphabet - named if posix[1] else self._alphabet & named
        if self._peek() == "\\" and self._text[self._at + 1 : self._at + 2] in tuple("dDwWsSpP"):
            return self._escape()
        low = self._bracket_character()
        high = low
        if self._peek() == "-" and self._text[self._at + 1 : self._at + 2] not in ("]", ""):
            self._at += 1
            high = self._bracket_character()
            if high < low:
                raise PatternError(f"invalid character class range: `{low}-{high}`")
        found = frozenset(each for each in self._alphabet if low <= each <= high)
        return frozenset().union(*map(self._literal, found)) if self._ignore_case else found

    def _bracket_character(self) -> str:
        if self._peek() == "\\":
            return self._escaped_character()
        character = self._peek()
        self._at += 1
        return character

    def _category(self, name: str) -> frozenset[str]:
        """A Unicode category by its one or two letters, or the script Latin: other scripts are not supported."""
        if name == "Latin":
            return self._alphabet & frozenset(string.ascii_letters)
        if len(name) > 2:
            return frozenset()
        return frozenset(each for each in self._alphabet if unicodedata.category(each).startswith(name))
