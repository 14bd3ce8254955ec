"""The compiled pickle scanner: fills the trace's columns without building a dictionary an event."""
