{{/*
What each account may do, with a reason for each right. config/rbac says the same for kustomize, and test/chart keeps
the two equal.
*/}}

{{/* In every namespace that is managed. */}}
{{- define "merchant-operator.operatorRules" -}}
# Merchants and ApiKeys are read; of their metadata only the finalizer is written, never their spec.
- apiGroups: [merchant-operator.io]
  resources: [merchants, apikeys]
  verbs: [get, list, watch, patch]
# What became of them is said in their status.
- apiGroups: [merchant-operator.io]
  resources: [merchants/status, apikeys/status]
  verbs: [patch]
# Keys and signing secrets are delivered beside them: created; read, to tell whose a Secret of that name is; updated by a
# rotation; listed and watched, as metadata, to be put right; deleted with what they belong to. RBAC cannot narrow
# this to the Secrets that the operator made.
- apiGroups: [""]
  resources: [secrets]
  verbs: [get, list, watch, create, update, delete]
# Rotations, deliveries and what stalls are told as events of the objects.
- apiGroups: [events.k8s.io]
  resources: [events]
  verbs: [create, patch]
{{- end -}}

{{/* In the credentials namespace. */}}
{{- define "merchant-operator.operatorCredentialsRules" -}}
# It writes the published objects, adopts those it finds, and removes those whose source is gone.
- apiGroups: [""]
  resources: [secrets, configmaps]
  verbs: [get, list, watch, create, update, delete]
{{- end -}}

{{/* In the release's own namespace. */}}
{{- define "merchant-operator.operatorLeaseRules" -}}
# Only one operator works at a time: the one that holds the lease.
- apiGroups: [coordination.k8s.io]
  resources: [leases]
  verbs: [get, create, update]
# Who became the leader is told as an event of the lease.
- apiGroups: [""]
  resources: [events]
  verbs: [create, patch]
{{- end -}}

{{/* In the credentials namespace. */}}
{{- define "merchant-operator.apiserverRules" -}}
# The directory: every replica watches the published keys and merchants.
- apiGroups: [""]
  resources: [secrets, configmaps]
  verbs: [get, list, watch]
# POST /api/v1/keys/rotate replaces the digest in a published key, by compare-and-swap. A key is neither made nor
# removed by the API.
- apiGroups: [""]
  resources: [secrets]
  verbs: [update]
{{- end -}}

{{/* In the credentials namespace. */}}
{{- define "merchant-operator.dispatcherCredentialsRules" -}}
# It watches where each merchant's events go and what signs them, and which keys were rotated.
- apiGroups: [""]
  resources: [secrets, configmaps]
  verbs: [get, list, watch]
{{- end -}}

{{/* In every namespace that is managed. */}}
{{- define "merchant-operator.dispatcherRules" -}}
# The condition WebhookHealthy of a Merchant whose endpoint was disabled, and the event that says so.
- apiGroups: [merchant-operator.io]
  resources: [merchants/status]
  verbs: [patch]
- apiGroups: [events.k8s.io]
  resources: [events]
  verbs: [create, patch]
{{- end -}}
