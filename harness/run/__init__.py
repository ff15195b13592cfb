"""Running a sweep: processes, schedule, clock and surroundings."""
