"""Long runs: what server and trainers hold must stay as it is, whatever trainers do."""
