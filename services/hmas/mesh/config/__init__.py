"""The configuration file of `hmas up`, and the commands `hmas config show`, `check` and `schema`.

```yaml
up:                  # the flags of `hmas up`, without their dashes
  engine: [http://10.0.0.5:8000]
  console: false
every_service:       # settings that all services have, named as in docs/settings.md, without HMAS_ and in lower case
  otlp_endpoint: http://collector:4318
gateway:             # settings of one service
  max_requests: 20000
```

A variable of the environment outranks the file, and a flag outranks both.
"""
