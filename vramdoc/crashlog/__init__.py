"""Crash texts: the error text of every torch release and wrapper, as parsed facts with their spans. Measures nothing, judges nothing."""

from vramdoc.crashlog.incident import CrashLog, Incident, Reading
from vramdoc.crashlog.reader import parse, read_text

__all__ = ["CrashLog", "Incident", "Reading", "parse", "read_text"]
