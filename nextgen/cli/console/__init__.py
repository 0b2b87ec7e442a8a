"""What every command shares with the terminal: options, output that is safe for any name, exit
codes, and the checks that another package brings. It asks no cluster.
Every command calls it, the harness's commands too.
"""
