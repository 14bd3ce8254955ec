"""Changes to try, and the trial of each."""
