"""The names of deadly signals as shells and ``strsignal`` print them, in the languages of the GNU C library.

A shell prints the name on a line of its own, after a job's number or after the script, line and process; a DataLoader prints it
at the end of its message. The words are those of glibc 2.36's translations. It knows no wordings and no meaning.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

KILLED = (
    "Killed",
    "已杀死",
    "強制結束",
    "強制終了",
    "죽었음",
    "Убито",
    "Вбито",
    "Getötet",
    "Processus arrêté",
    "Terminado (killed)",
    "Morto",
    "Ucciso",
    "Unicestwiony",
    "Zabit (SIGKILL)",
    "Geëlimineerd",
    "Dödad",
    "Süreç durduruldu",
    "Bị buộc kết thúc",
)
"""SIGKILL, whose usual sender is a host without memory."""

BUS_ERROR = (
    "Bus error",
    "总线错误",
    "匯流排錯誤",
    "バスエラー",
    "버스 오류",
    "Ошибка шины",
    "Bus-Zugriffsfehler",
    "Erreur du bus",
    "Error del bus",
    "Erro de bus",
    "Erro no barramento",
    "Errore di bus",
    "Błąd szyny",
    "Busfout",
    "Bussfel",
    "Veri yolu hatası",
)
"""SIGBUS, the signal of a write to a full shared memory."""

BAR = r"(?:[^\n]{0,200}%\|[^\n]{0,200}\] ?)"
"""A progress bar, which leaves no line of its own to what the shell prints next."""
_JOB = r"(?:\[\d+\][+-]?\s+(?:[+-] +)?(?:\d+ +)?)"
_SCRIPT = r"[^\n]{0,80}\d\D{0,9}[:：]\s*\d+ +"
_COMMAND = r"(?: {2,}| +(?=python|[(（]))\S"


def told_by_a_shell(word: str) -> str:
    """The expression for ``word`` as a shell tells it: alone on its line, or between the process and its command."""
    word = rf"{re.escape(word)}(?:: \d+)?"
    return rf"^[ \t]{{0,8}}(?:{BAR}?{_JOB}?{word}(?:\s*$|{_COMMAND})|{_SCRIPT}{word}{_COMMAND})"


def any_of(words: Iterable[str]) -> str:
    """The expression for one of ``words``."""
    return f"(?:{'|'.join(map(re.escape, words))})"
