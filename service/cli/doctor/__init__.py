"""`paceline doctor`: checks a set-up from where it runs, and says what to do."""
