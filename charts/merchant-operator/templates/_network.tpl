{{/* Rules of NetworkPolicies. An empty list of peers would mean everybody, so such a rule is left out. */}}

{{- define "merchant-operator.fromOps" -}}
{{- with .Values.networkPolicy.opsFrom }}
# Prometheus scrapes the metrics.
- from:
  {{- toYaml . | nindent 2 }}
  ports:
  - port: ops
{{- end }}
{{- end -}}

{{- define "merchant-operator.toNames" -}}
{{- with .Values.networkPolicy.dnsTo }}
# DNS.
- to:
  {{- toYaml . | nindent 2 }}
  ports:
  {{- range $.Values.networkPolicy.dnsPorts }}
  - port: {{ int64 . }}
    protocol: UDP
  - port: {{ int64 . }}
    protocol: TCP
  {{- end }}
{{- end }}
{{- end -}}

{{- define "merchant-operator.toKubernetes" -}}
{{- with .Values.networkPolicy.kubernetesAPI }}
{{- if .to }}
# The Kubernetes API, which is not a pod.
- to:
  {{- toYaml .to | nindent 2 }}
  ports:
  {{- range .ports }}
  - port: {{ int64 . }}
  {{- end }}
{{- end }}
{{- end }}
{{- end -}}

{{- define "merchant-operator.toRedis" -}}
{{- if eq .Values.redis.type "Bundled" }}
- to:
  - podSelector:
      matchLabels:
        {{- include "merchant-operator.redisSelector" . | nindent 8 }}
  ports:
  - port: redis
{{- else }}
{{- with .Values.networkPolicy.redis }}
{{- if .to }}
# Redis and its Sentinels.
- to:
  {{- toYaml .to | nindent 2 }}
  ports:
  {{- range .ports }}
  - port: {{ int64 . }}
  {{- end }}
{{- end }}
{{- end }}
{{- end }}
{{- end -}}

{{- define "merchant-operator.policyHead" -}}
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata:
  name: {{ include "merchant-operator.roleName" . | quote }}
  namespace: {{ .root.Release.Namespace | quote }}
  labels:
    {{- include "merchant-operator.labels" .root | nindent 4 }}
    app.kubernetes.io/component: {{ .role | quote }}
spec:
  podSelector:
    matchLabels:
      {{- include "merchant-operator.roleSelector" . | nindent 6 }}
  policyTypes: [Ingress, Egress]
{{- end -}}
