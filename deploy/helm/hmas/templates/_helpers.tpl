{{- define "hmas.labels" -}}
app.kubernetes.io/name: {{ .role }}
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/part-of: hmas
{{- end }}

{{- define "hmas.chart" -}}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end }}

{{- define "hmas.selector" -}}
app.kubernetes.io/name: {{ .role }}
app.kubernetes.io/instance: {{ .root.Release.Name }}
{{- end }}

{{- define "hmas.name" -}}
{{ printf "%s-%s" .root.Release.Name .role | trunc 63 | trimSuffix "-" }}
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
{{- if or .Values.engines.service .Values.engines.selector .Values.engines.pods }}yes{{ end }}
{{- end }}

{{- define "hmas.source" -}}
{{- $e := .Values.engines -}}
{{- $port := ternary (printf ":%d" (int $e.port)) "" (gt (int $e.port) 0) -}}
{{- $service := ternary (printf "%s-engines" .Release.Name) $e.service (not (empty $e.pods)) -}}
{{- if $service -}}
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
{{- else if $e.run.kind -}}
{{ include "hmas.ownEngine" . }}
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

{{- /* A workload of one service. It gets root, role, values (replicas, resources, env), env (a list), and optionally
workload (its name, where it is not the role's), user (of NATS, likewise), kind, spec (further fields), init (containers
before the service's own), ports, ready (the port that tells whether it is, if not ops), folders (each with name, path,
volume and, if it may be written, writable), volumes (of the other containers), secrets (further ones beside its
password), mesh (whether it has the mesh's secret), grace, account and lifecycle. */ -}}
{{- define "hmas.workload" -}}
{{- $root := .root -}}
{{- $role := .role -}}
{{- $user := .user | default $role -}}
{{- $labels := dict "root" $root "role" (.workload | default $role) -}}
apiVersion: apps/v1
kind: {{ .kind | default "Deployment" }}
metadata:
  name: {{ include "hmas.name" $labels }}
  labels: {{- include "hmas.labels" $labels | nindent 4 }}
    {{- include "hmas.chart" $root | nindent 4 }}
spec:
  {{- if not (and $root.Values.keda.enabled (or (eq $role "gateway") (and .workload $root.Values.keda.engines.name))) }}
  replicas: {{ .values.replicas }}
  {{- end }}
  {{- range $name, $value := .spec }}
  {{ $name }}: {{ toJson $value }}
  {{- end }}
  selector:
    matchLabels: {{- include "hmas.selector" $labels | nindent 6 }}
  template:
    metadata:
      labels: {{- include "hmas.labels" $labels | nindent 8 }}
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
      securityContext:
        runAsNonRoot: true
        runAsUser: 10001
        runAsGroup: 10001
        fsGroup: 10001
        seccompProfile: {type: RuntimeDefault}
      {{- with $root.Values.imagePullSecrets }}
      imagePullSecrets: {{- toYaml . | nindent 8 }}
      {{- end }}
      {{- with $root.Values.nodeSelector }}
      nodeSelector: {{- toYaml . | nindent 8 }}
      {{- end }}
      {{- with $root.Values.tolerations }}
      tolerations: {{- toYaml . | nindent 8 }}
      {{- end }}
      topologySpreadConstraints:
        - maxSkew: 1
          topologyKey: kubernetes.io/hostname
          whenUnsatisfiable: ScheduleAnyway
          labelSelector: {matchLabels: {{ include "hmas.selector" $labels | fromYaml | toJson }}}
      {{- with .init }}
      initContainers: {{- . | nindent 8 }}
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
            {{- range $name, $value := .values.env }}
            - {name: {{ $name }}, value: {{ $value | toString | quote }}}
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
