"""The plug-in, and a record of who was scheduled when for the first time: an order that no client's clock is in."""

import os
from typing import Any

from hmas.plugins.vllm.scheduler import HmasScheduler


class RecordingScheduler(HmasScheduler):
    """Appends id and prompt tokens of requests that run for the first time to `<control block>.scheduled`."""

    def schedule(self, *args: Any, **kwargs: Any) -> Any:
        output = super().schedule(*args, **kwargs)
        if output.scheduled_new_reqs:
            with open(os.environ["HMAS_CONTROL_BLOCK"] + ".scheduled", "a") as file:
                file.writelines(f"{new.req_id} {len(new.prompt_token_ids)}\n" for new in output.scheduled_new_reqs)
        return output
