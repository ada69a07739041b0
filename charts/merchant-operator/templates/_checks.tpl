{{/* What values.schema.json cannot say: values that do not go together. */}}
{{- define "merchant-operator.checks" -}}
{{- $redis := .Values.redis -}}
{{- if has $redis.type (list "Server" "Sentinel" "Cluster") -}}
{{- if not $redis.addresses }}{{ fail (printf "redis.addresses: redis.type %s needs at least one host:port" $redis.type) }}{{ end -}}
{{- end -}}
{{- if and (eq $redis.type "Server") (gt (len $redis.addresses) 1) }}{{ fail "redis.addresses: redis.type Server has one; several are Sentinels or a Cluster" }}{{ end -}}
{{- if and (eq $redis.type "Sentinel") (not $redis.sentinel.masterName) }}{{ fail "redis.sentinel.masterName: redis.type Sentinel needs it" }}{{ end -}}
{{- if and (eq $redis.type "Cluster") (ne (int $redis.database) 0) }}{{ fail "redis.database: a Redis Cluster has only database 0" }}{{ end -}}
{{- if and (eq $redis.type "URL") (not $redis.url.secretName) }}{{ fail "redis.url.secretName: redis.type URL needs the name of the Secret that holds it" }}{{ end -}}
{{- if and (eq $redis.type "Bundled") (or $redis.tls.enabled $redis.auth.secretName) }}{{ fail "redis.tls and redis.auth are for a Redis of your own: the bundled one has neither" }}{{ end -}}
{{- if eq .Values.credentialsNamespace.name .Release.Namespace }}{{ fail "credentialsNamespace.name: must not be the release's own namespace, whose pods' Secrets people may read" }}{{ end -}}
{{- if has .Values.credentialsNamespace.name .Values.watchNamespaces }}{{ fail "watchNamespaces: the credentials namespace is nobody's to write Merchants in" }}{{ end -}}
{{- with .Values.apiserver.autoscaling }}
{{- if and .enabled (gt (int .minReplicas) (int .maxReplicas)) }}{{ fail "apiserver.autoscaling: minReplicas is above maxReplicas" }}{{ end -}}
{{- end -}}
{{- if and .Values.httpRoute.enabled (not .Values.httpRoute.parentRefs) }}{{ fail "httpRoute.parentRefs: name the Gateway that routes it" }}{{ end -}}
{{- if not (or .Values.apiserver.trustedProxies .Values.apiserver.clientsConnectDirectly) -}}
{{- range $route := list "ingress" "httpRoute" -}}
{{- if (index $.Values $route).enabled }}{{ fail (printf "%s.enabled: set apiserver.trustedProxies to the addresses of the proxies that carry it, or every client has their address; if connections reach the API as clients open them, set apiserver.clientsConnectDirectly" $route) }}{{ end -}}
{{- end -}}
{{- end -}}
{{- if and (eq (int .Values.dispatcher.replicas) 0) (not .Values.dispatcher.paused) }}{{ fail "dispatcher.replicas: without a dispatcher Redis grows until it refuses every charge; set dispatcher.paused to run none for a while, or use kubectl scale" }}{{ end -}}
{{- if and .Values.ingress.tlsSecretName (not .Values.ingress.hosts) }}{{ fail "ingress.hosts: a certificate is for hosts; name them" }}{{ end -}}
{{- range .Values.rails }}
{{- if not (and .namespace .serviceAccountName) }}{{ fail "rails: each needs namespace and serviceAccountName" }}{{ end -}}
{{- end -}}
{{- with .Values.monitoring }}
{{- if and .enabled (not .readers) }}{{ fail "monitoring.readers: name the service account of your Prometheus, or nobody could read the metrics" }}{{ end -}}
{{- range .readers }}
{{- if not (and .namespace .serviceAccountName) }}{{ fail "monitoring.readers: each needs namespace and serviceAccountName" }}{{ end -}}
{{- end -}}
{{- end -}}
{{- end -}}
