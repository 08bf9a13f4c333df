"""The plug-in, and a record of who was scheduled when for the first time: an order that no client's clock is in."""

import json
import os
from typing import Any

from hmas.plugins.vllm.scheduler import HmasScheduler


class RecordingScheduler(HmasScheduler):
    """Appends a line to `<control block>.scheduled` for each request that runs for the first time: its id, its prompt
    tokens, the extra arguments in its body, and the number of requests in the engine, running or waiting."""

    def schedule(self, *args: Any, **kwargs: Any) -> Any:
        present = len(self.running) + len(self.waiting)
        output = super().schedule(*args, **kwargs)
        if output.scheduled_new_reqs:
            with open(os.environ["HMAS_CONTROL_BLOCK"] + ".scheduled", "a") as file:
                for new in output.scheduled_new_reqs:
                    line = {
                        "id": new.req_id, "prompt": len(new.prompt_token_ids), "present": present,
                        "xargs": new.sampling_params.extra_args or {},
                    }  # fmt: skip
                    file.write(json.dumps(line) + "\n")
        return output
