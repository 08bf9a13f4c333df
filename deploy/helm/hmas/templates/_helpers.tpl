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

{{- define "hmas.natsUrl" -}}
{{ .Values.nats.url | default (printf "nats://%s-nats:4222" .Release.Name) }}
{{- end }}

{{- /* Whether engines are found over the Kubernetes API. */ -}}
{{- define "hmas.api" -}}
{{- if or .Values.engines.service .Values.engines.selector }}yes{{ end }}
{{- end }}

{{- define "hmas.source" -}}
{{- $e := .Values.engines -}}
{{- $port := ternary (printf ":%d" (int $e.port)) "" (gt (int $e.port) 0) -}}
{{- if $e.service -}}
kubernetes+http://{{ $e.namespace | default .Release.Namespace }}{{ $port }}/kubernetes.io/service-name={{ $e.service }}
{{- else if $e.selector -}}
kubernetes+http://{{ $e.namespace | default .Release.Namespace }}{{ $port }}/{{ $e.selector }}
{{- else if $e.dns -}}
dns+http://{{ $e.dns }}{{ $port }}
{{- else -}}
file+/etc/hmas/engines/engines.yaml
{{- end -}}
{{- end }}

{{- define "hmas.endpoints" -}}
{{- $e := .Values.engines -}}
{{- if .Values.gateway.engineEndpoints -}}
{{ .Values.gateway.engineEndpoints }}
{{- else if or $e.urls (not (int $e.port)) -}}
http://*:*,https://*:*
{{- else -}}
http://*:{{ int $e.port }}
{{- end -}}
{{- end }}

{{- /* A Deployment of one service. It gets root, role, values, env (a list), and optionally ports, mounts, volumes, grace,
mesh (it shares the mesh's secret), account and lifecycle. */ -}}
{{- define "hmas.deployment" -}}
{{- $root := .root -}}
apiVersion: apps/v1
kind: Deployment
metadata:
  name: {{ include "hmas.name" . }}
  labels: {{- include "hmas.labels" . | nindent 4 }}
    {{- include "hmas.chart" $root | nindent 4 }}
spec:
  {{- if not (and $root.Values.keda.enabled (eq .role "gateway")) }}
  replicas: {{ .values.replicas }}
  {{- end }}
  selector:
    matchLabels: {{- include "hmas.selector" . | nindent 6 }}
  template:
    metadata:
      labels: {{- include "hmas.labels" . | nindent 8 }}
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
          labelSelector: {matchLabels: {{ include "hmas.selector" . | fromYaml | toJson }}}
      containers:
        - name: {{ .role }}
          image: "{{ $root.Values.image.repository }}:{{ $root.Values.image.tag | default $root.Chart.AppVersion }}"
          imagePullPolicy: {{ $root.Values.image.pullPolicy }}
          command: [python, -m, hmas.{{ .role }}]
          envFrom: [{configMapRef: {name: {{ $root.Release.Name }}-mesh}}]
          env:
            - {name: HMAS_NATS_USER, value: {{ .role }}}
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
          readinessProbe: {httpGet: {path: /ready, port: {{ eq .role "gateway" | ternary "http" "ops" }}}, periodSeconds: 5, timeoutSeconds: 3}
          securityContext: {allowPrivilegeEscalation: false, readOnlyRootFilesystem: true, capabilities: {drop: [ALL]}}
          resources: {{ toJson .values.resources }}
          volumeMounts:
            - {name: secrets, mountPath: /run/hmas/secrets, readOnly: true}
            - {name: tmp, mountPath: /tmp}
            {{- range .mounts }}
            - {{ toJson . }}
            {{- end }}
      volumes:
        - {name: tmp, emptyDir: {sizeLimit: 1Gi}}
        - name: secrets
          projected:
            defaultMode: 0440
            sources:
              - {secret: {name: {{ printf "hmas-nats-%s" .role }}}}
              {{- if .mesh }}
              - {secret: {name: hmas-mesh}}
              {{- end }}
        {{- range .volumes }}
        - {{ toJson . }}
        {{- end }}
{{- if gt (int .values.replicas) 1 }}
---
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata:
  name: {{ include "hmas.name" . }}
  labels: {{- include "hmas.labels" . | nindent 4 }}
    {{- include "hmas.chart" $root | nindent 4 }}
spec:
  maxUnavailable: 1
  selector:
    matchLabels: {{- include "hmas.selector" . | nindent 6 }}
{{- end }}
{{- end }}
