{{- /* The instance types of the chart's own engines, as a list: engines.types, or one without a name of all engines. */ -}}
{{- define "hmas.types" -}}
{{- $run := .Values.engines.run -}}
{{- $plain := dict "name" "" "replicas" $run.replicas "gpus" $run.gpus "args" list "hardware" .Values.engines.hardware "nodes" 1 "role" "" -}}
{{- $types := list -}}
{{- range .Values.engines.types }}
{{- $type := deepCopy $plain }}
{{- range $name, $value := . }}{{ $_ := set $type $name $value }}{{ end }}
{{- $types = append $types $type }}
{{- end -}}
{{- $types | default (list $plain) | toJson -}}
{{- end }}

{{- /* The roles that these types have, of which either all or none has one, as a list. */ -}}
{{- define "hmas.roles" -}}
{{- $roles := list -}}
{{- range .Values.engines.types }}{{ $roles = append $roles .role }}{{ end -}}
{{- compact $roles | uniq | toJson -}}
{{- end }}

{{- /* The containers of an engine of the chart's own, before its worker in the pod. It gets root and type.
Of an engine over several nodes, it is that of the first one, which LeaderWorkerSet calls the leader. One with a role hands
KV over, and has its worker elsewhere, so that the two share no control block. */ -}}
{{- define "hmas.engine" -}}
{{- $type := .type -}}
{{- with .root -}}
{{- $run := .Values.engines.run -}}
{{- $args := concat $run.args $type.args -}}
{{- $alone := not (empty $type.role) -}}
{{- $plugged := and (eq $run.kind "vllm") (not $alone) -}}
{{- if $alone }}
{{- $transfer := dict "kv_connector" "NixlConnector" "kv_role" "kv_both" "kv_connector_extra_config" (dict "kv_lease_duration" 10) -}}
{{- $args = concat (list "--kv-transfer-config" (toJson $transfer)) $args }}
{{- end }}
{{- if gt (int $type.nodes) 1 }}
{{- $args = concat $args (list "--nnodes" (toString $type.nodes) "--master-addr" "$(LWS_LEADER_ADDRESS)" "--node-rank" "$(LWS_WORKER_INDEX)") }}
{{- end }}
{{- $seqs := int .Values.engines.maxNumSeqs | default 256 | toString -}}
{{- if eq $run.kind "vllm" }}
# Before the engine: the plug-in is plain Python without dependencies.
- name: plugin
  image: {{ include "hmas.image" . | quote }}
  imagePullPolicy: {{ .Values.image.pullPolicy }}
  command: [cp, -r, /opt/hmas/lib/python3.11/site-packages/hmas, /plugin/]
  securityContext: {{ include "hmas.lockedDown" . }}
  resources: {requests: {cpu: 100m, memory: 32Mi}, limits: {memory: 128Mi}}
  volumeMounts: [{name: plugin, mountPath: /plugin}]
{{- end }}
- name: engine
  restartPolicy: Always
  {{- if eq $run.kind "emulated" }}
  image: {{ $run.image | default (include "hmas.image" .) | quote }}
  command: [python, -m, hmas.engine]
  args: {{ concat (list "--host" "0.0.0.0" "--port" "8000" "--served-model-name" .Values.engines.model) $args | toJson }}
  {{- else if eq $run.kind "vllm" }}
  image: {{ $run.image | default "vllm/vllm-openai:v0.32.0" | quote }}
  command: [vllm, serve, {{ .Values.engines.model | quote }}]
  args: {{ concat (list "--host" "0.0.0.0" "--port" "8000" "--max-num-seqs" $seqs)
    (ternary (list "--scheduler-cls" "hmas.plugins.vllm.HmasAsyncScheduler") list $plugged) $args | toJson }}
  {{- else }}
  image: {{ $run.image | default "lmsysorg/sglang:v0.5.23" | quote }}
  command: [python3, -m, sglang.launch_server, --model-path, {{ .Values.engines.model | quote }}]
  args: {{ concat (list "--host" "0.0.0.0" "--port" "8000" "--max-running-requests" $seqs "--enable-metrics"
    "--enable-priority-scheduling") $args | toJson }}
  {{- end }}
  {{- if or (ne $run.kind "emulated") $alone .Values.engines.apiKeySecret }}
  env:
    {{- if $alone }}
    - {name: VLLM_NIXL_SIDE_CHANNEL_HOST, valueFrom: {fieldRef: {fieldPath: status.podIP}}} # where others read its KV
    {{- end }}
    {{- if ne $run.kind "emulated" }}
    - {name: HOME, value: /models}
    - {name: USER, value: hmas} # the number has no name in the image, and PyTorch asks for one
    - {name: HF_TOKEN_PATH, value: /run/huggingface/token}
    {{- end }}
    {{- if eq $run.kind "vllm" }}
    - {name: PYTHONPATH, value: /plugin}
    {{- if $plugged }}
    - {name: HMAS_CONTROL_BLOCK, value: /control/engine}
    {{- end }}
    - {name: VLLM_NO_USAGE_STATS, value: "1"}
    {{- end }}
    {{- with .Values.engines.apiKeySecret }}
    # vLLM reads it from the environment; SGLang's only way is an argument: engines.run.args={--api-key,$(VLLM_API_KEY)}
    - {name: VLLM_API_KEY, valueFrom: {secretKeyRef: {name: {{ . }}, key: api_key}}}
    {{- end }}
  {{- end }}
  {{- $python := "import urllib.request as u; u.urlopen('http://127.0.0.1:8000/health', timeout=3)" }}
  {{- $probe := ternary (list "probe" "8000" "/health") (list "python3" "-c" $python) (eq $run.kind "emulated") | toJson }}
  startupProbe: {exec: {command: {{ $probe }}}, periodSeconds: 10, timeoutSeconds: 5, failureThreshold: 180}
  livenessProbe: {exec: {command: {{ $probe }}}, periodSeconds: 10, timeoutSeconds: 5, failureThreshold: 3}
  securityContext: {{ include "hmas.lockedDown" . }}
  {{- $resources := deepCopy $run.resources }}
  {{- if and $type.gpus (ne $run.kind "emulated") }}
  {{- $resources = merge (dict "limits" (dict "nvidia.com/gpu" (div $type.gpus $type.nodes | toString))) $resources }}
  {{- end }}
  resources: {{ toJson $resources }}
  volumeMounts:
    - {name: tmp, mountPath: /tmp}
    {{- if eq $run.kind "vllm" }}
    - {name: plugin, mountPath: /plugin, readOnly: true}
    {{- end }}
    {{- if $plugged }}
    - {name: control, mountPath: /control}
    {{- end }}
    {{- if ne $run.kind "emulated" }}
    - {name: shm, mountPath: /dev/shm}
    - {name: models, mountPath: /models}
    - {name: huggingface, mountPath: /run/huggingface, readOnly: true}
    {{- end }}
{{- end }}
{{- end }}

{{- /* Their volumes, but for those that the worker has too. */ -}}
{{- define "hmas.engineVolumes" -}}
{{- $run := .Values.engines.run -}}
{{- if eq $run.kind "vllm" }}
- {name: plugin, emptyDir: {sizeLimit: 256Mi}}
{{- end }}
{{- if ne $run.kind "emulated" }}
- {name: shm, emptyDir: {medium: Memory, sizeLimit: 8Gi}}
{{- if $run.modelsClaim }}
- {name: models, persistentVolumeClaim: {claimName: {{ $run.modelsClaim }}}}
{{- else }}
- {name: models, emptyDir: {sizeLimit: 200Gi}}
{{- end }}
- {name: huggingface, secret: {secretName: {{ $run.tokenSecret }}, optional: true, defaultMode: 0440}}
{{- end }}
{{- end }}

{{- /* The pods of an engine's further nodes: the engine without API and without a worker. It gets root and type. */ -}}
{{- define "hmas.followers" -}}
{{- $root := .root -}}
{{- $engine := include "hmas.engine" . | fromYamlArray -}}
{{- $follower := omit (last $engine) "restartPolicy" "startupProbe" "livenessProbe" -}}
{{- $_ := set $follower "args" (append $follower.args "--headless") -}}
metadata:
  labels: {{- include "hmas.labels" (dict "root" $root "role" "engine-node" "type" .type.name) | nindent 4 }}
spec:
  automountServiceAccountToken: false
  terminationGracePeriodSeconds: {{ int $root.Values.engines.run.terminationGraceSeconds }}
  {{- include "hmas.placement" $root | nindent 2 }}
  initContainers: {{ initial $engine | toJson }}
  containers: {{ list $follower | toJson }}
  volumes: {{ concat (include "hmas.engineVolumes" $root | fromYamlArray) (list
    (dict "name" "tmp" "emptyDir" (dict "sizeLimit" "1Gi"))
    (dict "name" "control" "emptyDir" (dict "medium" "Memory" "sizeLimit" "1Mi"))) | toJson }}
{{- end }}

{{- /* The engines of a type with a role: pods without a worker, which the mesh's one worker finds by their role's Service.
One that goes serves on while it is drained. It gets root and type. */ -}}
{{- define "hmas.engineAlone" -}}
{{- $root := .root -}}
{{- $type := .type -}}
{{- $run := $root.Values.engines.run -}}
{{- $labels := dict "root" $root "role" "engine" "type" $type.name -}}
{{- $name := include "hmas.name" $labels -}}
{{- $containers := include "hmas.engine" . | fromYamlArray -}}
{{- $grace := int $run.terminationGraceSeconds -}}
{{- $drain := min (int $root.Values.engines.leaveGraceSeconds) (sub $grace 30) -}}
{{- $engine := omit (last $containers) "restartPolicy" -}}
{{- $engine = merge $engine (dict
  "readinessProbe" $engine.livenessProbe
  "ports" (list (dict "name" "http" "containerPort" 8000))
  "lifecycle" (dict "preStop" (dict "exec" (dict "command" (list "sleep" (toString $drain)))))) -}}
apiVersion: apps/v1
kind: StatefulSet
metadata:
  name: {{ $name }}
  labels: {{- include "hmas.labels" $labels | nindent 4 }}
    {{- include "hmas.chart" $root | nindent 4 }}
spec:
  {{- if not (and $root.Values.keda.enabled (eq $root.Values.keda.engines.name $name)) }}
  replicas: {{ $type.replicas }}
  {{- end }}
  serviceName: {{ $root.Release.Name }}-engine-{{ $type.role }}
  podManagementPolicy: Parallel
  selector:
    matchLabels: {{- include "hmas.selector" $labels | nindent 6 }}
  template:
    metadata:
      labels: {{- include "hmas.labels" $labels | nindent 8 }}
        llm-d.ai/role: {{ $type.role }}
    spec:
      automountServiceAccountToken: false
      terminationGracePeriodSeconds: {{ $grace }}
      {{- include "hmas.placement" $root | nindent 6 }}
      initContainers: {{ initial $containers | toJson }}
      containers: {{ list $engine | toJson }}
      volumes: {{ concat (include "hmas.engineVolumes" $root | fromYamlArray | default list) (list
        (dict "name" "tmp" "emptyDir" (dict "sizeLimit" "1Gi"))) | toJson }}
{{- end }}
