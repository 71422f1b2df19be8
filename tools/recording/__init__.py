"""Recording of a training run that loses a server, as a moving picture for the README.

    python -m tools.recording docs/images/kill.svg

Two servers and a trainer run as processes; one server is killed with SIGKILL. Each line of the
picture is a command that ran or a line that its process printed, at its time.
"""
