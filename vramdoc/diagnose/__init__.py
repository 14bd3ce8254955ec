"""Verdicts: one rule a cause, three answers, evidence required."""
