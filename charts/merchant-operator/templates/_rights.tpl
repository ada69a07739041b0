{{/*
Rights of each service account, with reasons. The operator's are generated from the markers in controllers/, where their reasons are;
RBAC cannot narrow its right to write Secrets to those that it created: operator/secrets-policy.yaml does.
*/}}

{{/* In every namespace that is managed. */}}
{{- define "merchant-operator.operatorRules" -}}
{{- include "merchant-operator.operatorRulesOf" (dict "root" . "kind" "ClusterRole") }}
{{- end -}}

{{/* In the credentials namespace. */}}
{{- define "merchant-operator.operatorCredentialsRules" -}}
{{- include "merchant-operator.operatorRulesOf" (dict "root" . "kind" "Role") }}
{{- end -}}

{{- define "merchant-operator.operatorRulesOf" -}}
{{- range splitList "\n---\n" (.root.Files.Get "files/operator-role.yaml") }}
{{- with fromYaml . }}
{{- if eq .kind $.kind }}{{ toYaml .rules }}{{ end }}
{{- end }}
{{- end }}
{{- end -}}

{{/* In the credentials namespace. */}}
{{- define "merchant-operator.apiserverRules" -}}
# Watch the published keys and merchants, for the directory.
- apiGroups: [""]
  resources: [secrets, configmaps]
  verbs: [get, list, watch]
# Replace the digest in a published key (POST /api/v1/keys/rotate). The API does not create or delete keys.
- apiGroups: [""]
  resources: [secrets]
  verbs: [update]
{{- end -}}

{{/* In the credentials namespace. */}}
{{- define "merchant-operator.dispatcherCredentialsRules" -}}
# Watch the endpoints and signing secrets of merchants, and rotations of keys.
- apiGroups: [""]
  resources: [secrets, configmaps]
  verbs: [get, list, watch]
# Publish when keys were last used. The operator creates these ConfigMaps.
- apiGroups: [""]
  resources: [configmaps]
  verbs: [update]
  resourceNames: [last-uses-0, last-uses-1, last-uses-2, last-uses-3, last-uses-4, last-uses-5, last-uses-6, last-uses-7,
    last-uses-8, last-uses-9, last-uses-10, last-uses-11, last-uses-12, last-uses-13, last-uses-14, last-uses-15,
    last-uses-16, last-uses-17, last-uses-18, last-uses-19, last-uses-20, last-uses-21, last-uses-22, last-uses-23,
    last-uses-24, last-uses-25, last-uses-26, last-uses-27, last-uses-28, last-uses-29, last-uses-30, last-uses-31,
    last-uses-32, last-uses-33, last-uses-34, last-uses-35, last-uses-36, last-uses-37, last-uses-38, last-uses-39,
    last-uses-40, last-uses-41, last-uses-42, last-uses-43, last-uses-44, last-uses-45, last-uses-46, last-uses-47,
    last-uses-48, last-uses-49, last-uses-50, last-uses-51, last-uses-52, last-uses-53, last-uses-54, last-uses-55,
    last-uses-56, last-uses-57, last-uses-58, last-uses-59, last-uses-60, last-uses-61, last-uses-62, last-uses-63]
{{- end -}}

{{/* In every namespace that is managed. */}}
{{- define "merchant-operator.dispatcherRules" -}}
# Write the condition WebhookHealthy and status.webhook of Merchants, and events about them.
- apiGroups: [merchant-operator.io]
  resources: [merchants/status]
  verbs: [patch]
- apiGroups: [events.k8s.io]
  resources: [events]
  verbs: [create, patch]
{{- end -}}

{{/* In every namespace that is managed. */}}
{{- define "merchant-operator.consoleRules" -}}
# Show merchants and their keys; edit the allowlist and the webhook of a Merchant. RBAC cannot narrow a patch to fields.
- apiGroups: [merchant-operator.io]
  resources: [merchants]
  verbs: [get, list, watch, patch]
# Issue keys, as ApiKeys, disable and delete them.
- apiGroups: [merchant-operator.io]
  resources: [apikeys]
  verbs: [get, list, watch, create, patch, delete]
# Record who did what, and show it.
- apiGroups: [events.k8s.io]
  resources: [events]
  verbs: [list, create]
{{- end -}}

{{/* In no namespace. */}}
{{- define "merchant-operator.consoleClusterRules" -}}
# Ask what a person may do. The console impersonates nobody.
- apiGroups: [authorization.k8s.io]
  resources: [subjectaccessreviews]
  verbs: [create]
# Rotate keys, and read new signing secrets, on the internal port of the API. The paths are literal.
- nonResourceURLs: ["/internal/v1/keys/{keyID}/rotate", "/internal/v1/merchants/{merchantID}/signing-secret"]
  verbs: [post]
# Ask there which keys are accepted.
- nonResourceURLs: ["/internal/v1/keys/accepted"]
  verbs: [get]
{{- end -}}

{{/* Of people, where a RoleBinding gives it to them. */}}
{{- define "merchant-operator.viewerRules" -}}
# See merchants with their keys. A key is in no ApiKey.
- apiGroups: [merchant-operator.io]
  resources: [merchants, apikeys]
  verbs: [get, list, watch]
{{- end -}}
