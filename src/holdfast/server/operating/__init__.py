"""What those who run a server look at: its log, its figures, and what it tells the system."""
