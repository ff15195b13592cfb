"""What the figures mean for a person who must choose: fronts, wishes, claims. Pure; reads results, measures nothing."""
