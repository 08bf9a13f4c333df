{{- define "hmas.labels" -}}
{{ include "hmas.selector" . }}
app.kubernetes.io/part-of: hmas
{{- end }}

{{- define "hmas.chart" -}}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end }}

{{- /* `type` names an instance type of the engines; without it, the pods of all types are selected. */ -}}
{{- define "hmas.selector" -}}
app.kubernetes.io/name: {{ .role }}
app.kubernetes.io/instance: {{ .root.Release.Name }}
{{- with .type }}
app.kubernetes.io/component: {{ . }}
{{- end }}
{{- end }}

{{- define "hmas.name" -}}
{{ join "-" (compact (list .root.Release.Name .role .type)) | trunc 63 | trimSuffix "-" }}
{{- end }}

{{- define "hmas.image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end }}

{{- /* Roles that have a user of NATS, each with a secret of its own. */ -}}
{{- define "hmas.users" -}}
gateway worker perception prediction qos meta statera operator
{{- end }}

{{- define "hmas.natsUrl" -}}
{{ .Values.nats.url | default (printf "nats://%s-nats:4222" .Release.Name) }}
{{- end }}

{{- define "hmas.enginesNamespace" -}}
{{ .Values.engines.namespace | default .Release.Namespace }}
{{- end }}

{{- /* Labels of the engines' pods where they are known, as JSON. */ -}}
{{- define "hmas.enginePods" -}}
{{- if .Values.engines.run.kind -}}
{{ include "hmas.selector" (dict "root" . "role" "engine") | fromYaml | toJson }}
{{- else -}}
{{ .Values.engines.pods | toJson }}
{{- end -}}
{{- end }}

{{- /* Whether engines are found over the Kubernetes API. */ -}}
{{- define "hmas.api" -}}
{{- if or .Values.engines.service .Values.engines.selector .Values.engines.pods (include "hmas.roles" . | fromJsonArray) }}yes{{ end }}
{{- end }}

{{- /* When two engines serve a request (HMAS_SPLIT); empty: never. */ -}}
{{- define "hmas.split" -}}
{{ .Values.engines.split | default (ternary "" "auto" (empty (include "hmas.roles" . | fromJsonArray))) }}
{{- end }}

{{- /* The Services by which engines with roles are found, each with its role, as a JSON object; none: {}. */ -}}
{{- define "hmas.roleServices" -}}
{{- $services := dict -}}
{{- range include "hmas.roles" . | fromJsonArray }}{{ $_ := set $services (printf "%s-engine-%s" $.Release.Name .) . }}{{ end -}}
{{- if and .Values.engines.pods (include "hmas.split" .) -}}
{{- range list "prefill" "decode" "prefill-decode" "both" }}{{ $_ := set $services (printf "%s-engines-%s" $.Release.Name .) . }}{{ end -}}
{{- end -}}
{{- toJson $services -}}
{{- end }}

{{- define "hmas.source" -}}
{{- $e := .Values.engines -}}
{{- $port := ternary (printf ":%d" (int $e.port)) "" (gt (int $e.port) 0) -}}
{{- $service := ternary (printf "%s-engines" .Release.Name) $e.service (not (empty $e.pods)) -}}
{{- $roles := include "hmas.roleServices" . | fromJson -}}
{{- if $roles -}}
kubernetes+http://{{ include "hmas.enginesNamespace" . }}{{ $port }}/kubernetes.io/service-name in ({{ keys $roles | sortAlpha | join "," }})
{{- else if $service -}}
kubernetes+http://{{ include "hmas.enginesNamespace" . }}{{ $port }}/kubernetes.io/service-name={{ $service }}
{{- else if $e.selector -}}
kubernetes+http://{{ include "hmas.enginesNamespace" . }}{{ $port }}/{{ $e.selector }}
{{- else if $e.dns -}}
dns+http://{{ $e.dns }}{{ $port }}
{{- else if $e.run.kind -}}
{{- $engine := dict "url" "http://127.0.0.1:8000" "advertise_url" (include "hmas.ownEngine" . | replace "*" "$(POD)") "name" "engine" -}}
{{- if eq $e.run.kind "emulated" }}{{ $_ := set $engine "kind" "emulated" }}{{ end -}}
{{- list $engine | toJson -}}
{{- else -}}
file+/etc/hmas/engines/engines.yaml
{{- end -}}
{{- end }}

{{- /* Where gateways reach an engine of the chart's own: by its pod's name, which stays. An Envoy needs an address. */ -}}
{{- define "hmas.ownEngine" -}}
{{ ternary "http://*:8000" (printf "http://*.%s-engine:8000" .Release.Name) .Values.picker.enabled }}
{{- end }}

{{- define "hmas.endpoints" -}}
{{- $e := .Values.engines -}}
{{- if .Values.gateway.engineEndpoints -}}
{{ .Values.gateway.engineEndpoints }}
{{- else if include "hmas.roles" . | fromJsonArray -}}
http://*:8000
{{- else if $e.run.kind -}}
{{- $patterns := list (include "hmas.ownEngine" .) }}
{{- range include "hmas.types" . | fromJsonArray }}
{{- if gt (int .nodes) 1 }}{{ $patterns = append $patterns (printf "http://*.%s-engine-%s:8000" $.Release.Name .name) }}{{ end }}
{{- end }}
{{- uniq $patterns | join "," }}
{{- else if or $e.urls (not (int $e.port)) -}}
http://*:*,https://*:*
{{- else -}}
http://*:{{ int $e.port }}
{{- end -}}
{{- end }}

{{- /* The Secret with the certificate by which clients and gateways of the Gateway API know the gateway; empty: no TLS. */ -}}
{{- define "hmas.apiCertificate" -}}
{{ .Values.gateway.tlsSecret | default (ternary (printf "%s-tls-api" .Release.Name) "" .Values.tls.enabled) }}
{{- end }}

{{- define "hmas.lockedDown" -}}
{allowPrivilegeEscalation: false, readOnlyRootFilesystem: true, capabilities: {drop: [ALL]}}
{{- end }}

{{- /* A folder of a pod's that a Secret fills, as a list of one, or of none where the Secret has no name. */ -}}
{{- define "hmas.folder" -}}
{{- if .secret -}}
{{ list (dict "name" .name "path" .path "volume" (dict "secret" (dict "secretName" .secret "defaultMode" 0440))) | toJson }}
{{- else -}}
[]
{{- end -}}
{{- end }}

{{- /* As whom pods run, and where. */ -}}
{{- define "hmas.placement" -}}
securityContext:
  runAsNonRoot: true
  runAsUser: 10001
  runAsGroup: 10001
  fsGroup: 10001
  seccompProfile: {type: RuntimeDefault}
{{- with $.Values.imagePullSecrets }}
imagePullSecrets: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $.Values.nodeSelector }}
nodeSelector: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $.Values.tolerations }}
tolerations: {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{- /* The pod of a workload, from what the workload gets. */ -}}
{{- define "hmas.pod" -}}
{{- $root := .root -}}
{{- $role := .role -}}
{{- $user := .user | default $role -}}
{{- $labels := dict "root" $root "role" (.workload | default $role) "type" .type -}}
metadata:
  labels: {{- include "hmas.labels" $labels | nindent 4 }}
  annotations:
    checksum/config: {{ include (print $root.Template.BasePath "/config.yaml") $root | sha256sum }}
spec:
  automountServiceAccountToken: {{ not (empty .account) }}
  {{- with .account }}
  serviceAccountName: {{ . }}
  {{- end }}
  {{- with .grace }}
  terminationGracePeriodSeconds: {{ . }}
  {{- end }}
  {{- include "hmas.placement" $root | nindent 2 }}
  topologySpreadConstraints:
    - maxSkew: 1
      topologyKey: kubernetes.io/hostname
      whenUnsatisfiable: ScheduleAnyway
      labelSelector: {matchLabels: {{ include "hmas.selector" $labels | fromYaml | toJson }}}
  {{- with .init }}
  initContainers: {{- . | nindent 4 }}
  {{- end }}
  containers:
    - name: {{ $role }}
      image: {{ include "hmas.image" $root | quote }}
      imagePullPolicy: {{ $root.Values.image.pullPolicy }}
      command: [python, -m, hmas.{{ $role }}]
      envFrom: [{configMapRef: {name: {{ $root.Release.Name }}-mesh}}]
      env:
        - {name: HMAS_NATS_USER, value: {{ $user }}}
        - {name: HMAS_INSTANCE, valueFrom: {fieldRef: {fieldPath: metadata.name}}}
        {{- if .mesh }}
        - {name: HMAS_MESH_SECRET_FILE, value: /run/hmas/secrets/mesh_secret}
        {{- end }}
        {{- range .env }}
        - {{ toJson . }}
        {{- end }}
        {{- $named := dict }}
        {{- range $name, $value := .values.settings }}
        {{- $_ := set $named (printf "HMAS_%s" (upper $name)) $value }}
        {{- end }}
        {{- range $name, $value := merge (deepCopy (.values.env | default dict)) $named }}
        - {name: {{ $name }}, value: {{ include "hmas.written" $value | quote }}}
        {{- end }}
      ports: {{ toJson (concat (list (dict "name" "ops" "containerPort" 9100)) (.ports | default list)) }}
      {{- with .lifecycle }}
      lifecycle: {{ toJson . }}
      {{- end }}
      startupProbe: {httpGet: {path: /health, port: ops}, periodSeconds: 2, failureThreshold: 60}
      livenessProbe: {httpGet: {path: /health, port: ops}, periodSeconds: 10, timeoutSeconds: 5}
      readinessProbe: {httpGet: {path: /ready, port: {{ .ready | default "ops" }}}, periodSeconds: 5, timeoutSeconds: 3}
      securityContext: {{ include "hmas.lockedDown" . }}
      resources: {{ toJson .values.resources }}
      volumeMounts:
        - {name: secrets, mountPath: /run/hmas/secrets, readOnly: true}
        - {name: tmp, mountPath: /tmp}
        {{- if $root.Values.tls.enabled }}
        - {name: tls, mountPath: /run/hmas/tls, readOnly: true}
        {{- end }}
        {{- range .folders }}
        - {name: {{ .name }}, mountPath: {{ .path }}{{ if not .writable }}, readOnly: true{{ end }}}
        {{- end }}
  volumes:
    - {name: tmp, emptyDir: {sizeLimit: 1Gi}}
    - name: secrets
      projected:
        defaultMode: 0440
        sources:
          - {secret: {name: {{ $root.Release.Name }}-nats-{{ $user }}}}
          {{- if .mesh }}
          - {secret: {name: {{ $root.Release.Name }}-mesh}}
          {{- end }}
          {{- range .secrets }}
          - {secret: {name: {{ . }}}}
          {{- end }}
    {{- if $root.Values.tls.enabled }}
    - {name: tls, secret: {secretName: {{ $root.Release.Name }}-tls-{{ $user }}, defaultMode: 0440}}
    {{- end }}
    {{- range .folders }}
    - {{ merge (dict "name" .name) .volume | toJson }}
    {{- end }}
    {{- range .volumes }}
    - {{ toJson . }}
    {{- end }}
{{- end }}

{{- /* A workload of one service. It gets root, role, values (replicas, resources, env), env (a list), and optionally
workload (its name, where it is not the role's), type (of its engines), user (of NATS, likewise), kind, spec (further fields), init (containers
before the service's own), ports, ready (the port that tells whether it is, if not ops), folders (each with name, path,
volume and, if it may be written, writable), volumes (of the other containers), secrets (further ones beside its
password), mesh (whether it has the mesh's secret), grace, account and lifecycle. With `followers`, the pods of an
engine's further nodes, it is a LeaderWorkerSet of groups of `nodes` pods. */ -}}
{{- define "hmas.workload" -}}
{{- $root := .root -}}
{{- $role := .role -}}
{{- $labels := dict "root" $root "role" (.workload | default $role) "type" .type -}}
{{- $planned := and .type (eq $root.Values.plan.act "scale") -}}
apiVersion: {{ ternary "leaderworkerset.x-k8s.io/v1" "apps/v1" (not (empty .followers)) }}
kind: {{ .kind | default "Deployment" }}
metadata:
  name: {{ include "hmas.name" $labels }}
  labels: {{- include "hmas.labels" $labels | nindent 4 }}
    {{- include "hmas.chart" $root | nindent 4 }}
spec:
  {{- if not (and $root.Values.keda.enabled (or (eq $role "gateway") (and .workload $root.Values.keda.engines.name) $planned)) }}
  replicas: {{ .values.replicas }}
  {{- end }}
  {{- range $name, $value := .spec }}
  {{ $name }}: {{ toJson $value }}
  {{- end }}
  {{- if .followers }}
  leaderWorkerTemplate:
    size: {{ .nodes }}
    restartPolicy: RecreateGroupOnPodRestart
    leaderTemplate: {{- include "hmas.pod" . | nindent 6 }}
    workerTemplate: {{- .followers | nindent 6 }}
  {{- else }}
  selector:
    matchLabels: {{- include "hmas.selector" $labels | nindent 6 }}
  template: {{- include "hmas.pod" . | nindent 4 }}
  {{- end }}
{{- if gt (int .values.replicas) 1 }}
---
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata:
  name: {{ include "hmas.name" $labels }}
  labels: {{- include "hmas.labels" $labels | nindent 4 }}
    {{- include "hmas.chart" $root | nindent 4 }}
spec:
  maxUnavailable: 1
  selector:
    matchLabels: {{- include "hmas.selector" $labels | nindent 6 }}
{{- end }}
{{- end }}

{{/* A value as a variable holds it. A large number of a values file is a float, which would become 1.07e+09. */}}
{{- define "hmas.written" -}}
{{- if kindIs "slice" . }}{{ join "," . }}
{{- else if and (kindIs "float64" .) (eq . (floor .)) }}{{ int64 . }}
{{- else }}{{ toString . }}
{{- end }}
{{- end }}
