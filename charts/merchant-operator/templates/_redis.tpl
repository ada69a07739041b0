{{/*
REDIS_URL of a container. Passwords come from Secrets, and the kubelet inserts them into the URL, so no manifest and no
argument contains them.
*/}}
{{- define "merchant-operator.redisEnv" -}}
{{- $redis := .Values.redis -}}
{{- if eq $redis.type "URL" -}}
- name: REDIS_URL
  valueFrom:
    secretKeyRef:
      name: {{ $redis.url.secretName | quote }}
      key: {{ $redis.url.secretKey | quote }}
{{- else -}}
{{- if ne $redis.type "Bundled" -}}
{{- include "merchant-operator.redisSecretEnv" (dict "prefix" "REDIS" "auth" $redis.auth) }}
{{- if eq $redis.type "Sentinel" }}
{{- include "merchant-operator.redisSecretEnv" (dict "prefix" "REDIS_SENTINEL" "auth" $redis.sentinel.auth) }}
{{- end }}
{{- end }}
- name: REDIS_URL
  value: {{ include "merchant-operator.redisURL" . | quote }}
{{- end }}
{{- if $redis.tls.caSecretName }}
# Go reads certificates from these directories in addition to those of the image.
- name: SSL_CERT_DIR
  value: /etc/merchant-operator/redis-ca
{{- end }}
{{- end -}}

{{/* What is missing to protect a Redis at addresses: the values to set; empty: nothing, or the chart cannot know. */}}
{{- define "merchant-operator.redisUnprotected" -}}
{{- $redis := .Values.redis -}}
{{- $missing := list -}}
{{- if has $redis.type (list "Server" "Sentinel" "Cluster") -}}
{{- if not $redis.auth.secretName }}{{ $missing = append $missing "redis.auth.secretName" }}{{ end -}}
{{- if not $redis.tls.enabled }}{{ $missing = append $missing "redis.tls.enabled" }}{{ end -}}
{{- end -}}
{{- join ", " $missing -}}
{{- end -}}

{{- define "merchant-operator.redisSecretEnv" -}}
{{- if .auth.secretName }}
{{- if .auth.usernameKey }}
- name: {{ .prefix }}_USERNAME
  valueFrom:
    secretKeyRef:
      name: {{ .auth.secretName | quote }}
      key: {{ .auth.usernameKey | quote }}
{{- end }}
- name: {{ .prefix }}_PASSWORD
  valueFrom:
    secretKeyRef:
      name: {{ .auth.secretName | quote }}
      key: {{ .auth.passwordKey | quote }}
{{- end }}
{{- end -}}

{{/* user:password@ of a URL, with references to environment variables. */}}
{{- define "merchant-operator.redisUserinfo" -}}
{{- if .auth.secretName -}}
{{- if .auth.usernameKey }}$({{ .prefix }}_USERNAME){{ end }}:$({{ .prefix }}_PASSWORD)@
{{- end -}}
{{- end -}}

{{- define "merchant-operator.redisURL" -}}
{{- $redis := .Values.redis -}}
{{- $scheme := ternary "rediss" "redis" $redis.tls.enabled -}}
{{- $more := list -}}
{{- range (rest $redis.addresses) }}{{ $more = append $more (printf "addr=%s" .) }}{{ end -}}
{{- if eq $redis.type "Bundled" -}}
redis://{{ include "merchant-operator.fullname" . }}-redis:6379/0
{{- else if eq $redis.type "Server" -}}
{{ $scheme }}://{{ include "merchant-operator.redisUserinfo" (dict "prefix" "REDIS" "auth" $redis.auth) }}{{ first $redis.addresses }}/{{ int64 $redis.database }}
{{- else if eq $redis.type "Cluster" -}}
{{ $scheme }}+cluster://{{ include "merchant-operator.redisUserinfo" (dict "prefix" "REDIS" "auth" $redis.auth) }}{{ first $redis.addresses }}
{{- with $more }}?{{ join "&" . }}{{ end }}
{{- else if eq $redis.type "Sentinel" -}}
{{- $parameters := concat (list (printf "master_name=%s" (urlquery $redis.sentinel.masterName))) $more -}}
{{- if $redis.auth.secretName -}}
{{- if $redis.auth.usernameKey }}{{ $parameters = append $parameters "username=$(REDIS_USERNAME)" }}{{ end -}}
{{- $parameters = append $parameters "password=$(REDIS_PASSWORD)" -}}
{{- end -}}
{{ $scheme }}+sentinel://{{ include "merchant-operator.redisUserinfo" (dict "prefix" "REDIS_SENTINEL" "auth" $redis.sentinel.auth) }}{{ first $redis.addresses }}/{{ int64 $redis.database }}?{{ join "&" $parameters }}
{{- end -}}
{{- end -}}
