"""Every figure's meaning and formula. Pure: no clock, no file, no engine."""
