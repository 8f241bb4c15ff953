"""What code of an operator's may do to the tasks of the loop."""

import asyncio


def cancel_others() -> None:
    """Cancels all tasks but this one."""
    for task in asyncio.all_tasks() - {asyncio.current_task()}:
        task.cancel()
