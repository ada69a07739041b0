{{/* Checks of combinations of values, which values.schema.json cannot express. */}}
{{- define "merchant-operator.checks" -}}
{{- $redis := .Values.redis -}}
{{- if has $redis.type (list "Server" "Sentinel" "Cluster") -}}
{{- if not $redis.addresses }}{{ fail (printf "redis.addresses: set at least one host:port for redis.type %s" $redis.type) }}{{ end -}}
{{- end -}}
{{- if and (eq $redis.type "Server") (gt (len $redis.addresses) 1) }}{{ fail "redis.addresses: redis.type Server takes one address; for several set redis.type to Sentinel or Cluster" }}{{ end -}}
{{- if and (eq $redis.type "Sentinel") (not $redis.sentinel.masterName) }}{{ fail "redis.sentinel.masterName: set it for redis.type Sentinel" }}{{ end -}}
{{- if and (eq $redis.type "Cluster") (ne (int $redis.database) 0) }}{{ fail "redis.database: a Redis Cluster has only database 0" }}{{ end -}}
{{- if and (eq $redis.type "URL") (not $redis.url.secretName) }}{{ fail "redis.url.secretName: set it for redis.type URL, to the Secret with the URL" }}{{ end -}}
{{- $unprotected := include "merchant-operator.redisUnprotected" . -}}
{{- if and $unprotected (not $redis.allowInsecure) }}{{ fail (printf "%s: set it, because anyone who can connect to Redis without a password, or read what is sent without TLS, decides which keys are valid and what was paid; to do without, set redis.allowInsecure" $unprotected) }}{{ end -}}
{{- if and (eq $redis.type "Bundled") (or $redis.tls.enabled $redis.auth.secretName) }}{{ fail "redis.tls, redis.auth: the bundled Redis has no TLS and no password; set another redis.type" }}{{ end -}}
{{- if eq .Values.credentialsNamespace.name .Release.Namespace }}{{ fail "credentialsNamespace.name: must not be the namespace of the release" }}{{ end -}}
{{- if has .Values.credentialsNamespace.name .Values.watchNamespaces }}{{ fail "watchNamespaces: must not contain the credentials namespace" }}{{ end -}}
{{- range $role := list "apiserver" "console" -}}
{{- with (index $.Values $role).autoscaling }}
{{- if and .enabled (gt (int .minReplicas) (int .maxReplicas)) }}{{ fail (printf "%s.autoscaling: minReplicas must not be above maxReplicas" $role) }}{{ end -}}
{{- end -}}
{{- end -}}
{{- if and (eq .Values.apiserver.qrContent "Link") (not .Values.apiserver.publicURL) }}{{ fail "apiserver.publicURL: set it for apiserver.qrContent Link" }}{{ end -}}
{{- if and .Values.httpRoute.enabled (not .Values.httpRoute.parentRefs) }}{{ fail "httpRoute.parentRefs: set the Gateway" }}{{ end -}}
{{- if not (or .Values.apiserver.trustedProxies .Values.apiserver.clientsConnectDirectly) -}}
{{- range $route := list "httpRoute" "ingress" -}}
{{- if (index $.Values $route).enabled }}{{ fail (printf "%s.enabled: set apiserver.trustedProxies to the addresses of its proxies, otherwise all clients have their address; if clients connect with their own addresses, set apiserver.clientsConnectDirectly" $route) }}{{ end -}}
{{- end -}}
{{- with .Values.apiserver.service -}}
{{- if and (ne .type "ClusterIP") (eq .externalTrafficPolicy "Cluster") }}{{ fail "apiserver.service.externalTrafficPolicy: with Cluster clients have the addresses of nodes, so allowlists refuse everybody; set Local, or apiserver.clientsConnectDirectly if the network keeps the addresses of clients" }}{{ end -}}
{{- end -}}
{{- end -}}
{{- if and (eq (int .Values.dispatcher.replicas) 0) (not .Values.dispatcher.paused) }}{{ fail "dispatcher.replicas: must be at least 1, because Redis grows without a dispatcher until it refuses every charge; to pause it, set dispatcher.paused" }}{{ end -}}
{{- range .Values.operator.extraArgs }}
{{- if hasPrefix "--leader-identity" . }}{{ fail "operator.extraArgs: --leader-identity must differ between pods; the chart sets it" }}{{ end -}}
{{- end -}}
{{- $accounts := dict -}}
{{- range $role := list "operator" "apiserver" "dispatcher" "console" -}}
{{- $account := (index $.Values $role).serviceAccount -}}
{{- if not (or $account.create $account.name) }}{{ fail (printf "%s.serviceAccount.name: set it for %s.serviceAccount.create false" $role $role) }}{{ end -}}
{{- $name := include "merchant-operator.accountName" (dict "root" $ "role" $role) -}}
{{- with get $accounts $name }}{{ fail (printf "%s.serviceAccount.name: %s has the same account; each role needs one of its own, because each has rights that no other may have" $role .) }}{{ end -}}
{{- $_ := set $accounts $name $role -}}
{{- end -}}
{{- range $name, $_ := .Values.commonLabels -}}
{{- if has $name (list "helm.sh/chart" "app.kubernetes.io/name" "app.kubernetes.io/instance" "app.kubernetes.io/version" "app.kubernetes.io/managed-by" "app.kubernetes.io/component") }}{{ fail (printf "commonLabels: %s is a label of the chart" $name) }}{{ end -}}
{{- end -}}
{{- if and .Values.ingress.tlsSecretName (not .Values.ingress.hosts) }}{{ fail "ingress.hosts: set the hosts of ingress.tlsSecretName" }}{{ end -}}
{{- if and .Values.receipts.smtpURL (not .Values.receipts.from) }}{{ fail "receipts.from: set it for receipts.smtpURL, to the address that receipts come from" }}{{ end -}}
{{- if and .Values.receipts.from (not .Values.receipts.smtpURL) }}{{ fail "receipts.smtpURL: set it for receipts.from" }}{{ end -}}
{{- with .Values.console -}}
{{- if .enabled -}}
{{- if not .externalURL }}{{ fail "console.externalURL: set it for console.enabled, to the URL of the console in browsers" }}{{ end -}}
{{- if not .oidc.issuerURL }}{{ fail "console.oidc.issuerURL: set it for console.enabled, to the URL of the OpenID provider" }}{{ end -}}
{{- if not .oidc.clientID }}{{ fail "console.oidc.clientID: set it for console.enabled, to the id of the console at the OpenID provider" }}{{ end -}}
{{- if not $.Values.apiserver.internalCertificateSecretName }}{{ fail "apiserver.internalCertificateSecretName: set it for console.enabled, to a Secret with tls.crt, tls.key and ca.crt, because new keys travel from the API to the console over TLS only; docs/rotation-api.md shows how to make it" }}{{ end -}}
{{- if and .httpRoute.enabled (not .httpRoute.parentRefs) }}{{ fail "console.httpRoute.parentRefs: set the Gateway" }}{{ end -}}
{{- if not (or .trustedProxies $.Values.apiserver.trustedProxies $.Values.apiserver.clientsConnectDirectly) -}}
{{- range $route := list "httpRoute" "ingress" -}}
{{- if (index $.Values.console $route).enabled }}{{ fail (printf "console.%s.enabled: set console.trustedProxies to the addresses of its proxies, otherwise all people have their address" $route) }}{{ end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- range .Values.rails }}
{{- if not (and .namespace .serviceAccountName) }}{{ fail "rails: set namespace and serviceAccountName in each entry" }}{{ end -}}
{{- end -}}
{{- with .Values.monitoring }}
{{- if and .enabled (not .readers) }}{{ fail "monitoring.readers: set the service account of your Prometheus, otherwise nobody can read the metrics" }}{{ end -}}
{{- range .readers }}
{{- if not (and .namespace .serviceAccountName) }}{{ fail "monitoring.readers: set namespace and serviceAccountName in each entry" }}{{ end -}}
{{- end -}}
{{- end -}}
{{- end -}}
