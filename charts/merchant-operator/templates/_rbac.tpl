{{/* A Role and its binding to a role's account. Takes root, role, namespace and rules (a template's name). */}}
{{- define "merchant-operator.roleIn" -}}
{{- $name := include "merchant-operator.roleName" . }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata:
  name: {{ default $name .name }}
  namespace: {{ .namespace }}
  labels:
    {{- include "merchant-operator.labels" .root | nindent 4 }}
    app.kubernetes.io/component: {{ .role }}
rules:
{{ include .rules .root }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata:
  name: {{ default $name .name }}
  namespace: {{ .namespace }}
  labels:
    {{- include "merchant-operator.labels" .root | nindent 4 }}
    app.kubernetes.io/component: {{ .role }}
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: Role
  name: {{ default $name .name }}
subjects:
- kind: ServiceAccount
  name: {{ $name }}
  namespace: {{ .root.Release.Namespace }}
{{- end -}}

{{/* A binding of a cluster role (a name) to a role's account. */}}
{{- define "merchant-operator.clusterBinding" -}}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata:
  name: {{ include "merchant-operator.roleName" . }}
  labels:
    {{- include "merchant-operator.labels" .root | nindent 4 }}
    app.kubernetes.io/component: {{ .role }}
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: ClusterRole
  name: {{ .clusterRole }}
subjects:
- kind: ServiceAccount
  name: {{ include "merchant-operator.roleName" . }}
  namespace: {{ .root.Release.Namespace }}
{{- end -}}

{{/* The same rules in all namespaces, or in each of watchNamespaces. Takes root, role and rules. */}}
{{- define "merchant-operator.managedRights" -}}
{{- $name := include "merchant-operator.roleName" . -}}
{{- if .root.Values.watchNamespaces -}}
{{- range .root.Values.watchNamespaces }}
{{- /* Its own name, for the namespace may be the release's own, where the operator has a Role already. */}}
{{- include "merchant-operator.roleIn" (merge (dict "namespace" . "name" (printf "%s-managed" $name)) $) }}
{{- end }}
{{- else }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata:
  name: {{ $name }}
  labels:
    {{- include "merchant-operator.labels" .root | nindent 4 }}
    app.kubernetes.io/component: {{ .role }}
rules:
{{ include .rules .root }}
{{ include "merchant-operator.clusterBinding" (merge (dict "clusterRole" $name) .) }}
{{- end }}
{{- end -}}

{{- define "merchant-operator.account" -}}
apiVersion: v1
kind: ServiceAccount
metadata:
  name: {{ include "merchant-operator.roleName" . }}
  namespace: {{ .root.Release.Namespace }}
  labels:
    {{- include "merchant-operator.labels" .root | nindent 4 }}
    app.kubernetes.io/component: {{ .role }}
# Only pods that ask for it get its token.
automountServiceAccountToken: false
{{- end -}}
