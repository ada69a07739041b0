{{/* A Role and its RoleBinding. Takes root, role, namespace and rules (the name of a template). */}}
{{- define "merchant-operator.roleIn" -}}
{{- $name := include "merchant-operator.roleName" . }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata:
  name: {{ $name | quote }}
  namespace: {{ .namespace | quote }}
  labels:
    {{- include "merchant-operator.labels" .root | nindent 4 }}
    app.kubernetes.io/component: {{ .role | quote }}
rules:
{{ include .rules .root }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata:
  name: {{ $name | quote }}
  namespace: {{ .namespace | quote }}
  labels:
    {{- include "merchant-operator.labels" .root | nindent 4 }}
    app.kubernetes.io/component: {{ .role | quote }}
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: Role
  name: {{ $name | quote }}
subjects:
- kind: ServiceAccount
  name: {{ include "merchant-operator.accountName" . | quote }}
  namespace: {{ .root.Release.Namespace | quote }}
{{- end -}}

{{/* A ClusterRoleBinding of a role's account. Takes root, role, clusterRole and name (default: that of the role). */}}
{{- define "merchant-operator.clusterBinding" -}}
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata:
  name: {{ default (include "merchant-operator.roleName" .) .name | quote }}
  labels:
    {{- include "merchant-operator.labels" .root | nindent 4 }}
    app.kubernetes.io/component: {{ .role | quote }}
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: ClusterRole
  name: {{ .clusterRole | quote }}
subjects:
- kind: ServiceAccount
  name: {{ include "merchant-operator.accountName" . | quote }}
  namespace: {{ .root.Release.Namespace | quote }}
{{- end -}}

{{/* Rules in all namespaces, or in each of watchNamespaces. Takes root, role and rules. */}}
{{- define "merchant-operator.managedRights" -}}
{{- $name := include "merchant-operator.roleName" . -}}
{{- if .root.Values.watchNamespaces -}}
{{- range .root.Values.watchNamespaces }}
{{- include "merchant-operator.roleIn" (merge (dict "namespace" .) $) }}
{{- end }}
{{- else }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata:
  name: {{ $name | quote }}
  labels:
    {{- include "merchant-operator.labels" .root | nindent 4 }}
    app.kubernetes.io/component: {{ .role | quote }}
rules:
{{ include .rules .root }}
---
{{ include "merchant-operator.clusterBinding" (merge (dict "clusterRole" $name) .) }}
{{- end }}
{{- end -}}

{{- define "merchant-operator.account" -}}
{{- with (index .root.Values .role).serviceAccount }}
{{- if .create }}
apiVersion: v1
kind: ServiceAccount
metadata:
  name: {{ include "merchant-operator.accountName" $ | quote }}
  namespace: {{ $.root.Release.Namespace | quote }}
  labels:
    {{- include "merchant-operator.labels" $.root | nindent 4 }}
    app.kubernetes.io/component: {{ $.role | quote }}
  {{- with .annotations }}
  annotations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
# Pods mount the token explicitly.
automountServiceAccountToken: false
{{- end }}
{{- end }}
{{- end -}}
