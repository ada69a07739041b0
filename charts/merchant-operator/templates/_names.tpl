{{/* The release's name, or what it is to be called instead; 40 characters leave room for what is added. */}}
{{- define "merchant-operator.fullname" -}}
{{- default .Release.Name .Values.fullnameOverride | trunc 40 | trimSuffix "-" -}}
{{- end -}}

{{/* Name of a role's objects and of its service account; the operator's is the release's own. */}}
{{- define "merchant-operator.roleName" -}}
{{- $fullname := include "merchant-operator.fullname" .root -}}
{{- if eq .role "operator" -}}{{ $fullname }}{{- else -}}{{ $fullname }}-{{ .role }}{{- end -}}
{{- end -}}

{{/* Labels by which everything of this release is found. */}}
{{- define "merchant-operator.labels" -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" }}
app.kubernetes.io/name: merchant-operator
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end -}}

{{/* Labels that select all pods of the program. The bundled Redis has another name, so that they miss it. */}}
{{- define "merchant-operator.selector" -}}
app.kubernetes.io/name: merchant-operator
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{/* Labels that select the pods of one role. They must never change: a Deployment's selector cannot. */}}
{{- define "merchant-operator.roleSelector" -}}
{{ include "merchant-operator.selector" .root }}
app.kubernetes.io/component: {{ .role }}
{{- end -}}

{{/* Labels that select the pods of the bundled Redis. */}}
{{- define "merchant-operator.redisSelector" -}}
app.kubernetes.io/name: merchant-operator-redis
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "merchant-operator.image" -}}
{{- with .Values.image -}}
{{- if .digest -}}{{ .repository }}@{{ .digest }}{{- else -}}{{ .repository }}:{{ default $.Chart.AppVersion .tag }}{{- end -}}
{{- end -}}
{{- end -}}
