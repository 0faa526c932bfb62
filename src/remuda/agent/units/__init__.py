"""Replacement of systemd for hosts that are folders: runs units, as far as plans use them.

Each unit that runs has a keeper, a process of its own: it starts the unit's program, starts it again when it ends, and
ends it when told to. Neither is a child of the agent, so the agent may end, be killed and be replaced meanwhile. A
keeper that is killed is replaced by the agent, and the new one goes on with the program that runs.

    unitfile.py    a unit's file, as far as it is understood
    directory.py   where things are on such a host, and what is known of its units
    processes.py   whether a process runs, and which belong to a unit
    keeper.py      keeps one unit running
    systemctl.py   the command that scripts call
    watch.py       the agent's part: units that are wanted have a keeper
"""
