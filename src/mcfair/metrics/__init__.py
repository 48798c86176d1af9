"""What is measured: effectiveness for users, fairness of exposure for providers."""
