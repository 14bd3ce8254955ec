"""Error text of every torch version and wrapper, parsed to facts with their spans."""
