"""Statistics over plain numbers: summaries, intervals, paired comparison, drift. Pure and seeded."""
