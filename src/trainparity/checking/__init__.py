"""`trainparity check`: one workload under several accelerations, judged in one command."""
