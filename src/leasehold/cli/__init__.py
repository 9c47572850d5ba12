"""The command line `leasehold`: runs commands under a lock, and shows operators which locks are held, and by whom.

It uses the public interface only, and knows no store. `main` is the entry, `verbs` the table of verbs, `manual` their
pages; a verb is one module. `run` reads as one page and uses

    child            the process that becomes the command
    watchdog         the process that ends the command if the wrapper cannot; `watchdog_handle` is the wrapper's side
    signals          what arrives at the wrapper
    terminal         the process group that has the keyboard
    wait_line        the line on stderr during the wait
    supervisor       the loop while the command runs
    report           the JSON file at the end

Imports are small and late, because a cron job pays for each of them with every run.
"""
