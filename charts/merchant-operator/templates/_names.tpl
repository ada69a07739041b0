{{/*
fullnameOverride, or the name of the release, with nameOverride. 40 characters leave room for suffixes. A release may have a dot in its name, a
Service may not.
*/}}
{{- define "merchant-operator.fullname" -}}
{{- $name := .Release.Name -}}
{{- with .Values.nameOverride }}{{ $name = printf "%s-%s" $name . }}{{ end -}}
{{- default $name .Values.fullnameOverride | replace "." "-" | trunc 40 | trimSuffix "-" -}}
{{- end -}}

{{/* Name of the objects of a role. The operator has the name of the release. */}}
{{- define "merchant-operator.roleName" -}}
{{- $fullname := include "merchant-operator.fullname" .root -}}
{{- if eq .role "operator" -}}{{ $fullname }}{{- else -}}{{ $fullname }}-{{ .role }}{{- end -}}
{{- end -}}

{{/* Name of the service account of a role. Takes root and role. */}}
{{- define "merchant-operator.accountName" -}}
{{- default (include "merchant-operator.roleName" .) (index .root.Values .role).serviceAccount.name -}}
{{- end -}}

{{/* Labels of all objects of this release. */}}
{{- define "merchant-operator.labels" -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" | quote }}
app.kubernetes.io/name: merchant-operator
app.kubernetes.io/instance: {{ .Release.Name | quote }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service | quote }}
{{- with .Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* Labels that select the pods of all roles, but not the bundled Redis. */}}
{{- define "merchant-operator.selector" -}}
app.kubernetes.io/name: merchant-operator
app.kubernetes.io/instance: {{ .Release.Name | quote }}
{{- end -}}

{{/* Labels that select the pods of one role. They must never change, because the selector of a Deployment cannot. */}}
{{- define "merchant-operator.roleSelector" -}}
{{ include "merchant-operator.selector" .root }}
app.kubernetes.io/component: {{ .role | quote }}
{{- end -}}

{{/* Labels that select the pods of the bundled Redis. */}}
{{- define "merchant-operator.redisSelector" -}}
app.kubernetes.io/name: merchant-operator-redis
app.kubernetes.io/instance: {{ .Release.Name | quote }}
{{- end -}}

{{/* The host of the console, without a port. */}}
{{- define "merchant-operator.consoleHost" -}}
{{- get (urlParse .Values.console.externalURL) "hostname" | lower -}}
{{- end -}}

{{/* Name of the port of the console's Service. */}}
{{- define "merchant-operator.consolePort" -}}
{{- ternary "https" "http" (ne .Values.console.certificateSecretName "") -}}
{{- end -}}

{{- define "merchant-operator.image" -}}
{{- $repository := include "merchant-operator.repository" (dict "root" . "repository" .Values.image.repository) -}}
{{- with .Values.image -}}
{{- if .digest -}}{{ $repository }}@{{ .digest }}{{- else -}}{{ $repository }}:{{ default $.Chart.AppVersion .tag }}{{- end -}}
{{- end -}}
{{- end -}}

{{/* A repository, in global.imageRegistry if that is set. The first part of a repository is a registry if it has a dot or a port. */}}
{{- define "merchant-operator.repository" -}}
{{- $registry := .root.Values.global.imageRegistry -}}
{{- if $registry -}}
{{ trimSuffix "/" $registry }}/{{ regexReplaceAll "^([^/]*[.:][^/]*|localhost)/" .repository "" }}
{{- else -}}
{{ .repository }}
{{- end -}}
{{- end -}}

{{- define "merchant-operator.pullSecrets" -}}
{{- $secrets := list -}}
{{- range concat .Values.imagePullSecrets .Values.global.imagePullSecrets }}
{{- $secrets = append $secrets (ternary (dict "name" .) . (kindIs "string" .)) }}
{{- end }}
{{- with $secrets | uniq }}
imagePullSecrets:
{{- toYaml . | nindent 0 }}
{{- end }}
{{- end -}}
