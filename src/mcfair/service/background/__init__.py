"""Background work: everything that is no ranking, no feedback and no change, in a thread or in a child process."""
