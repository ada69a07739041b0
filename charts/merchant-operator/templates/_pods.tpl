{{/* Common part of the pod spec of all roles. Takes root, role and grace. */}}
{{- define "merchant-operator.podSpec" -}}
{{- $values := index .root.Values .role -}}
serviceAccountName: {{ include "merchant-operator.accountName" . | quote }}
automountServiceAccountToken: true
enableServiceLinks: false
# A name with a dot is asked as it is written first: not acme.dev as acme.dev.svc.cluster.local, which the namespace dev answers.
dnsConfig:
  options:
  - name: ndots
    value: "1"
{{- include "merchant-operator.pullSecrets" .root }}
terminationGracePeriodSeconds: {{ .grace }}
securityContext:
  {{- toYaml .root.Values.podSecurityContext | nindent 2 }}
{{- with $values.priorityClassName }}
priorityClassName: {{ . | quote }}
{{- end }}
{{- with $values.nodeSelector }}
nodeSelector:
{{- toYaml . | nindent 2 }}
{{- end }}
{{- with $values.tolerations }}
tolerations:
{{- toYaml . | nindent 0 }}
{{- end }}
{{- with $values.affinity }}
affinity:
{{- toYaml . | nindent 2 }}
{{- end }}
{{- if .root.Values.topologySpread.keys }}
topologySpreadConstraints:
{{- range .root.Values.topologySpread.keys }}
- maxSkew: 1
  topologyKey: {{ . | quote }}
  whenUnsatisfiable: {{ $.root.Values.topologySpread.whenUnsatisfiable | quote }}
  labelSelector:
    matchLabels:
      {{- include "merchant-operator.roleSelector" $ | nindent 6 }}
  # Spread the pods of each rollout separately.
  matchLabelKeys: [pod-template-hash]
{{- end }}
{{- end }}
{{- end -}}

{{- define "merchant-operator.podMetadata" -}}
{{- $values := index .root.Values .role -}}
labels:
  {{- merge (include "merchant-operator.roleSelector" . | fromYaml) $values.podLabels .root.Values.commonLabels | toYaml | nindent 2 }}
{{- with $values.podAnnotations }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{/* No privileges, no privilege escalation, read-only file system. */}}
{{- define "merchant-operator.containerSecurity" -}}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities:
    drop: [ALL]
{{- end -}}

{{- define "merchant-operator.probes" -}}
livenessProbe:
  httpGet:
    path: /healthz
    port: ops
    {{- if .Values.monitoring.enabled }}
    scheme: HTTPS
    {{- end }}
  periodSeconds: 10
  failureThreshold: 6
readinessProbe:
  httpGet:
    path: /readyz
    port: ops
    {{- if .Values.monitoring.enabled }}
    scheme: HTTPS
    {{- end }}
  periodSeconds: 5
  failureThreshold: 2
{{- end -}}

{{- define "merchant-operator.budget" -}}
{{- if .root.Values.podDisruptionBudget.enabled }}
---
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata:
  name: {{ include "merchant-operator.roleName" . | quote }}
  namespace: {{ .root.Release.Namespace | quote }}
  labels:
    {{- include "merchant-operator.labels" .root | nindent 4 }}
    app.kubernetes.io/component: {{ .role | quote }}
spec:
  maxUnavailable: {{ toJson .root.Values.podDisruptionBudget.maxUnavailable }}
  selector:
    matchLabels:
      {{- include "merchant-operator.roleSelector" . | nindent 6 }}
{{- end }}
{{- end -}}

{{/* A HorizontalPodAutoscaler of a role that has values for it. Takes root and role. */}}
{{- define "merchant-operator.autoscaler" -}}
{{- with (index .root.Values .role).autoscaling }}
{{- if .enabled }}
---
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata:
  name: {{ include "merchant-operator.roleName" $ | quote }}
  namespace: {{ $.root.Release.Namespace | quote }}
  labels:
    {{- include "merchant-operator.labels" $.root | nindent 4 }}
    app.kubernetes.io/component: {{ $.role | quote }}
spec:
  scaleTargetRef:
    apiVersion: apps/v1
    kind: Deployment
    name: {{ include "merchant-operator.roleName" $ | quote }}
  minReplicas: {{ int64 .minReplicas }}
  maxReplicas: {{ int64 .maxReplicas }}
  metrics:
  - type: Resource
    resource:
      name: cpu
      target:
        type: Utilization
        averageUtilization: {{ int64 .targetCPUUtilizationPercentage }}
  {{- with .metrics }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
  {{- with .behavior }}
  behavior:
    {{- toYaml . | nindent 4 }}
  {{- end }}
{{- end }}
{{- end }}
{{- end -}}
